// The memory that rank processes share: where it is, that it goes, and runs that have none.
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>

#include <catch2/catch.hpp>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tessera/tests/distributed/launch/program.h"
#include "tessera/tests/support/temporary_folder.h"
#include "tessera/tests/support/test_main.h"

namespace tessera::distributed {
namespace {

namespace fs = std::filesystem;

}  // namespace

TEST_CASE("ranks share memory that is gone when all of them are killed", "[launch]") {
  constexpr int kRanks = 3;
  const auto named = [] {  // what a segment with a name would add to
    const fs::path folder = "/dev/shm";
    return std::distance(fs::directory_iterator(folder), {});
  };
  const auto before = named();
  Program program(fmt::format("runs_on --ranks {}", kRanks));
  std::vector<pid_t> pids;
  for (int rank = 0; rank < kRanks; ++rank) pids.push_back(program.pid_of_rank(rank));
  for (const pid_t pid : pids) {
    const std::string maps = read_file(fmt::format("/proc/{}/maps", pid));
    CHECK(count_of(maps, "memfd:tessera-") == kRanks);  // its own, and those of the others
    for (const auto& file : fs::directory_iterator(fmt::format("/proc/{}/fd", pid))) {
      std::error_code closed_meanwhile;
      const fs::path target = fs::read_symlink(file.path(), closed_meanwhile);
      CHECK(count_of(target.string(), "tessera-") == 0);
    }
  }
  while (program.left_files() && program.seconds() < 20)  // the folder through which they met
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  pids.push_back(program.pid());
  for (const pid_t pid : pids) kill(pid, SIGKILL);
  CHECK(WIFSIGNALED(program.wait()));
  program.check_nothing_left();
  CHECK(named() == before);
}

TEST_CASE("a machine with a tiny /dev/shm needs none", "[launch]") {
  // In a mount namespace, where the program is another user's own root.
  const tessera::testing::TemporaryFolder folder;
  const std::string script = folder / "script";
  std::ofstream(script) << "mount -t tmpfs -o size=4k tmpfs /dev/shm && exec \"$@\"\n";
  const std::string through = "unshare --map-root-user --mount sh " + script;
  if (std::system((through + " true 2>/dev/null").c_str()) != 0) {
    return tessera::testing::skip("this machine does not allow namespaces");
  }
  Program program("ok --ranks 4", through);
  CHECK(program.exit_code() == 0);
  CHECK(count_of(program.output(), "warning") == 0);
  program.check_nothing_left();
}

TEST_CASE("ranks that may not share memory say so, and use TCP", "[launch]") {
  Program program("ok --ranks 3", "prlimit --fsize=300000");
  CHECK(program.exit_code() == 0);
  CHECK(count_of(program.output(), "warning: [connect] shared memory needs ") == 3);
  for (int rank = 0; rank < 3; ++rank)
    CHECK(count_of(program.output(),
                   fmt::format("; messages between rank {} and others of its host go by TCP, which "
                               "is slower\n",
                               rank)) == 1);
  program.check_nothing_left();
}

}  // namespace tessera::distributed
