// A language model has the same loss curve on any number of ranks, for every sharding mode, with
// dropout, even if the batch is not divisible and ranks have no rows. Gradient norms and the
// evaluation are compared as well.

#include <catch2/catch.hpp>
#include <vector>

#include "tessera/tests/models/language/run.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

using models::RecomputeMode;
using models::ShardMode;

std::vector<ShardMode> modes_of(int world) {
  std::vector<ShardMode> modes = {ShardMode::kFull};
  if (on_threads()) modes.insert(modes.end(), {ShardMode::kGrad, ShardMode::kReplicate});
  if (world % 2 == 0) modes.push_back(ShardMode::kHybrid);
  return modes;
}

void check_all_modes(RankTest& t, const std::string& model) {
  if (!on_threads() && t.size() % 2 != 0) return;
  // Fewer steps where each takes long: between processes, and on a GPU, which launches kernels one
  // by one.
  const int steps = on_threads() && default_device().is_cpu() ? 10 : 4;
  for (const ShardMode shard : modes_of(t.size())) {
    for (const char* precision : {"f64", "f32"}) {
      check_curve(t, {.model = model, .precision = precision, .shard = shard, .steps = steps});
    }
    check_curve(t, {.model = model, .adamw = true, .shard = shard, .steps = steps});
  }
}

TESSERA_RANK_TEST_WITH("the curve of transformer is the same on any ranks", "[curve]",
                       {.worlds = {1, 2, 3, 4}}) {
  check_all_modes(t, "transformer");
}

TESSERA_RANK_TEST_WITH("the curve of gpt is the same on any ranks", "[curve]",
                       {.worlds = {1, 2, 3, 4}}) {
  check_all_modes(t, "gpt");
}

TESSERA_RANK_TEST_WITH("the curve of llama is the same on any ranks", "[curve]",
                       {.worlds = {1, 2, 3, 4}}) {
  check_all_modes(t, "llama");
}

TESSERA_RANK_TEST_WITH("the curve of moe is the same on any ranks", "[curve]",
                       {.worlds = {1, 2, 3, 4}}) {
  check_all_modes(t, "moe");
}

}  // namespace
}  // namespace tessera::testing
