#include "tessera/tensor/io/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "tessera/tensor/check.h"

namespace tessera {

InputFile::InputFile(const char* where, std::string path) : where_(where), path_(std::move(path)) {
  file_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe must not block
  if (file_ < 0) fail("open");
  struct stat status = {};
  const bool known = ::fstat(file_, &status) == 0, regular = known && S_ISREG(status.st_mode);
  size_ = static_cast<std::uint64_t>(status.st_size);
  if (regular) return;
  const int code = errno;
  ::close(file_);
  errno = code;
  if (!known) fail("read");
  throw_error<CheckpointError>(where_, "\"{}\" is not a regular file", path_);
}

InputFile::~InputFile() { ::close(file_); }

void InputFile::fail(const char* action) const {
  throw_error<CheckpointError>(where_, "cannot {} \"{}\": {}", action, path_, std::strerror(errno));
}

void InputFile::read(std::uint64_t offset, void* out, std::uint64_t bytes) const {
  auto* next = static_cast<std::byte*>(out);
  while (bytes > 0) {
    const ssize_t count = ::pread(file_, next, bytes, static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail("read");
    TESSERA_CHECK_AS(CheckpointError, count > 0, where_,
                     "\"{}\" ended at byte {}, {} bytes before what was there when it was opened",
                     path_, offset, bytes);
    next += count;
    offset += static_cast<std::uint64_t>(count);
    bytes -= static_cast<std::uint64_t>(count);
  }
}

}  // namespace tessera
