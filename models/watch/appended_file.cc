#include "tessera/models/watch/appended_file.h"

#include <fcntl.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "tessera/tensor/check.h"

namespace tessera::models::watch {
namespace {

// The position behind the last line end before `end`; 0 if there is none, -1 for an error.
off_t last_line_end(int file, off_t end) {
  std::array<char, 4096> piece{};
  while (end > 0) {
    const off_t from = std::max<off_t>(0, end - static_cast<off_t>(piece.size()));
    const ssize_t got = ::pread(file, piece.data(), static_cast<std::size_t>(end - from), from);
    if (got < 0 && errno == EINTR) continue;
    if (got != end - from) return -1;
    const std::string_view text(piece.data(), static_cast<std::size_t>(got));
    const std::size_t line_end = text.rfind('\n');
    if (line_end != std::string_view::npos) return from + static_cast<off_t>(line_end) + 1;
    end = from;
  }
  return 0;
}

// False for an error.
bool remove_half_line(int file) {
  const off_t end = ::lseek(file, 0, SEEK_END);
  if (end <= 0) return true;  // or not a file
  const off_t whole = last_line_end(file, end);
  return whole == end || (whole >= 0 && ::ftruncate(file, whole) == 0);
}

}  // namespace

AppendedFile::AppendedFile(const char* where, std::string path, AppendedStart start)
    : where_(where), path_(std::move(path)) {
  const bool is_new = start == AppendedStart::kNew;
  file_ =
      ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_APPEND | (is_new ? O_EXCL : 0), 0644);
  const bool is_usable = file_ >= 0 && (is_new || remove_half_line(file_));
  if (is_usable) return;
  const int error = errno;
  if (file_ >= 0) ::close(file_);
  throw_error<Error>(where_, "{} cannot be written: {}; choose another folder", path_,
                     std::strerror(error));
}

AppendedFile::~AppendedFile() {
  if (file_ >= 0) ::close(file_);
}

AppendedFile::AppendedFile(AppendedFile&& other) noexcept
    : where_(other.where_), path_(std::move(other.path_)), file_(std::exchange(other.file_, -1)) {}

AppendedFile& AppendedFile::operator=(AppendedFile&& other) noexcept {
  where_ = other.where_;
  std::swap(path_, other.path_);
  std::swap(file_, other.file_);
  return *this;
}

void AppendedFile::append(const std::string& record) {
  const off_t before = ::lseek(file_, 0, SEEK_END);
  for (std::size_t done = 0; done < record.size();) {
    const ssize_t written = ::write(file_, record.data() + done, record.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      const int error = errno;
      // A partial record followed by others would stop readers for good.
      const bool mended = done == 0 || ::ftruncate(file_, before) == 0;
      throw_error<Error>(where_, "{} cannot be written: {}{}; make room", path_,
                         std::strerror(error), mended ? "" : ", and ends in half a record");
    }
    done += static_cast<std::size_t>(written);
  }
}

}  // namespace tessera::models::watch
