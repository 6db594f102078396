// 50 steps of every language model, in f32 and f64, with SGD and AdamW, on 1 to 4 ranks, in every
// sharding mode: the same curve. Run it by hand: it takes minutes. Prints each difference.

#include <catch2/catch.hpp>
#include <cstdio>

#include "tessera/tests/models/language/run.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

using models::ShardMode;

void sweep(RankTest& t, const std::string& model) {
  for (const ShardMode shard :
       {ShardMode::kFull, ShardMode::kGrad, ShardMode::kReplicate, ShardMode::kHybrid}) {
    if (shard == ShardMode::kHybrid && t.size() % 2 != 0) continue;
    for (const bool adamw : {false, true}) {
      for (const char* precision : {"f64", "f32"}) {
        const RunOptions options{
            .model = model, .precision = precision, .adamw = adamw, .shard = shard, .steps = 50};
        const double worst = check_curve(t, options);
        if (t.rank() != 0) continue;
        std::printf("curve | %s | %s | %s | %s | %d ranks | %.1e\n", model.c_str(), precision,
                    adamw ? "AdamW" : "SGD",
                    models::shard_mode_names()[static_cast<std::size_t>(shard)].c_str(), t.size(),
                    worst);
        std::fflush(stdout);
      }
    }
  }
}

TESSERA_RANK_TEST_WITH("50 steps of transformer", "[sweep]",
                       {.worlds = {1, 2, 3, 4}, .timeout = std::chrono::seconds(300)}) {
  sweep(t, "transformer");
}

TESSERA_RANK_TEST_WITH("50 steps of gpt", "[sweep]",
                       {.worlds = {1, 2, 3, 4}, .timeout = std::chrono::seconds(300)}) {
  sweep(t, "gpt");
}

TESSERA_RANK_TEST_WITH("50 steps of llama", "[sweep]",
                       {.worlds = {1, 2, 3, 4}, .timeout = std::chrono::seconds(300)}) {
  sweep(t, "llama");
}

TESSERA_RANK_TEST_WITH("50 steps of moe", "[sweep]",
                       {.worlds = {1, 2, 3, 4}, .timeout = std::chrono::seconds(300)}) {
  sweep(t, "moe");
}

}  // namespace
}  // namespace tessera::testing
