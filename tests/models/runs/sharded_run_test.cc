// open_run with a world: the weights in shards compute what the whole ones compute.

#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <string>

#include "tessera/autograd/grad_mode.h"
#include "tessera/models/nets/gpt.h"
#include "tessera/models/runs/option_error.h"
#include "tessera/models/runs/run.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tests/models/data/test_data.h"
#include "tessera/tests/models/runs/run_files.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::models {
namespace {

using testing::RankTest;
using testing::tiny_options;

// Every rank writes the same run, into a folder of its own.
std::string write_run(const RankTest& t, const std::string& model) {
  const std::string name = model + " of rank " + std::to_string(t.rank());
  const std::string folder = testing::fresh_folder(name),
                    data = testing::fresh_folder(name + " data");
  runs::TrainOptions options = tiny_options(model);
  if (model == runs::kMlp) {
    testing::write_fashion_mnist(data);
    options.data = data;
    testing::write_mlp_run(folder, options);
  } else {
    options.data = data + "/a.txt";
    testing::write_file(options.data, testing::plain_text(4000));
    testing::write_language_run(folder, options);
  }
  return folder;
}

// Of a language model: logits, hidden states, text and loss.
void check_language(RankTest& t, const std::string& model, const ShardedRunOptions& options) {
  const RankTest::NamedCase name(t, model + " " + options.shard);
  const std::string folder = write_run(t, model);
  Run whole = open_run(folder), run = open_run(t.world(), folder, options);
  const Tensor tokens = Tensor::from_vector<std::int64_t>({72, 105, 256, 33, 0, 9}, {2, 3});
  const NoGradGuard no_grad;
  const testing::Tolerance close{1e-12, 1e-12};
  t.check_close(run.language_model().forward(tokens, {}).logits.tensor(),
                whole.language_model().forward(tokens, {}).logits.tensor(), close, "logits");
  t.check_close(run.hidden(Variable(tokens)).tensor(), whole.hidden(Variable(tokens)).tensor(),
                close, "hidden states");
  const TextRequest request{.prompt = "He", .max_tokens = 8};
  t.check(run.generate(request) == whole.generate(request), "the texts differ");
  const double expected = whole.evaluate().loss, found = run.evaluate().loss;
  t.check(std::abs(found - expected) < 1e-11, "the loss is {} instead of {}", found, expected);
}

TESSERA_RANK_TEST("language models open in shards", "[runs]") {
  for (const char* model : {"transformer", "gpt", "llama", "moe"}) check_language(t, model, {});
  for (const char* shard : {"grad", "replicate", "hybrid"})
    check_language(t, "gpt", {.shard = shard});
}

TESSERA_RANK_TEST("a sharded run holds a part of each weight", "[runs]") {
  Run run = open_run(t.world(), write_run(t, "gpt"));
  const nn::Parameter weight = run.model<Gpt>().parameters().front();
  const std::int64_t rows = weight.shape()[0];
  const std::int64_t most = (rows + t.size() - 1) / t.size();
  t.check(weight.local().shape()[0] <= most, "{} of {} rows on one of {} ranks",
          weight.local().shape()[0], rows, t.size());
}

TESSERA_RANK_TEST_WITH("tensor parallelism, and a mesh that does not fit", "[runs]",
                       {.worlds = {2}}) {
  check_language(t, "gpt", {.tensor_parallel = 2});
  const std::string folder = write_run(t, "gpt");
  t.check_throws<runs::OptionError>("--mesh: 3 is 3 ranks, but 2 share a batch",
                                    [&] { open_run(t.world(), folder, {.mesh = "3"}); });
}

TESSERA_RANK_TEST_WITH("options that are invalid are refused", "[runs]", {.worlds = {2}}) {
  const std::string folder = write_run(t, "gpt");
  const auto refuses = [&](const std::string& text, const ShardedRunOptions& options) {
    t.check_throws<runs::OptionError>(text, [&] { open_run(t.world(), folder, options); });
  };
  refuses("--tensor-parallel: 0 is less than 1 rank", {.tensor_parallel = 0});
  refuses("--tensor-parallel: -2 is less than 1 rank", {.tensor_parallel = -2});
  refuses("--mesh: abc is not a mesh: write ranks as 4", {.mesh = "abc"});
  refuses("--mesh: 1x1x2 is not a mesh", {.mesh = "1x1x2"});
  refuses("--mesh: 2,1 is not a mesh", {.shard = "hybrid", .mesh = "2,1"});
  refuses("--mesh: 0 is not a mesh", {.mesh = "0"});
  refuses("--mesh: 99999999999999999999 is not a mesh", {.mesh = "99999999999999999999"});
  t.check_throws<InvalidArgument>("sharp",
                                  [&] { open_run(t.world(), folder, {.shard = "sharp"}); });
}

// As on several hosts, of which one has the run.
TESSERA_RANK_TEST_WITH("a folder that one rank lacks is refused on every rank", "[runs]",
                       {.worlds = {2, 3}}) {
  const std::string folder = write_run(t, "gpt");
  const bool is_last = t.rank() + 1 == t.size();
  t.check_throws<runs::OptionError>("there is no folder /nowhere; name one",
                                    [&] { open_run(t.world(), is_last ? "/nowhere" : folder); });
  if (is_last) std::filesystem::remove(folder + "/model.safetensors");
  t.check_throws<StateError>(
      "has no model.safetensors and no complete checkpoint: the run did not end",
      [&] { open_run(t.world(), folder); });
  const std::string other = write_run(t, "gpt");
  Run run = open_run(t.world(), other);
  t.check_throws<DataError>("/nowhere.txt", [&] {
    run.evaluate({.data = is_last ? "/nowhere.txt" : run.config().data});
  });
}

TESSERA_RANK_TEST("the mlp opens in shards", "[runs]") {
  const std::string folder = write_run(t, "mlp");
  Run whole = open_run(folder), run = open_run(t.world(), folder);
  const NoGradGuard no_grad;
  const Variable pixels(full({2, 784}, 0.5, {.dtype = DType::kF64}));
  t.check_close(run.hidden(pixels).tensor(), whole.hidden(pixels).tensor(), {1e-12, 1e-12},
                "features");
  const EvalMetrics expected = whole.evaluate(), found = run.evaluate();
  t.check(std::abs(found.loss - expected.loss) < 1e-11, "the loss is {} instead of {}", found.loss,
          expected.loss);
  t.check(found.accuracy == expected.accuracy, "the accuracy differs");
}

TESSERA_RANK_TEST("a damaged run is refused on every rank", "[runs]") {
  const std::string folder = write_run(t, "gpt");
  testing::write_file(folder + "/model.safetensors", "damaged");
  t.check_throws<CheckpointError>("take a copy of the folder",
                                  [&] { open_run(t.world(), folder); });
}

}  // namespace
}  // namespace tessera::models
