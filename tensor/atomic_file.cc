#include "tessera/tensor/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <random>
#include <utility>

#include "tessera/tensor/check.h"

namespace tessera {
namespace {

// Another name for each writer, also when two hosts share the folder.
std::string temporary_name(const std::string& path) {
  std::random_device source;
  return fmt::format("{}.{:08x}{:08x}.tmp", path, source(), source());
}

}  // namespace

AtomicFile::AtomicFile(const char* where, std::string path)
    : where_(where), path_(std::move(path)), temporary_(temporary_name(path_)) {
  file_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file_ < 0) {
    const int code = errno;
    temporary_.clear();
    errno = code;
    fail("create");
  }
}

AtomicFile::~AtomicFile() {
  if (file_ >= 0) ::close(file_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::write(const void* data, std::size_t bytes) {
  const auto* next = static_cast<const std::byte*>(data);
  while (bytes > 0) {
    const ssize_t written = ::write(file_, next, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("write");
    next += written;
    bytes -= static_cast<std::size_t>(written);
  }
}

void AtomicFile::commit() {
  if (::fsync(file_) != 0) fail("write");
  close_file();
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) fail("replace");
  temporary_.clear();
  sync_folder();
}

void AtomicFile::close_file() {
  // Closed in either case: Linux gives the descriptor back even when close() reports an error.
  if (::close(std::exchange(file_, -1)) != 0) fail("write");
}

// Without it a crash of the machine may bring the old file back.
void AtomicFile::sync_folder() const {
  const std::string folder = std::filesystem::path(path_).parent_path().string();
  const int handle =
      ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (handle < 0) return;  // a folder that may be written but not read
  const bool synced = ::fsync(handle) == 0 || errno == EINVAL;  // some file systems have none
  ::close(handle);
  if (!synced) fail("write");
}

void AtomicFile::fail(const char* action) const {
  throw_error<CheckpointError>(where_, "cannot {} \"{}\": {}", action, path_, std::strerror(errno));
}

}  // namespace tessera
