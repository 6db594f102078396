#include "tessera/tools/program/options/output.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "tessera/tensor/check.h"
#include "tessera/tensor/io/failure_text.h"
#include "tessera/tensor/io/standard_streams.h"

namespace tessera::tools {
namespace {

constexpr const char* kWhere = "stdout";

// Returns 0, or the system's error number.
int write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno == EAGAIN) {  // another process made the pipe non-blocking
      pollfd room = {.fd = file, .events = POLLOUT, .revents = 0};
      ::poll(&room, 1, -1);
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

}  // namespace

void prepare_output() {
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);
  reserve_standard_streams();
}

void write_output(std::string_view text) {
  const int error = write_all(STDOUT_FILENO, text);
  if (error == 0) return;
  if (error == EPIPE) throw OutputClosed(error_text(kWhere, "standard output has no reader"));
  throw_error<Error>(kWhere, "standard output cannot be written: {}; {}", std::strerror(error),
                     error == ENOSPC || error == EFBIG || error == EDQUOT
                         ? "make room, or send it elsewhere"
                         : "send it elsewhere");
}

bool is_output_closed() {
  pollfd output = {.fd = STDOUT_FILENO, .events = 0, .revents = 0};
  return ::poll(&output, 1, 0) == 1 && (output.revents & (POLLERR | POLLHUP)) != 0;
}

void print_failure(std::string_view text, std::string_view details) {
  write_all(STDERR_FILENO, fmt::format("{}tessera: {}\n", details, printable(text)));
}

}  // namespace tessera::tools
