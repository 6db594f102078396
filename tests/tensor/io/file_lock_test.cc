#include "tessera/tensor/io/file_lock.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <filesystem>
#include <optional>
#include <thread>
#include <utility>

#include "tessera/tensor/error.h"
#include "tessera/tests/support/throws.h"
#include "tessera/tests/tensor/io/safetensors_support.h"

namespace tessera::testing {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::Contains;

std::string lock_text(const std::string& path) {
  return thrown<StateError>([&] { lock_file("test", path, "thing"); });
}

std::string holder(pid_t pid) {
  std::array<char, 256> host{};
  REQUIRE(gethostname(host.data(), host.size() - 1) == 0);
  return "process " + std::to_string(pid) + " on " + host.data();
}

TEST_CASE("one has the lock, others are told who, and it goes without a trace") {
  const std::string path = temporary_path("one", "lock");
  {
    FileLock first = lock_file("test", path, "thing");
    const FileLock moved = std::move(first);
    CHECK_FALSE(try_lock_file("test", path, "thing"));
    CHECK(lock_text(path) == "[test] \"thing\" is in use by " + holder(getpid()) +
                                 "; wait until that has ended, or choose another path");
    CHECK(fs::exists(path));
  }
  CHECK_FALSE(fs::exists(path));
  CHECK(try_lock_file("test", path, "thing"));
}

TEST_CASE("a process that is killed releases its lock, and not before") {
  const std::string path = temporary_path("killed", "lock");
  std::array<int, 2> ready{};
  REQUIRE(pipe(ready.data()) == 0);
  const pid_t pid = fork();
  if (pid == 0) {
    const FileLock lock = lock_file("test", path, "thing");
    if (write(ready[1], "x", 1) == 1) pause();
    _exit(1);
  }
  char byte = 0;
  REQUIRE(read(ready[0], &byte, 1) == 1);
  CHECK_THAT(lock_text(path), Contains(holder(pid)));
  REQUIRE(kill(pid, SIGKILL) == 0);
  REQUIRE(waitpid(pid, nullptr, 0) == pid);
  CHECK_THAT(read_bytes(path), Contains(holder(pid)));
  {
    const FileLock lock = lock_file("test", path, "thing");
    CHECK_THAT(read_bytes(path), Contains(holder(getpid())));
  }
  CHECK_FALSE(fs::exists(path));
  for (const int end : ready) close(end);
}

TEST_CASE("no two have the lock at once, though each removes its file") {
  const std::string path = temporary_path("many", "lock");
  const std::string inside = path + ".inside";
  std::array<pid_t, 3> children{};
  for (pid_t& child : children) {
    child = fork();
    if (child != 0) continue;
    int alone = 0;
    while (alone < 100) {
      const auto lock = try_lock_file("test", path, "thing");
      if (!lock) continue;
      if (mkdir(inside.c_str(), 0700) != 0) _exit(1);  // another process is inside
      std::this_thread::yield();
      if (rmdir(inside.c_str()) != 0) _exit(1);
      ++alone;
    }
    _exit(0);
  }
  for (const pid_t child : children) {
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
  }
}

TEST_CASE("what is no lock is not made one") {
  const std::string path = temporary_path("foreign", "lock");
  const auto refused = [&] {
    return thrown<CheckpointError>([&] { lock_file("test", path, "thing"); });
  };
  write_bytes(path, "my notes");
  CHECK(refused() ==
        "[test] cannot lock \"thing\": " + path + " is no lock of tessera; choose another path");
  CHECK(read_bytes(path) == "my notes");
  fs::rename(path, path + ".notes");
  fs::create_symlink("lock.notes", path);
  CHECK_THAT(refused(), Contains("cannot lock \"thing\" by " + path + ": "));
  CHECK(read_bytes(path + ".notes") == "my notes");
  CHECK(thrown<CheckpointError>([&] { lock_file("test", path + ".d/lock", "thing"); }) ==
        "[test] cannot lock \"thing\" by " + path + ".d/lock: No such file or directory");
}

TEST_CASE("a lock that cannot name its holder leaves no file") {
  const std::string path = temporary_path("full", "lock");
  rlimit before = {};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  const rlimit none = {.rlim_cur = 0, .rlim_max = before.rlim_max};
  const auto ended_by = signal(SIGXFSZ, SIG_IGN);
  REQUIRE(setrlimit(RLIMIT_FSIZE, &none) == 0);
  const std::string error = thrown<CheckpointError>([&] { lock_file("test", path, "thing"); });
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, ended_by);
  CHECK(error == "[test] cannot lock \"thing\" by " + path + ": File too large");
  CHECK_FALSE(fs::exists(path));
}

TEST_CASE("the lock of a folder is in it, that of a file beside it") {
  CHECK(folder_lock_path("/a/b") == "/a/b/.tessera-lock");
  CHECK(file_lock_path("/a/b.txt") == "/a/.b.txt.tessera-lock");
}

}  // namespace
}  // namespace tessera::testing
