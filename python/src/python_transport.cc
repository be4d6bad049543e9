#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <exception>
#include <string>

#include "errors.hpp"
#include "shard.hpp"

namespace seriatim::python {

namespace nb = nanobind;

namespace {

nb::object memory_of(std::span<const std::byte> bytes) {
  static char empty = 0;  // a memoryview of nothing still wants an address
  char* data = bytes.empty() ? &empty : const_cast<char*>(reinterpret_cast<const char*>(bytes.data()));
  return nb::steal(PyMemoryView_FromMemory(data, static_cast<Py_ssize_t>(bytes.size()), PyBUF_READ));
}

nb::object memory_of(std::span<std::byte> bytes) {
  static char empty = 0;
  char* data = bytes.empty() ? &empty : reinterpret_cast<char*>(bytes.data());
  return nb::steal(PyMemoryView_FromMemory(data, static_cast<Py_ssize_t>(bytes.size()), PyBUF_WRITE));
}

Status lost(const std::string& what) { return Status::error(Code::kPeerLost, "transport", "transport: " + what); }

// The Status of an exception. Needs the interpreter's lock. Throws what the exception's own attributes throw.
Status status_of(nb::python_error& error) {
  const nb::object value = nb::borrow(error.value());
  const std::string message = nb::cast<std::string>(nb::str(value));
  const nb::object kind = nb::module_::import_("seriatim.errors").attr("Error");
  if (nb::isinstance(value, kind)) {
    const auto code = static_cast<Code>(nb::cast<int>(value.attr("code")));
    if (code == Code::kOk || code_name(code) == "Unknown") return lost(message);
    return Status::error(
        code, nb::cast<std::string>(value.attr("argument")), message,
        {.row = nb::cast<std::int64_t>(value.attr("row")), .index = nb::cast<std::int64_t>(value.attr("index"))});
  }
  return lost(message);
}

// The same, whatever the exception is: no exception of a transport passes through the library.
Status status_of_any(nb::python_error& error) {
  try {
    return status_of(error);
  } catch (const std::exception&) {
    return lost("it raised what cannot be shown");
  }
}

class PythonTransport final : public Transport {
 public:
  explicit PythonTransport(nb::object target)
      : target_(std::move(target)),
        rank_(nb::cast<int>(target_.attr("rank"))),
        size_(nb::cast<int>(target_.attr("size"))) {}
  ~PythonTransport() override {
    const nb::gil_scoped_acquire lock;
    target_.reset();
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  Status all_gather(std::span<const std::byte> block, std::span<std::byte> blocks) override {
    return call(size_ - 1, block.size(), [&] { target_.attr("all_gather")(memory_of(block), memory_of(blocks)); });
  }
  Status send(int to, std::span<const std::byte> bytes) override {
    return call(1, bytes.size(), [&] { target_.attr("send")(to, memory_of(bytes)); });
  }
  Status receive(int from, std::span<std::byte> bytes) override {
    return call(0, 0, [&] { target_.attr("receive")(from, memory_of(bytes)); });
  }
  Status broadcast(int root, std::span<std::byte> bytes) override {
    return call(root == rank_ ? size_ - 1 : 0, bytes.size(),
                [&] { target_.attr("broadcast")(root, memory_of(bytes)); });
  }

 private:
  template <typename Work>
  Status call(int messages, std::size_t bytes, const Work& work) {
    if (!broken_.ok()) return broken_;
    const nb::gil_scoped_acquire lock;
    try {
      work();
    } catch (nb::python_error& error) {
      Status status = status_of_any(error);
      if (status.code() != Code::kInvalidArgument) broken_ = status;
      return status;
    } catch (const std::exception& error) {
      return broken_ = lost(error.what());
    }
    traffic_.messages += messages;
    traffic_.bytes += messages * static_cast<std::int64_t>(bytes);
    return {};
  }

  nb::object target_;
  const int rank_;
  const int size_;
  Status broken_;
};

}  // namespace

std::shared_ptr<Transport> transport_of(nb::handle object) {
  if (nb::isinstance<ThreadEndHandle>(object)) return nb::cast<const ThreadEndHandle&>(object).transport;
  for (const char* name : {"rank", "size", "all_gather", "send", "receive", "broadcast"})
    if (!nb::hasattr(object, name)) refuse("transport", std::string("has no ") + name);
  auto made = std::make_shared<PythonTransport>(nb::borrow(object));
  if (made->size() < 1 || made->rank() < 0 || made->rank() >= made->size())
    refuse("transport", "rank " + std::to_string(made->rank()) + " of " + std::to_string(made->size()));
  return made;
}

}  // namespace seriatim::python
