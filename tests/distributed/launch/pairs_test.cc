// Pairs of independent jobs that are started at the same moment, on one host, by one user, with one
// folder for temporary files: each meets its own ranks only.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "tessera/tests/distributed/launch/program.h"
#include "tessera/tests/support/temporary_folder.h"

namespace tessera::distributed {
namespace {

using Catch::Matchers::Contains;

// The nightly test sets it.
int pairs() {
  const char* text = std::getenv("TESSERA_TEST_PAIRS");
  return text != nullptr ? std::atoi(text) : 4;
}

// How the ranks of a job find each other.
enum class Meeting { kFolder, kEndpoint };

struct Job {
  int number = 0;
  int ranks = 0;
  std::vector<std::unique_ptr<Program>> programs{};

  // One program that starts all ranks, or as under Slurm one for each: then the port at which they
  // meet follows from the number of the job.
  void start(Meeting meeting, const std::string& folder) {
    const std::string environment =
        fmt::format("env TESSERA_TEST_JOB={} TMPDIR={}", number, folder);
    if (meeting == Meeting::kFolder) {
      programs.push_back(std::make_unique<Program>(
          fmt::format("meets --timeout 20 --ranks {}", ranks), environment));
      return;
    }
    for (int rank = 0; rank < ranks; ++rank)
      programs.push_back(std::make_unique<Program>(
          "meets --timeout 20",
          fmt::format("{} SLURM_PROCID={} SLURM_NTASKS={} SLURM_STEP_NUM_TASKS={} SLURM_LOCALID={} "
                      "SLURM_STEP_TASKS_PER_NODE={} SLURM_STEP_NODELIST=localhost SLURM_JOB_ID={} "
                      "SLURM_STEP_ID=0",
                      environment, rank, ranks, ranks, rank, ranks, number)));
  }

  void check() {
    std::string output;
    for (const auto& program : programs) {
      CHECK(program->exit_code() == 0);
      output += program->output();
    }
    for (int rank = 0; rank < ranks; ++rank)
      CHECK_THAT(output, Contains(fmt::format("rank {} of {} met its own in job {}\n", rank, ranks,
                                              number)));
    CHECK(count_of(output, " met its own in job ") == static_cast<std::size_t>(ranks));
  }
};

void start_pairs(Meeting meeting) {
  const testing::TemporaryFolder folder;
  for (int pair = 0; pair < pairs(); ++pair) {
    CAPTURE(pair);
    // Of equal sizes in every second pair, and so alike in all but the number.
    Job one{.number = 20 + 2 * pair, .ranks = 2 + pair % 2},
        other{.number = 21 + 2 * pair, .ranks = 2};
    one.start(meeting, folder.path());
    other.start(meeting, folder.path());
    one.check();
    other.check();
  }
  CHECK(std::filesystem::is_empty(folder.path()));
}

}  // namespace

TEST_CASE("pairs of jobs that start their own ranks never meet", "[pairs]") {
  start_pairs(Meeting::kFolder);
}

TEST_CASE("pairs of jobs whose ranks are started one by one never meet", "[pairs]") {
  start_pairs(Meeting::kEndpoint);
}

}  // namespace tessera::distributed
