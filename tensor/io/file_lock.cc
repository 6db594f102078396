#include "tessera/tensor/io/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <thread>
#include <utility>

#include "tessera/tensor/check.h"

namespace tessera {
namespace {

// The first line of a lock's file; the second line names the holder.
constexpr std::string_view kHead = "tessera lock\n";
constexpr const char* kName = "tessera-lock";
// The holder writes its name right after it gets the lock, so reading it may need several attempts.
constexpr int kReads = 20;
constexpr std::chrono::milliseconds kBetweenReads{5};

class Descriptor {
 public:
  explicit Descriptor(int file) : file_(file) {}
  ~Descriptor() {
    if (file_ >= 0) ::close(file_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return file_; }
  int release() { return std::exchange(file_, -1); }

 private:
  int file_;
};

// True if a lock created the file, whether or not the holder has written its name yet.
bool is_lock(int file) {
  struct stat found = {};
  if (::fstat(file, &found) != 0 || !S_ISREG(found.st_mode)) return false;
  std::array<char, kHead.size()> front{};
  const ssize_t have = ::pread(file, front.data(), front.size(), 0);
  return have >= 0 &&
         kHead.starts_with(std::string_view(front.data(), static_cast<std::size_t>(have)));
}

// False if the holder removed the file after we had opened it: then our lock protects nothing.
bool is_at(int file, const std::string& path) {
  struct stat mine = {}, named = {};
  return ::fstat(file, &mine) == 0 && ::lstat(path.c_str(), &named) == 0 &&
         mine.st_dev == named.st_dev && mine.st_ino == named.st_ino;
}

bool write_holder(int file) {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '?';
  const std::string text = fmt::format("{}process {} on {}\n", kHead, ::getpid(), host.data());
  return ::ftruncate(file, 0) == 0 &&
         ::pwrite(file, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size());
}

std::string holder_of(const std::string& path) {
  for (int i = 0; i < kReads; ++i) {
    std::ifstream file(path);
    std::string head, holder;
    if (std::getline(file, head) && std::getline(file, holder)) return holder;
    std::this_thread::sleep_for(kBetweenReads);
  }
  return "another process";
}

}  // namespace

FileLock::FileLock(int file, std::string path) : file_(file), path_(std::move(path)) {}

FileLock::FileLock(FileLock&& other) noexcept
    : file_(std::exchange(other.file_, -1)), path_(std::move(other.path_)) {}

FileLock::~FileLock() {
  if (file_ < 0) return;
  ::unlink(path_.c_str());  // before unlocking: afterwards it may be another holder's file
  ::close(file_);
}

std::optional<FileLock> try_lock_file(const char* where, const std::string& path,
                                      const std::string& subject) {
  const auto check = [&](bool good) {
    TESSERA_CHECK_AS(CheckpointError, good, where, "cannot lock \"{}\" by {}: {}", subject, path,
                     std::strerror(errno));
  };
  for (;;) {
    Descriptor file(
        ::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666));
    check(file.get() >= 0);
    TESSERA_CHECK_AS(CheckpointError, is_lock(file.get()), where,
                     "cannot lock \"{}\": {} is no lock of tessera; choose another path", subject,
                     path);
    if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK) return std::nullopt;
      check(errno == EINTR);
      continue;
    }
    if (!is_at(file.get(), path)) continue;
    FileLock lock(file.release(), path);  // removes the file too where the disk is full
    check(write_holder(lock.file_));
    return lock;
  }
}

FileLock lock_file(const char* where, const std::string& path, const std::string& subject) {
  if (std::optional<FileLock> lock = try_lock_file(where, path, subject)) return std::move(*lock);
  throw_error<StateError>(
      where, "\"{}\" is in use by {}; wait until that has ended, or choose another path", subject,
      holder_of(path));
}

std::string folder_lock_path(const std::string& folder) {
  return (std::filesystem::path(folder) / fmt::format(".{}", kName)).string();
}

std::string file_lock_path(const std::string& file) {
  const std::filesystem::path path(file);
  return (path.parent_path() / fmt::format(".{}.{}", path.filename().string(), kName)).string();
}

}  // namespace tessera
