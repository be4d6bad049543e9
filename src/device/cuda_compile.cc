// The kernels' text through CUDA's run-time compiler.

#include <algorithm>
#include <array>
#include <string>

#include "base/format.hpp"
#include "device/cuda_calls.hpp"

namespace seriatim::device {
namespace {

// Released with its owner.
struct Text {
  explicit Text(const NvrtcCalls& compiler) : calls(compiler) {}
  ~Text() {
    if (program != nullptr) calls.destroy(&program);
  }
  Text(const Text&) = delete;
  Text& operator=(const Text&) = delete;
  const NvrtcCalls& calls;
  NvrtcProgram program = nullptr;
};

Status check_compiler(NvrtcResult code, const char* what) {
  constexpr NvrtcResult kOutOfMemory = 1;
  if (code == 0) return {};
  return Status::error(code == kOutOfMemory ? Code::kOutOfMemory : Code::kIo, "device",
                       formatted("device: {} gave NVRTC error {}", what, code));
}

// From the first error on: a message is short.
std::string log_of(const Text& text) {
  std::size_t bytes = 0;
  if (text.calls.log_size(text.program, &bytes) != 0 || bytes == 0) return "the compiler gives no log";
  std::string log(bytes, '\0');
  if (text.calls.log(text.program, log.data()) != 0) return "the compiler gives no log";
  log.resize(std::min(log.find('\0'), log.size()));
  const std::size_t error = log.find("error");
  return error == std::string::npos ? log : log.substr(error);
}

template <typename Size, typename Copy>
Result<std::vector<char>> take_result(const Text& text, const Size& size, const Copy& copy, const char* what) {
  std::size_t bytes = 0;
  if (Status s = check_compiler(size(text.program, &bytes), what); !s.ok()) return s;
  std::vector<char> result(bytes);
  if (Status s = check_compiler(copy(text.program, result.data()), what); !s.ok()) return s;
  return result;
}

}  // namespace

Result<Compiled> compile(const NvrtcCalls& compiler, const Build& what, const char* architecture,
                         std::vector<const char*> options) {
  Text text(compiler);
  if (Status s = check_compiler(compiler.create(&text.program, what.text, "seriatim.cu", 0, nullptr, nullptr),
                                "taking the kernels' text");
      !s.ok())
    return s;
  // What an option like --use_fast_math would change is named here, so that the bits do not hang on a default.
  const std::array<std::string, 9> fixed{formatted("--gpu-architecture={}", architecture),
                                         "--fmad=false",
                                         "--prec-div=true",
                                         "--prec-sqrt=true",
                                         "--ftz=false",
                                         "--std=c++17",
                                         formatted("-DWORK_GROUP={}", what.work_group),
                                         formatted("-DKV_DTYPE={}", static_cast<int>(what.kv_dtype)),
                                         formatted("-DINDEX_DTYPE={}", static_cast<int>(what.index_dtype))};
  std::vector<const char*> all;
  for (const std::string& one : fixed) all.push_back(one.c_str());
  all.insert(all.end(), options.begin(), options.end());
  const NvrtcResult code = compiler.compile(text.program, static_cast<int>(all.size()), all.data());
  if (code == kNvrtcCompilation)
    return Status::error(Code::kUnsupported, "device", formatted("device: the kernels do not build: {}", log_of(text)));
  if (Status s = check_compiler(code, "building the kernels"); !s.ok()) return s;
  auto machine_code = take_result(text, compiler.cubin_size, compiler.cubin, "taking the kernels' code");
  if (!machine_code.ok()) return machine_code.status();
  auto ptx = take_result(text, compiler.ptx_size, compiler.ptx, "taking the kernels' PTX");
  if (!ptx.ok()) return ptx.status();
  return Compiled{*std::move(machine_code), *std::move(ptx)};
}

}  // namespace seriatim::device
