// What happens to a run when something happens to one of its ranks, in every phase of training: how
// soon the others end, and what is reported.

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "tessera/tests/distributed/launch/program.h"
#include "tessera/tests/support/test_main.h"

namespace tessera {
namespace {

using Catch::Matchers::Contains;
using distributed::Program;

// Of the runs in which a rank is stopped; the others have the default of five minutes.
constexpr double kTimeout = 2;

std::string words_of(const std::string& phase, const std::string& fault, int ranks) {
  std::string words =
      fmt::format("--phase {} --fault {} --ranks {} --launch processes", phase, fault, ranks);
  if (fault == "stop") words += fmt::format(" --timeout {}", kTimeout);
  return words;
}

// What the report says of rank 1.
std::string account_of(const std::string& phase, const std::string& fault) {
  if (fault == "kill") return "rank 1 was killed by signal 9 (Killed)";
  if (fault == "exit") return "rank 1 exited with code 0";
  if (fault == "stop")
    return "rank 1 was stopped by signal 19 (Stopped (signal)) and did not go on";
  // Before launch, what a program throws ends its process.
  if (phase == "rendezvous") return "rank 1 was killed by signal 6 (Aborted)";
  return fault == "throw" ? "rank 1: the data ran out" : "rank 1: [allocator] no room on cpu";
}

// Where the others may have stood, if they waited for the rank: in the collective of the phase, or
// still in the one before, which a rank may have left earlier than another.
std::vector<std::string> places_of(const std::string& phase) {
  const std::string group = "all_reduce #1 of group \"everybody\"";
  if (phase == "group") return {group, "all_gather"};
  if (phase == "overlap") return {"of group \"left\"", "of group \"right\"", "all_gather"};
  if (phase == "broadcast") return {"broadcast", group};
  if (phase == "barrier") return {"barrier", "broadcast"};
  if (phase == "forward" || phase == "backward" || phase == "optimizer") return {"in step 3"};
  return {};
}

// Seconds from the fault to the end of the run. `words`: the program's options.
double fail(const std::string& phase, const std::string& fault, const std::string& words) {
  Program program(words, {}, "tests/fsdp/faults/fault_program");
  program.wait_for("the fault happens");
  const double begin = program.seconds();
  const int code = program.exit_code();
  const double seconds = program.seconds() - begin;
  CAPTURE(phase, fault, seconds, program.output());
  program.check_nothing_left();
  if (fault == "slow") {
    CHECK(code == 0);
    CHECK_THAT(program.output(), Contains("trained"));
    return seconds;
  }
  CHECK(code != 0);
  CHECK(seconds < (fault == "stop" ? kTimeout + 2 : 5));
  CHECK_THAT(program.output(), Contains(account_of(phase, fault)));
  if (fault == "kill" || fault == "exit" || fault == "stop") {
    const std::vector<std::string> places = places_of(phase);
    const auto is_named = [&](const std::string& place) {
      return program.output().find(place) != std::string::npos;
    };
    CHECK((places.empty() || std::any_of(places.begin(), places.end(), is_named)));
    if (!places.empty()) CHECK_THAT(program.output(), Contains("in step 3"));
  }
  return seconds;
}

// Of each case; the test that runs at night has more.
int repetitions(const char* name) {
  const char* const text = std::getenv(name);
  return text == nullptr ? 1 : std::stoi(text);
}

void print_times(const std::string& fault, const std::string& phase, std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  fmt::print("{:7} in {:10} median {:5.2f} s, worst {:5.2f} s\n", fault, phase,
             seconds[seconds.size() / 2], seconds.back());
}

TEST_CASE("a fault of one rank ends the run soon, and the report says where it was") {
  const std::string fault = GENERATE("kill", "stop", "throw", "exit", "memory", "slow");
  const std::string phase = GENERATE("rendezvous", "group", "forward", "backward", "broadcast",
                                     "barrier", "optimizer", "shutdown");
  std::vector<double> seconds;
  for (int i = 0; i < repetitions("TESSERA_FAULT_REPETITIONS"); ++i)
    seconds.push_back(fail(phase, fault, words_of(phase, fault, 3)));
  print_times(fault, phase, std::move(seconds));
}

TEST_CASE("a fault while two groups that overlap have operations under way ends the run soon") {
  const std::string fault = GENERATE("kill", "stop", "throw", "slow");
  constexpr int kMoments = 12;
  std::vector<double> seconds;
  for (int i = 0; i < repetitions("TESSERA_OVERLAP_REPETITIONS"); ++i) {
    const std::string words =
        fmt::format("{} --after {}", words_of("overlap", fault, 4), (i + 5) % kMoments);
    seconds.push_back(fail("overlap", fault, words));
  }
  print_times(fault, "overlap", std::move(seconds));
}

}  // namespace
}  // namespace tessera
