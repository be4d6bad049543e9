#include "print.hpp"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <limits>
#include <string>

#include "commands.hpp"
#include "file/bytes.hpp"

namespace seriatim::cli {
namespace {

int lost = 0;  // the first errno of standard output

void note(bool written) {
  if (!written && lost == 0) lost = errno != 0 ? errno : EIO;
}

}  // namespace

void open_standard_streams() {
  // A descriptor that was closed is opened the other way round: using it stays an error.
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(fd, F_GETFD) < 0) ::open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
  ::signal(SIGXFSZ, SIG_IGN);
}

void print(std::string_view text) {
  errno = 0;
  note(std::fwrite(text.data(), 1, text.size(), stdout) == text.size());
}

void complain(std::string_view text) {
  const std::string line = file::printable(text, std::numeric_limits<std::size_t>::max()) + '\n';
  std::fwrite(line.data(), 1, line.size(), stderr);
}

int finished(int code) {
  errno = 0;
  note(std::fflush(stdout) == 0);
  if (lost == 0) return code;
  complain(formatted("seriatim: io: standard output: cannot be written: {}", std::strerror(lost)));
  return kBadInput;
}

}  // namespace seriatim::cli
