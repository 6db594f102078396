// Text from a sharded model: every rank gets the tokens of the unsharded model.

#include <fmt/ranges.h>

#include <catch2/catch.hpp>
#include <cstdint>
#include <vector>

#include "tessera/fsdp/fully_shard.h"
#include "tessera/models/generate.h"
#include "tessera/nn/init.h"
#include "tessera/tests/models/tiny_decoder.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::models {
namespace {

using testing::TinyDecoder;
using Tokens = std::vector<std::int32_t>;

TESSERA_RANK_TEST("a sharded model says what the whole one says", "[generate]") {
  TinyDecoder whole;
  nn::initialize(whole, {.seed = 3});
  TinyDecoder sharded;
  for (nn::Module& block : sharded.blocks()) fsdp::fully_shard(block, {.mesh = t.world().mesh()});
  fsdp::fully_shard(sharded, {.mesh = t.world().mesh()});
  nn::initialize(sharded, {.seed = 3, .device = t.world().device()});
  const SamplingOptions options{.max_tokens = 25, .top_k = 5, .seed = 4};
  const Tokens prompt = {3, 1, 4};
  const Tokens expected = generate(language_model(whole), prompt, options);
  const Tokens tokens = generate(language_model(sharded), prompt, options);
  t.check(tokens == expected, "got {}, expected {}", fmt::join(tokens, " "),
          fmt::join(expected, " "));
  t.check(sharded.is_training(), "the model is left in evaluation mode");
}

}  // namespace
}  // namespace tessera::models
