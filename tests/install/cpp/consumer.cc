// What an installed Seriatim must offer: its headers are found, they are clean under a user's warnings, C++20 is asked
// for without the user's doing, and the library links.
#include <cstdio>
#include <seriatim/status.hpp>
#include <seriatim/tensor.hpp>

int main() {
  const seriatim::Status status = seriatim::Status::error(seriatim::Code::kCapacity, "tokens", "too many");
  const bool right = !status.ok() && status.argument() == "tokens" &&
                     seriatim::code_name(status.code()) == "Capacity" &&
                     seriatim::dtype_name(seriatim::DType::kBf16) == "bf16";
  std::puts(right ? "consumer: linked and answered" : "consumer: wrong answer");
  return right ? 0 : 1;
}
