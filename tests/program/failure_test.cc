// If a rank dies or throws, the whole run ends within seconds, and the message names the first
// failure.

#include <signal.h>
#include <sys/resource.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>

#include "tessera/tests/models/data/test_data.h"
#include "tessera/tests/program/run_program.h"

namespace tessera::testing {
namespace {

using Catch::Matchers::Contains;
using Clock = std::chrono::steady_clock;

// The rank of a process.
std::string rank_of(pid_t pid) {
  const std::string environment = read_file("/proc/" + std::to_string(pid) + "/environ");
  const std::string name = "TESSERA_LAUNCH_RANK=";
  const std::size_t at = environment.find(name);
  REQUIRE(at != std::string::npos);
  return environment.substr(at + name.size()).c_str();  // up to the zero
}

// A run that does not end by itself.
std::vector<std::string> endless(const std::string& out, const std::string& launch) {
  static const std::string data = [] {
    const std::string made = fresh_folder("data");
    write_fashion_mnist(made, {.train = 200, .test = 20});
    return made;
  }();
  return {"train",   "mlp",     "--data",  data, "--out",   out, "--hidden", "64,64",
          "--steps", "9999999", "--batch", "64", "--ranks", "4", "--launch", launch};
}

bool metrics_are_json(const std::string& metrics) {
  for (const std::string& line : lines_of(metrics))
    if (!nlohmann::json::accept(line)) return false;
  return true;
}

std::size_t steps_done(const std::string& out) {
  return lines_of(read_file(out + "/metrics.jsonl")).size();
}

TEST_CASE("kill -9 of one of four ranks ends the run within 5 s and is reported once") {
  const std::string out = fresh_folder("killed");
  Program program(endless(out, "processes"));
  REQUIRE(eventually(std::chrono::seconds(60), [&] { return steps_done(out) > 20; }));
  const std::vector<pid_t> ranks = program.children();
  REQUIRE(ranks.size() == 4);
  const std::size_t victim = GENERATE(0, 2);
  const std::string rank = rank_of(ranks[victim]);
  REQUIRE(kill(ranks[victim], SIGKILL) == 0);
  const auto killed = Clock::now();
  const ProgramResult result = program.wait();
  CHECK(Clock::now() - killed < std::chrono::seconds(5));
  INFO("standard error: " << result.err);
  CHECK(result.exit_code == 1);
  REQUIRE(failures_in(result.err).size() == 1);
  CHECK(lines_of(result.err).back() == failures_in(result.err).front());
  CHECK_THAT(result.err, Contains("rank " + rank + " was killed by signal 9"));
  // Only rank 0 prints something.
  CHECK((result.err.find("rank 0 printed:\n") != std::string::npos) == (rank == "0"));
  CHECK(result.err.find("rank 2 printed") == std::string::npos);
  CHECK(std::regex_search(result.err, std::regex("all_gather|reduce_scatter|all_reduce")));
  CHECK(eventually(std::chrono::seconds(5), [&] { return program.alive().empty(); }));
}

TEST_CASE("an exception on one rank ends the run within 5 s and is reported once") {
  const std::string launch = GENERATE("threads", "processes");
  const std::string out = fresh_folder("full");
  std::vector<std::string> words = endless(out, launch);
  words.insert(words.end(), {"--tensorboard", "off"});
  Program program(words);
  REQUIRE(eventually(std::chrono::seconds(60), [&] { return steps_done(out) > 20; }));
  // Rank 0 writes the metrics, from here on to a full file.
  rlimit full = {};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &full) == 0);
  full.rlim_cur = std::filesystem::file_size(out + "/metrics.jsonl");
  const auto start = Clock::now();
  for (const pid_t pid : program.alive()) REQUIRE(prlimit(pid, RLIMIT_FSIZE, &full, nullptr) == 0);
  const ProgramResult result = program.wait();
  INFO("standard error: " << result.err);
  CHECK(Clock::now() - start < std::chrono::seconds(5));
  CHECK(result.exit_code == 1);
  CHECK(failures_in(result.err).size() == 1);
  CHECK_THAT(lines_of(result.err).back(),
             Contains("rank 0") && Contains("metrics.jsonl cannot be written: File too large"));
  CHECK(eventually(std::chrono::seconds(5), [&] { return program.alive().empty(); }));
}

TEST_CASE("the ranks die with the program") {
  const std::string out = fresh_folder("orphans");
  Program program(endless(out, "processes"));
  REQUIRE(eventually(std::chrono::seconds(60), [&] { return steps_done(out) > 2; }));
  const std::vector<pid_t> before = program.alive();
  REQUIRE(before.size() >= 5);
  const pid_t parent = before.front();
  REQUIRE(kill(parent, SIGKILL) == 0);
  CHECK(program.wait().exit_code == -SIGKILL);
  CHECK(eventually(std::chrono::seconds(5), [&] { return program.alive().empty(); }));
}

TEST_CASE("kill -9 of a language run leaves metrics and events that can be read") {
  const std::string out = fresh_folder("cut");
  Program program(train_tiny("gpt", {"--steps", "9999999", "--out", out}));
  REQUIRE(eventually(std::chrono::seconds(60), [&] { return steps_done(out) > 10; }));
  for (const pid_t pid : program.alive()) kill(pid, SIGKILL);
  CHECK(program.wait().exit_code == -SIGKILL);
  const std::string metrics = read_file(out + "/metrics.jsonl");
  CHECK(metrics.back() == '\n');
  CHECK(metrics_are_json(metrics));
  int events = 0;
  for (const auto& entry : std::filesystem::directory_iterator(out))
    if (entry.path().filename().string().starts_with("events.out.tfevents."))
      events = count_events(entry.path());
  CHECK(events > 10);
}

TEST_CASE("a run that cannot converge says what to change") {
  std::vector<std::string> words = endless(fresh_folder("diverged"), "threads");
  words.insert(words.end(), {"--lr", "1e30"});
  const ProgramResult result = run_program(words);
  CHECK(result.exit_code == 1);
  CHECK(lines_of(result.err).size() == 1);
  CHECK_THAT(result.err, Contains("lower the learning rate"));
}

}  // namespace
}  // namespace tessera::testing
