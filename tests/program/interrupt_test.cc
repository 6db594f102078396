// Signals to a run: its results are kept, the last line describes them, and a second signal ends it
// at once.

#include <signal.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "tessera/tests/models/data/test_data.h"
#include "tessera/tests/program/run_program.h"
#include "tessera/tests/support/test_main.h"

namespace tessera::testing {
namespace {

using Catch::Matchers::Contains;
using Clock = std::chrono::steady_clock;
using Words = std::vector<std::string>;

std::size_t steps_done(const std::string& out) {
  return lines_of(read_file(out + "/metrics.jsonl")).size();
}

bool has(const std::string& out, const std::string& name) {
  return std::filesystem::exists(out + "/" + name);
}

Words endless(const std::string& out, const std::string& launch, const Words& more = {}) {
  Words words = train_tiny("gpt", {"--steps", "9999999", "--launch", launch, "--out", out});
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// Checks a language-model run in `out` that the signal ended, with this exit code.
void check_interrupted(const ProgramResult& result, const std::string& out, int signal) {
  INFO("standard error: " << result.err);
  CHECK(result.exit_code == 128 + signal);
  REQUIRE(lines_of(result.err).size() == 1);
  const std::string steps = std::to_string(steps_done(out));
  CHECK(lines_of(result.err).back() ==
        "tessera: interrupted after step " + steps + "; " + out +
            " has weights, metrics and report of these steps: try them with tessera eval --run " +
            out + " or tessera generate --run " + out +
            "; the same command with --resume auto goes on at step " +
            std::to_string(steps_done(out) + 1));
  CHECK_THAT(result.out, Contains("trained " + steps + " steps in ") && !Contains("sample:") &&
                             !Contains("validation loss"));
  CHECK_FALSE(has(out, "failure.txt"));
  CHECK_FALSE(has(out, "sample.txt"));
  CHECK_THAT(read_file(out + "/report.html"), Contains("after step " + steps));
}

TEST_CASE("a signal ends a run after the step in progress, and what was done is kept") {
  const auto [launch, signal] =
      GENERATE(table<std::string, int>({{"threads", SIGINT}, {"processes", SIGTERM}}));
  const std::string out = fresh_folder("kept");
  Program program(endless(out, launch));
  REQUIRE(eventually(std::chrono::seconds(60), [&] { return steps_done(out) > 2; }));
  kill(program.pid(), signal);
  check_interrupted(program.wait(), out, signal);
  CHECK(eventually(std::chrono::seconds(5), [&] { return program.alive().empty(); }));
  const ProgramResult eval = run_program({"eval", "--run", out});
  CHECK(eval.exit_code == 0);
  CHECK_THAT(eval.out, Contains("validation loss "));
}

TEST_CASE("Ctrl-C at a terminal, which all processes of the run get, is one interruption") {
  const std::string out = fresh_folder("group");
  Program program(endless(out, "processes"));
  REQUIRE(eventually(std::chrono::seconds(60), [&] { return steps_done(out) > 2; }));
  kill(-program.pid(), SIGINT);
  check_interrupted(program.wait(), out, SIGINT);
}

TEST_CASE("an interrupted run of images keeps metrics and report, without --out nothing is kept") {
  const std::string data = fresh_folder("data");
  write_fashion_mnist(data, {.train = 200, .test = 20});
  Words words = {"train",   "mlp",     "--data",   data,      "--hidden", "8",
                 "--steps", "9999999", "--launch", "threads", "--ranks",  "3"};
  const std::string out = fresh_folder("images");
  Words kept = words;
  kept.insert(kept.end(), {"--out", out});
  Program program(kept);
  REQUIRE(eventually(std::chrono::seconds(60), [&] { return steps_done(out) > 2; }));
  kill(program.pid(), SIGTERM);
  const ProgramResult result = program.wait();
  CHECK(result.exit_code == 128 + SIGTERM);
  CHECK(result.err == "tessera: interrupted after step " + std::to_string(steps_done(out)) + "; " +
                          out +
                          " has weights, metrics and report of these steps: try them with tessera "
                          "eval --run " +
                          out + "; the same command with --resume auto goes on at step " +
                          std::to_string(steps_done(out) + 1) + "\n");
  CHECK(run_program({"eval", "--run", out}).exit_code == 0);
  CHECK_THAT(read_file(out + "/report.html"), Contains("after step "));

  Program other(words);
  REQUIRE(eventually(std::chrono::seconds(60), [&] { return !other.output().empty(); }));
  kill(other.pid(), SIGINT);
  const ProgramResult none = other.wait();
  CHECK(none.exit_code == 128 + SIGINT);
  CHECK_THAT(none.err, Contains("nothing is kept of a run without --out; the same command"));
}

TEST_CASE("a second signal ends a run at once whose step does not end") {
  const std::string out = fresh_folder("stuck");
  Program program(endless(out, "processes"));
  REQUIRE(eventually(std::chrono::seconds(60), [&] { return steps_done(out) > 2; }));
  const std::vector<pid_t> ranks = program.children();
  REQUIRE(ranks.size() == 2);
  kill(ranks[1], SIGSTOP);
  kill(program.pid(), SIGINT);
  std::this_thread::sleep_for(std::chrono::milliseconds(600));
  CHECK(program.alive().size() == 3);
  const auto start = Clock::now();
  kill(program.pid(), SIGINT);
  CHECK(program.wait().exit_code == -SIGINT);
  CHECK(Clock::now() - start < std::chrono::seconds(1));
  CHECK(eventually(std::chrono::seconds(5), [&] { return program.alive().empty(); }));
}

TEST_CASE("a run that is the first process of a container is interrupted like any other") {
  if (std::system("unshare --fork --pid true 2>/dev/null") != 0)
    return skip("needs the right to make process namespaces");
  const auto [launch, signal] =
      GENERATE(table<std::string, int>({{"threads", SIGTERM}, {"processes", SIGINT}}));
  const std::string out = fresh_folder("first");
  Program program(endless(out, launch),
                  {.through = {"unshare", "--fork", "--pid", "--kill-child"}});
  REQUIRE(eventually(std::chrono::seconds(60), [&] { return steps_done(out) > 2; }));
  const std::vector<pid_t> first = program.children();
  REQUIRE(first.size() == 1);
  kill(first.front(), signal);
  check_interrupted(program.wait(), out, signal);
}

TEST_CASE("before the first step the first process of a container ends at once") {
  if (std::system("unshare --fork --pid true 2>/dev/null") != 0)
    return skip("needs the right to make process namespaces");
  // The run waits for a node that never connects.
  Program program(train_tiny("gpt", {"--nnodes", "2", "--rdzv-endpoint", "127.0.0.1:29477"}),
                  {.through = {"unshare", "--fork", "--pid", "--kill-child"}});
  REQUIRE(eventually(std::chrono::seconds(60), [&] {
    return program.children().size() == 1 &&
           std::system("bash -c ': < /dev/tcp/127.0.0.1/29477' 2>/dev/null") == 0;
  }));
  kill(program.children().front(), SIGTERM);
  CHECK(program.wait().exit_code == 128 + SIGTERM);
}

}  // namespace
}  // namespace tessera::testing
