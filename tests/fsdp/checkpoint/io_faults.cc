#include "tessera/tests/fsdp/checkpoint/io_faults.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <mutex>

namespace tessera::testing {
namespace {

std::atomic<int> calls = 0;
int wanted = 0;  // 0: not armed
IoFault fault = IoFault::kNone;
std::mutex log_mutex;
std::vector<std::string> log;

void note(const std::string& call) {
  const std::lock_guard lock(log_mutex);
  if (wanted != 0) log.push_back(call);
}

std::string path_of(int file) {
  char path[4096];
  const std::string link = "/proc/self/fd/" + std::to_string(file);
  const ssize_t size = ::readlink(link.c_str(), path, sizeof(path));
  return {path, static_cast<std::size_t>(size > 0 ? size : 0)};
}

// True if this call fails, with errno set.
bool fails() {
  if (wanted == 0 || ++calls != wanted) return false;
  switch (fault) {
    case IoFault::kKill:
      ::kill(::getpid(), SIGKILL);
      ::pause();
      return true;
    case IoFault::kNoSpace:
      errno = ENOSPC;
      return true;
    case IoFault::kIoError:
      errno = EIO;
      return true;
    case IoFault::kShort:
    case IoFault::kNone:
      return false;
  }
  return false;
}

template <class... Args>
long call(long number, Args... args) {
  return fails() ? -1 : ::syscall(number, args...);
}

}  // namespace

std::string io_fault_name(IoFault kind) {
  switch (kind) {
    case IoFault::kKill:
      return "kill";
    case IoFault::kNoSpace:
      return "no space";
    case IoFault::kIoError:
      return "I/O error";
    case IoFault::kShort:
      return "short write";
    case IoFault::kNone:
      break;
  }
  return "none";
}

void arm_io_fault(IoFault kind, int number) {
  fault = kind;
  calls = 0;
  log.clear();
  wanted = number;
}

int io_calls() { return calls; }
std::vector<std::string> io_log() { return log; }

}  // namespace tessera::testing

// The binary's own, in front of the C library's.
extern "C" {

int open(const char* path, int flags, ...) {
  std::va_list list;
  va_start(list, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(list, mode_t) : 0;
  va_end(list);
  return static_cast<int>(tessera::testing::call(SYS_openat, AT_FDCWD, path, flags, mode));
}
int fsync(int file) {
  tessera::testing::note("fsync " + tessera::testing::path_of(file));
  return static_cast<int>(tessera::testing::call(SYS_fsync, file));
}
int rename(const char* from, const char* to) noexcept {
  tessera::testing::note(std::string("rename ") + from + " " + to);
  return static_cast<int>(tessera::testing::call(SYS_rename, from, to));
}
int mkdir(const char* path, mode_t mode) noexcept {
  tessera::testing::note(std::string("mkdir ") + path);
  return static_cast<int>(tessera::testing::call(SYS_mkdir, path, mode));
}
ssize_t write(int file, const void* data, std::size_t bytes) {
  using namespace tessera::testing;
  if (file <= 2) return ::syscall(SYS_write, file, data, bytes);
  note("write " + path_of(file));
  if (fails()) return -1;
  const bool is_short = fault == IoFault::kShort && calls == wanted && wanted != 0 && bytes > 1;
  return ::syscall(SYS_write, file, data, is_short ? bytes / 2 : bytes);
}

}  // extern "C"
