// `tessera train` as ranks that srun has started: one process for each, with the variables set.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tessera/tests/models/data/test_data.h"
#include "tessera/tests/program/run_program.h"

namespace tessera::testing {
namespace {

using Catch::Matchers::Contains;
using Words = std::vector<std::string>;

ProgramOptions slurm(int rank, int size, const std::string& step) {
  return {.environment = {{"SLURM_PROCID", std::to_string(rank)},
                          {"SLURM_NTASKS", std::to_string(size)},
                          {"SLURM_LOCALID", std::to_string(rank)},
                          {"SLURM_STEP_TASKS_PER_NODE", std::to_string(size)},
                          {"SLURM_STEP_NODELIST", "localhost"},
                          {"SLURM_JOB_ID", std::to_string(getpid())},
                          {"SLURM_STEP_ID", step}}};
}

}  // namespace

TEST_CASE("ranks that srun starts train as those of an ordinary run, and rank 0 writes") {
  const int ranks = GENERATE(2, 3);
  const Words small = {"--steps", "4", "--batch", "6"};
  Words more = small;
  more.insert(more.end(), {"--ranks", std::to_string(ranks)});
  const TinyRun ordinary = run_tiny("gpt", more);
  TinyRun joined{.result = {}, .folder = fresh_folder("joined" + std::to_string(ranks))};
  Words words = train_tiny("gpt", {"--out", joined.folder});
  words.insert(words.end(), small.begin(), small.end());
  std::vector<std::unique_ptr<Program>> programs;
  for (int rank = 0; rank < ranks; ++rank)
    programs.push_back(
        std::make_unique<Program>(words, slurm(rank, ranks, "train-" + std::to_string(ranks))));
  std::vector<ProgramResult> results;
  for (const auto& program : programs) results.push_back(program->wait());
  for (const ProgramResult& result : results) {
    INFO(result.err);
    CHECK(result.exit_code == 0);
  }
  CHECK_THAT(results[0].out, Contains(std::to_string(ranks) + " ranks as processes"));
  CHECK(results[1].out.empty());
  CHECK(joined.losses().size() >= 4);
  CHECK(joined.metrics() == ordinary.metrics());
  CHECK(joined.file("model.safetensors") == ordinary.file("model.safetensors"));
  CHECK_THAT(joined.file("config.json"),
             Contains("\"ranks\": " + std::to_string(ranks)) && Contains("\"launch\": \"auto\""));
}

TEST_CASE("options that contradict srun start nothing; --launch processes does not ask it") {
  const auto refused = [](const Words& more, const std::string& what) {
    const ProgramResult result = run_program(train_tiny("gpt", more), slurm(1, 8, "refused"));
    CHECK(result.exit_code == 2);
    CHECK(result.out.empty());
    CHECK_THAT(result.err, Contains(what));
  };
  refused({"--ranks", "4"}, "--ranks 4 contradicts Slurm, which has started 8 ranks on this host");
  refused({"--nnodes", "2"}, "--nnodes 2 contradicts Slurm");
  const ProgramResult alone =
      run_program(train_tiny("gpt", {"--ranks", "1", "--launch", "processes", "--print-config"}),
                  slurm(1, 8, "alone"));
  CHECK(alone.exit_code == 0);
  CHECK_THAT(alone.out, Contains("\"ranks\": 1"));
  const ProgramResult wrong =
      run_program(train_tiny("gpt", {}), {.environment = {{"WORLD_SIZE", "4"}, {"RANK", "4"}}});
  CHECK(wrong.exit_code == 2);
  CHECK_THAT(wrong.err, Contains("RANK=4, WORLD_SIZE=4"));
}

}  // namespace tessera::testing
