#include "tessera/tensor/io/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <initializer_list>

namespace tessera {

void reserve_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    const bool is_open = ::fcntl(stream, F_GETFD) >= 0 || errno != EBADF;
    // open() returns the lowest free descriptor. Reading from it, or writing to it, fails.
    if (!is_open) ::open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

}  // namespace tessera
