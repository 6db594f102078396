#include "tessera/tools/program/failure_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "tessera/tensor/check.h"
#include "tessera/tools/program/run_folder.h"

namespace tessera::tools {
namespace {

constexpr std::size_t kRoom = 16 * 1024;  // more than the text of any failure

// True if the open file is the one at the path. The file there may be an earlier run's.
bool is_at(int file, const std::string& path) {
  struct stat mine = {}, named = {};
  return ::fstat(file, &mine) == 0 && ::lstat(path.c_str(), &named) == 0 &&
         mine.st_dev == named.st_dev && mine.st_ino == named.st_ino;
}

}  // namespace

FailureFile::FailureFile(const std::string& staging, const std::string& folder)
    : path_(folder + "/" + kFailureFile) {
  const std::string made = staging + "/" + kFailureFile;
  file_ = ::open(made.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file_ < 0)
    throw_error<Error>("out", "{} cannot be written: {}; choose another folder", made,
                       std::strerror(errno));
  // Reserves space beyond its end. File systems without reservations go without.
  if (::fallocate(file_, FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(kRoom)) == 0 || errno != ENOSPC)
    return;
  ::close(file_);
  throw_error<Error>("out", "{} cannot be written: {}; make room", made, std::strerror(ENOSPC));
}

FailureFile::~FailureFile() {
  if (!written_ && is_at(file_, path_)) ::unlink(path_.c_str());
  ::close(file_);
}

void FailureFile::write(const std::string& text) {
  const std::string line = text.substr(0, kRoom - 1) + "\n";
  std::size_t done = 0;
  while (done < line.size()) {
    const ssize_t count = ::write(file_, line.data() + done, line.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    done += static_cast<std::size_t>(count);
  }
  written_ = done > 0;
}

}  // namespace tessera::tools
