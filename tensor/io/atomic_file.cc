#include "tessera/tensor/io/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
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

constexpr std::string_view kEnding = ".tmp";
constexpr std::size_t kRandomDigits = 16;

// A different name for each writer, also if two hosts share the folder.
std::string temporary_name(const std::string& path) {
  std::random_device source;
  return fmt::format("{}.{:08x}{:08x}{}", path, source(), source(), kEnding);
}

std::string folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

}  // namespace

AtomicFile::AtomicFile(const char* where, std::string path)
    : where_(where), path_(std::move(path)), temporary_(temporary_name(path_)) {
  check_replaceable(where_, path_);
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
  check_replaceable(where_, path_);  // another object may have appeared while the file was written
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) fail("replace");
  temporary_.clear();
  sync_folder(where_, folder_of(path_));
}

void AtomicFile::close_file() {
  // Closed in either case: Linux releases the descriptor even if close() reports an error.
  if (::close(std::exchange(file_, -1)) != 0) fail("write");
}

void AtomicFile::fail(const char* action) const {
  throw_error<CheckpointError>(where_, "cannot {} \"{}\": {}", action, path_, std::strerror(errno));
}

std::string irregular_file(const std::string& path) {
  struct stat found = {};
  // If lstat() fails, replacing the path will fail too, with the system's reason.
  if (::lstat(path.c_str(), &found) != 0 || S_ISREG(found.st_mode)) return {};
  if (S_ISDIR(found.st_mode)) return "a folder";
  if (S_ISLNK(found.st_mode)) return "a link";
  if (S_ISFIFO(found.st_mode)) return "a pipe";
  return S_ISSOCK(found.st_mode) ? "a socket" : "a device";
}

void check_replaceable(const char* where, const std::string& path) {
  const std::string kind = irregular_file(path);
  TESSERA_CHECK_AS(CheckpointError, kind.empty(), where,
                   "cannot replace \"{}\": it is {}, and only a regular file is replaced; choose "
                   "another path",
                   path, kind);
}

void sync_folder(const char* where, const std::string& folder) {
  const int handle = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (handle < 0 && errno == EACCES) return;  // the folder is writable but not readable
  TESSERA_CHECK_AS(CheckpointError, handle >= 0, where, "cannot write \"{}\": {}", folder,
                   std::strerror(errno));
  const bool synced = ::fsync(handle) == 0 || errno == EINVAL;  // EINVAL: not supported here
  const int code = errno;
  ::close(handle);
  TESSERA_CHECK_AS(CheckpointError, synced, where, "cannot write \"{}\": {}", folder,
                   std::strerror(code));
}

bool is_temporary_of(std::string_view name, std::string_view file) {
  if (!name.starts_with(file) || !name.ends_with(kEnding)) return false;
  name.remove_prefix(file.size());
  if (name.size() != 1 + kRandomDigits + kEnding.size() || name.front() != '.') return false;
  return name.substr(1, kRandomDigits).find_first_not_of("0123456789abcdef") ==
         std::string_view::npos;
}

}  // namespace tessera
