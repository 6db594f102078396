// The parts below launch and the local group when something goes wrong: a rank that fails while
// data moves, no space, no process, a signal that some ranks do not handle yet.
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "tessera/distributed/launch/launch_folder.h"
#include "tessera/distributed/launch/signal_watch.h"
#include "tessera/distributed/launch/spawn.h"
#include "tessera/distributed/launch/stop_signal.h"
#include "tessera/distributed/store/store.h"
#include "tessera/distributed/transports/local_barrier.h"
#include "tessera/distributed/transports/process_group_gloo.h"
#include "tessera/tests/support/temporary_folder.h"
#include "tessera/tests/support/test_main.h"

namespace tessera::distributed {
namespace {

using Catch::Matchers::Contains;

}  // namespace

TEST_CASE("a rank that fails while data moves takes the others with it", "[local]") {
  LocalBarriers barriers({0, 1, 2}, std::chrono::seconds(60));
  std::vector<std::exception_ptr> errors(3);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      std::byte memory[1] = {};
      // One element that cannot be averaged: only the last rank has something to reduce.
      ResolvedCollective call{
          .kind = CollectiveKind::kAllReduce, .reduce = ReduceOp::kAverage, .dtype = DType::kU8};
      call.members = {{memory, memory, 1, 1}};
      call.site.rank = rank;
      call.site.op = "all_reduce";
      call.site.sequence = 3;
      try {
        barriers.perform(call, cpu_mover());
      } catch (...) {
        errors[static_cast<std::size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) REQUIRE(error != nullptr);
  CHECK_THROWS_AS(std::rethrow_exception(errors[2]), InvalidArgument);
  for (const std::size_t rank : {0, 1}) {
    CHECK_THROWS_AS(std::rethrow_exception(errors[rank]), CollectiveAborted);
    CHECK_THROWS_WITH(std::rethrow_exception(errors[rank]),
                      Contains("was aborted: rank 2 failed: all_reduce #3 of group \"\" could not "
                               "move its data"));
  }
  CHECK_THROWS_AS(barriers.perform({}, cpu_mover()), CollectiveAborted);
}

TEST_CASE("the page of a rank takes its space before it is written", "[launch]") {
  const testing::TemporaryFolder folder;
  RankPage::create(folder.path(), 0);
  struct stat file = {};
  REQUIRE(stat((folder / "page-0").c_str(), &file) == 0);
  CHECK(static_cast<std::size_t>(file.st_blocks) * 512 >= sizeof(RankPage));
  rlimit before = {};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto action = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 4096;
  setrlimit(RLIMIT_FSIZE, &small);
  std::string text;
  try {
    RankPage::create(folder.path(), 1);
  } catch (const Error& error) {
    text = error.what();
  }
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, action);
  CHECK_THAT(text, Contains("[launch] cannot reserve ") && Contains("/page-1: File too large; ") &&
                       Contains("set TMPDIR"));
}

TEST_CASE("the next start removes the folders of launchers that were killed, and no others",
          "[launch]") {
  namespace fs = std::filesystem;
  const testing::TemporaryFolder base, elsewhere;
  const char* usual = std::getenv("TMPDIR");
  const std::string before = usual == nullptr ? "" : usual;
  setenv("TMPDIR", base.path().c_str(), 1);
  const auto count = [&] {
    return std::distance(fs::directory_iterator(base.path()), fs::directory_iterator());
  };
  const auto start_and_die = [] {
    const pid_t pid = fork();
    if (pid == 0) {
      const LaunchFolder folder;
      raise(SIGKILL);
    }
    REQUIRE(waitpid(pid, nullptr, 0) == pid);
  };
  start_and_die();
  const std::string killed = fs::directory_iterator(base.path())->path().string();
  REQUIRE(fs::exists(killed + "/.tessera-lock"));
  // Owned by another program: by the name alone, and by a link to one that another start would
  // remove.
  fs::create_directories(base / "tessera-notes/chapters");
  std::ofstream(base / "tessera-list") << "mine";
  fs::copy(killed, elsewhere / "kept", fs::copy_options::recursive);
  fs::create_directory_symlink(elsewhere / "kept", base / "tessera-link");
  {
    const LaunchFolder first;
    CHECK_FALSE(fs::exists(killed));
    start_and_die();  // removes nothing: the first is in use
    CHECK(fs::exists(first.path() + "/.tessera-lock"));
    LaunchFolder second;
    CHECK(count() == 3 + 2);
    second.remove();
    CHECK_FALSE(fs::exists(second.path()));
  }
  CHECK(count() == 3);
  CHECK(fs::exists(base / "tessera-notes/chapters"));
  CHECK(fs::exists(elsewhere / "kept/.tessera"));
  if (usual == nullptr)
    unsetenv("TMPDIR");
  else
    setenv("TMPDIR", before.c_str(), 1);
}

TEST_CASE("a rank that cannot say that it is there says why", "[connect]") {
  const testing::TemporaryFolder base;
  const std::string folder = base / "missing";
  CHECK_THROWS_WITH(make_gloo_group("g", {.rank = 0,
                                          .size = 2,
                                          .store = std::make_shared<FolderStore>(folder),
                                          .timeout = std::chrono::milliseconds(50)}),
                    Contains("/missing/key-joined-0 cannot be written: No such file or directory"));
}

TEST_CASE("a rank's environment has what launch() tells it, and not the user's secret",
          "[launch]") {
  setenv(kSecretVariable, "the secret of this test", 1);
  setenv("TESSERA_SECRET_OF_ANOTHER", "kept", 1);
  const std::vector<std::string> all =
      environment_with({.rank = 3, .credentials = {.secret = "for launch()", .job = "j"}});
  unsetenv(kSecretVariable);
  unsetenv("TESSERA_SECRET_OF_ANOTHER");
  const auto has = [&all](const std::string& entry) {
    return std::find(all.begin(), all.end(), entry) != all.end();
  };
  CHECK(has("TESSERA_LAUNCH_RANK=3"));
  CHECK(has("TESSERA_LAUNCH_SECRET=for launch()"));
  CHECK(has("TESSERA_LAUNCH_JOB=j"));
  CHECK(has("TESSERA_SECRET_OF_ANOTHER=kept"));
  CHECK_FALSE(has("TESSERA_SECRET=the secret of this test"));
}

TEST_CASE("a process that cannot be started leaves no child behind", "[launch]") {
#if defined(__SANITIZE_THREAD__)
  tessera::testing::skip("the thread sanitizer's spawn does not report that exec failed");
  return;
#endif
  const std::string too_long(std::size_t{1} << 20, 'x');
  CHECK_THROWS_WITH(spawn_self({"self", too_long}, {}),
                    Contains("cannot start a rank process: Argument list too long"));
  errno = 0;
  CHECK(waitpid(-1, nullptr, WNOHANG) == -1);
  CHECK(errno == ECHILD);
}

TEST_CASE("a signal is told to the ranks once all of them heed signals, and then to all",
          "[launch]") {
  const SignalWatch watch;
  StopSignal first, second;
  const auto hand_on = [&] { return hand_on_signal({&first, &second}); };
  const auto told = [&](int signal) { return first.asked == signal && second.asked == signal; };
  first.heeded = true;
  second.heeded = true;
  CHECK_FALSE(hand_on());  // there is none yet
  second.heeded = false;
  REQUIRE(raise(SIGTERM) == 0);
  CHECK_FALSE(hand_on());
  CHECK(told(0));
  CHECK(SignalWatch::received() == SIGTERM);  // it still has its usual effect
  second.heeded = true;
  CHECK(hand_on());
  CHECK(told(SIGTERM));
  CHECK(SignalWatch::received() == 0);
}

}  // namespace tessera::distributed
