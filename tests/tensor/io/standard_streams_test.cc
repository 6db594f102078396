// Closed standard streams, in a process of its own.
#include "tessera/tensor/io/standard_streams.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>

namespace tessera {
namespace {

// True if the stream, which was closed, is neither readable nor writable, and no file gets its
// descriptor.
bool is_reserved(int stream) {
  close(stream);
  reserve_standard_streams();
  const int next = open("/dev/null", O_RDWR);
  char byte = 0;
  const bool transfers = stream == STDIN_FILENO ? read(stream, &byte, 1) >= 0 || errno != EBADF
                                                : write(stream, &byte, 1) >= 0 || errno != EBADF;
  return next > STDERR_FILENO && fcntl(stream, F_GETFD) >= 0 && !transfers;
}

int exit_code_of(int stream) {
  const pid_t child = fork();
  if (child == 0) _exit(is_reserved(stream) ? 7 : 1);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace

TEST_CASE("a closed standard stream is reserved, and using it stays an error") {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    CHECK(exit_code_of(stream) == 7);
}

TEST_CASE("open standard streams are left alone") {
  const int before = fcntl(STDERR_FILENO, F_GETFL);
  reserve_standard_streams();
  CHECK(fcntl(STDERR_FILENO, F_GETFL) == before);
}

}  // namespace tessera
