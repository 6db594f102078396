// The Transformer with recomputed blocks, in groups chosen to save memory.

#include <catch2/catch.hpp>

#include <string>
#include <vector>

#include "tessera/tensor/random_scope.h"
#include "tessera/tests/fsdp/training/side_by_side.h"
#include "tessera/tests/fsdp/training/tokens.h"

namespace tessera::testing {
namespace {

/// Which modules are gathered together.
enum class Grouping {
  kBlocks,           ///< each block; the root has the rest
  kMemoryEfficient,  ///< block 0; blocks 1 and 2; both embeddings; the modules after the blocks
  kNorms             ///< each norm, including those that add a residual; the rest of each block
};

struct GroupCase {
  Grouping grouping = Grouping::kBlocks;
  bool tied = false;  ///< the token embedding is then in the output's group
  bool recompute = true;
  bool reshard = true;
};

void shard_memory_efficient(models::Transformer& model, const fsdp::FullyShardOptions& options,
                            bool tied) {
  const auto module = [&model](const char* name) { return &model.get_submodule(name); };
  fsdp::fully_shard(*module("layers.0"), options);
  fsdp::fully_shard({module("layers.1"), module("layers.2")}, options);
  if (tied) {
    fsdp::fully_shard({module("tok_embeddings"), module("output")}, options);
  } else {
    // Backward reads neither embedding table.
    fsdp::fully_shard({module("tok_embeddings"), module("pos_embeddings")}, options)
        .set_unshard_in_backward(false);
    fsdp::fully_shard({module("norm"), module("output")}, options);
  }
  fsdp::fully_shard(model, options);
}

void shard_norms(models::Transformer& model, const fsdp::FullyShardOptions& options) {
  for (models::TransformerBlock& block : model.blocks()) {
    for (const char* norm : {"attention_norm", "ffn_norm"})
      fsdp::fully_shard(block.get_submodule(norm), options);
    fsdp::fully_shard(block, options);
  }
  fsdp::fully_shard(model, options);
}

void shard_grouped(models::Transformer& model, const fsdp::FullyShardOptions& options,
                   const GroupCase& c) {
  if (c.grouping == Grouping::kBlocks) return shard_transformer(model, options);
  if (c.grouping == Grouping::kNorms) return shard_norms(model, options);
  shard_memory_efficient(model, options, c.tied);
}

void train_grouped(RankTest& t, const GroupCase& c) {
  models::ModelArgs args = small_transformer(3, c.tied);
  models::Transformer reference(args);
  args.checkpoint_activations = c.recompute;
  models::Transformer sharded(args);
  shard_grouped(sharded, {.mesh = t.world().mesh(), .reshard_after_forward = c.reshard}, c);
  initialize_both(sharded, reference);
  const std::string what =
      fmt::format("grouping {}, tied {}, recompute {}, reshard {}", static_cast<int>(c.grouping),
                  c.tied, c.recompute, c.reshard);
  train_side_by_side(t, over_tokens(what, sharded, reference, {.ranks = data_rank(t.group())}));
}

TESSERA_RANK_TEST_WITH("a recomputed Transformer in groups of several kinds", "[fsdp]",
                       {.worlds = {1, 2, 3}}) {
  for (const Grouping grouping :
       {Grouping::kBlocks, Grouping::kMemoryEfficient, Grouping::kNorms}) {
    for (const bool tied : {false, true}) {
      for (const bool recompute : {false, true}) {
        for (const bool reshard : {false, true})
          train_grouped(t, {grouping, tied, recompute, reshard});
      }
    }
  }
}

TESSERA_RANK_TEST_WITH("a recomputed Transformer in groups, with queued compute", "[fsdp]",
                       {.worlds = {2, 3}, .cpu_compute = StreamKind::kQueued}) {
  for (const bool tied : {false, true})
    train_grouped(t, {.grouping = Grouping::kMemoryEfficient, .tied = tied});
}

// In the second run dropout draws the same numbers as in the first, and on every rank the numbers
// of its part of the whole batch.
TESSERA_RANK_TEST_WITH("a recomputed Transformer drops what the reference drops", "[fsdp]",
                       {.worlds = {1, 2, 3}}) {
  models::ModelArgs args = small_transformer();
  args.dropout = 0.2;
  models::Transformer reference(args);
  args.checkpoint_activations = true;
  models::Transformer sharded(args);
  shard_transformer(sharded, {.mesh = t.world().mesh()});
  initialize_both(sharded, reference);
  const TokenBatch batch = {.ranks = data_rank(t.group())};
  SideBySide run = over_tokens("dropout", sharded, reference, batch);
  const auto in_step = [](const auto& loss, std::int64_t first_sample) {
    return [loss, first_sample](int step, int pass) {
      const random::StepScope scope(
          {.seed = 7, .step = static_cast<std::uint64_t>(step), .first_sample = first_sample});
      return loss(step, pass);
    };
  };
  const auto chunk = distributed::chunk_of(batch.sequences, t.size(), t.rank());
  run.sharded_loss = in_step(run.sharded_loss, chunk.begin);
  run.reference_loss = in_step(run.reference_loss, 0);
  train_side_by_side(t, run);
}

TESSERA_RANK_TEST_WITH("gathers and reduces of memory-efficient groups", "[fsdp]",
                       {.worlds = {2, 3}}) {
  models::ModelArgs args = small_transformer(3, false);
  args.checkpoint_activations = true;
  models::Transformer model(args);
  shard_memory_efficient(model, {.mesh = t.world().mesh(), .reshard_after_forward = true}, false);
  nn::initialize(model, {.seed = 3});
  const TokenBatch batch = {.ranks = data_rank(t.group())};
  const std::map<std::string, int> expected = {{"layers.0", 2},
                                               {"layers.1, layers.2", 2},
                                               {"tok_embeddings, pos_embeddings", 1},
                                               {"norm, output", 2}};
  for (int step = 0; step < 3; ++step) {
    const StepTrace trace = StepTrace::of(t, [&] {
      backward(token_loss(model(rows_of_rank(batch.tokens(step, 0), batch.ranks)),
                          rows_of_rank(batch.targets(step, 0), batch.ranks), batch.count()));
    });
    const auto gathers = trace.by_group("all_gather"), reduces = trace.by_group("reduce_scatter");
    t.check(reduces.size() == expected.size(), "{} groups reduced", reduces.size());
    t.check(gathers.size() == expected.size(), "{} groups gathered", gathers.size());
    for (const auto& [group, count] : expected) {
      t.check(gathers.contains(group) && gathers.at(group) == count, "step {}: gathers of {}", step,
              group);
      t.check(reduces.contains(group) && reduces.at(group) == 1, "step {}: reduces of {}", step,
              group);
    }
  }
}

}  // namespace
}  // namespace tessera::testing
