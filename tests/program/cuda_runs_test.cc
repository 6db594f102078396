// `tessera train --device cuda`, started as a user would: the first losses equal the CPU's, on one
// rank, on ranks that share a GPU, on ranks with a GPU each, and with CUDA graphs.

#include <catch2/catch.hpp>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "tessera/tests/models/data/test_data.h"
#include "tessera/tests/program/run_program.h"
#include "tessera/tests/support/test_main.h"

namespace tessera::testing {
namespace {

using Words = std::vector<std::string>;

constexpr int kSteps = 5;

Words joined(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// Runs see one GPU only, even if the machine has more.
ProgramOptions with_one_gpu() {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  const std::string all = visible == nullptr || *visible == 0 ? "0" : visible;
  return {.environment = {{"CUDA_VISIBLE_DEVICES", all.substr(0, all.find(','))},
                          {"TESSERA_EMULATED_GPUS", "1"}}};
}

// Losses of a small GPT.
std::vector<double> gpt_losses(const Words& more, const ProgramOptions& options = {}) {
  const Words sizes = {"--layers",  "1",  "--dim",   "16", "--heads", "2",
                       "--seq-len", "16", "--batch", "4",  "--steps", std::to_string(kSteps),
                       "--dropout", "0"};
  return run_tiny("gpt", joined(sizes, more), options).losses();
}

// Losses of a small network on images.
std::vector<double> mlp_losses(const Words& more, const ProgramOptions& options = {}) {
  static const std::string data = [] {
    const std::string made = fresh_folder("images");
    write_fashion_mnist(made, {.train = 24, .test = 10});
    return made;
  }();
  const std::string out = fresh_folder("mlp_out");
  const ProgramResult result =
      run_program(joined({"train", "mlp", "--data", data, "--out", out, "--hidden", "16", "--batch",
                          "9", "--steps", std::to_string(kSteps)},
                         more),
                  options);
  INFO("standard error: " << result.err);
  REQUIRE(result.exit_code == 0);
  return TinyRun{.result = result, .folder = out}.losses();
}

using Losses = std::vector<double> (*)(const Words&, const ProgramOptions&);

// Checks that the run has the losses of one rank on the CPU.
void check_against_cpu(Losses losses, const Words& words, const ProgramOptions& options = {}) {
  CAPTURE(words);
  const std::vector<double> expected = losses({"--ranks", "1", "--launch", "threads"}, {});
  const std::vector<double> found = losses(joined({"--device", "cuda"}, words), options);
  REQUIRE(expected.size() == kSteps);
  REQUIRE(found.size() == kSteps);
  CHECK(expected.back() < expected.front());
  for (int i = 0; i < kSteps; ++i)
    CHECK(found[std::size_t(i)] == Approx(expected[std::size_t(i)]).epsilon(1e-4));
}

// Skips the case if there are fewer.
bool has_gpus(int needed) {
  const int found = gpu_count();
  if (found >= needed) return true;
  skip("needs " + std::to_string(needed) + " GPUs, found " + std::to_string(found));
  return false;
}

TEST_CASE("one rank on a GPU has the CPU's losses, with CUDA graphs too") {
  const Losses losses = GENERATE(&gpt_losses, &mlp_losses);
  const Words more = GENERATE(Words{}, Words{"--cuda-graphs"});
  check_against_cpu(losses, joined({"--ranks", "1"}, more));
}

TEST_CASE("--tf32 rounds products, by little") {
  const std::vector<double> plain = gpt_losses({"--ranks", "1", "--device", "cuda"});
  const std::vector<double> rounded = gpt_losses({"--ranks", "1", "--device", "cuda", "--tf32"});
  REQUIRE(plain.size() == rounded.size());
  for (std::size_t i = 0; i < plain.size(); ++i)
    CHECK(rounded[i] == Approx(plain[i]).epsilon(2e-2));
#ifdef TESSERA_EMULATED_GPU  // a GPU's library may compute products as small as these in f32
  CHECK(rounded != plain);
#endif
}

TEST_CASE("two ranks that share a GPU have the losses of one on the CPU") {
  const Losses losses = GENERATE(&gpt_losses, &mlp_losses);
  check_against_cpu(losses, {"--ranks", "2", "--launch", "threads"}, with_one_gpu());
}

TEST_CASE("two ranks with a GPU each have the losses of one on the CPU, with CUDA graphs too") {
  if (!has_gpus(2)) return;
  const Losses losses = GENERATE(&gpt_losses, &mlp_losses);
  const Words more =
      GENERATE(Words{}, Words{"--cuda-graphs"}, Words{"--nccl-buffers", "registered"},
               Words{"--nccl-buffers", "symmetric"});
  check_against_cpu(losses, joined({"--ranks", "2", "--launch", "threads"}, more));
}

TEST_CASE("two rank processes with a GPU each have the losses of one on the CPU") {
  if (!has_gpus(2)) return;
  if (!TESSERA_NCCL_JOINS_PROCESSES) {
    skip("the emulated NCCL connects threads only");
    return;
  }
  const Words more = GENERATE(Words{}, Words{"--cuda-graphs"});
  check_against_cpu(&gpt_losses, joined({"--ranks", "2"}, more));
}

// Each command prints one line and starts nothing.
void check_refused(const Words& words, const std::map<std::string, std::string>& environment,
                   const std::string& text) {
  CAPTURE(words);
  const ProgramResult result = run_program(words, {.environment = environment});
  CHECK(result.exit_code == 2);
  CHECK(result.out.empty());
  CHECK_THAT(result.err, Catch::Contains(text));
  CHECK(lines_of(result.err).size() == 1);
}

TEST_CASE("GPUs that cannot be used are refused with code 2") {
  const TinyRun made = run_tiny("gpt", {"--layers", "1", "--dim", "16", "--heads", "2", "--seq-len",
                                        "16", "--steps", "1", "--ranks", "1"});
  const Words commands[] = {{"train", "mlp", "--steps", "1", "--device", "cuda"},
                            {"eval", "--run", made.folder, "--device", "cuda"},
                            {"generate", "--run", made.folder, "--device", "cuda"}};
  check_refused(joined(commands[0], {"--ranks", "3"}), with_one_gpu().environment,
                "NCCL needs a GPU for each rank, and there are 3 ranks and 1 GPU");
#ifdef TESSERA_EMULATED_GPU
  for (const Words& command : commands) {
    check_refused(command, {{"TESSERA_EMULATED_GPUS", "0"}}, "--device cuda: ");
    check_refused(command, {{"TESSERA_EMULATED_DRIVER", "12040"}},
                  "the NVIDIA driver is of CUDA 12.4");
    check_refused(command, {{"TESSERA_EMULATED_COMPUTE_CAPABILITY", "7"}},
                  "has compute capability 7.0, and Tessera needs 8.0");
  }
#endif
}

TEST_CASE("what was trained on a GPU is evaluated alike on both, and continues a text there") {
  const Words graphs = GENERATE(Words{}, Words{"--cuda-graphs"});
  const TinyRun made =
      run_tiny("gpt", joined({"--layers", "1", "--dim", "16", "--heads", "2", "--seq-len", "16",
                              "--steps", "2", "--ranks", "1", "--dropout", "0", "--device", "cuda"},
                             graphs));
  const auto loss_on = [&](const std::string& device) {
    const ProgramResult result = run_program({"eval", "--run", made.folder, "--device", device});
    INFO("standard error: " << result.err);
    REQUIRE(result.exit_code == 0);
    const std::string text = "validation loss ";
    REQUIRE(result.out.find(text) == 0);
    return std::stod(result.out.substr(text.size()));
  };
  CHECK(loss_on("cuda") == Approx(loss_on("cpu")).epsilon(1e-4));
  const ProgramResult text = run_program({"generate", "--run", made.folder, "--device", "cuda",
                                          "--prompt", "the cat", "--max-tokens", "8"});
  INFO("standard error: " << text.err);
  CHECK(text.exit_code == 0);
  CHECK(text.out.find("the cat") == 0);
}

}  // namespace
}  // namespace tessera::testing
