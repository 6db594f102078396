// Tied parameters: one parameter with two uses, in one group.

#include <catch2/catch.hpp>

#include <string>

#include "tessera/tests/fsdp/training/step_trace.h"
#include "tessera/tests/fsdp/training/tokens.h"

namespace tessera::testing {
namespace {

struct TiedCase {
  bool recompute = false;
  fsdp::ReshardAfterForward reshard = true;
  bool ends_together = false;  ///< both users of the tied weight are a group of their own
};

void shard_tied(models::Transformer& model, const fsdp::FullyShardOptions& options,
                bool ends_together) {
  if (ends_together) {
    fsdp::fully_shard({&model.get_submodule("tok_embeddings"), &model.get_submodule("output")},
                      options);
  }
  shard_transformer(model, options);
}

void train_tied(RankTest& t, const TiedCase& c) {
  models::ModelArgs args = small_transformer(3);
  models::Transformer twin(args);
  args.checkpoint_activations = c.recompute;
  models::Transformer sharded(args);
  shard_tied(sharded, {.mesh = t.world().mesh(), .reshard_after_forward = c.reshard},
             c.ends_together);
  initialize_both(sharded, twin);
  SideBySide run =
      over_tokens(fmt::format("recompute {}, ends together {}", c.recompute, c.ends_together),
                  sharded, twin, {.ranks = data_rank(t.group())});
  run.steps = 4;
  train_side_by_side(t, run);
  const nn::Parameter in = sharded.get_parameter("tok_embeddings.weight");
  t.check(in.same_as(sharded.get_parameter("output.weight")), "the tie was cut");
}

TESSERA_RANK_TEST("tied weights train like the twin's, recomputed and not", "[fsdp]") {
  for (const bool recompute : {false, true}) {
    for (const bool reshard : {false, true}) {
      for (const bool together : {false, true}) train_tied(t, {recompute, reshard, together});
    }
  }
}

TESSERA_RANK_TEST_WITH("tied weights with queued compute", "[fsdp]",
                       {.worlds = {2, 3}, .cpu_compute = StreamKind::kQueued}) {
  train_tied(t, {.recompute = true, .ends_together = true});
}

TESSERA_RANK_TEST_WITH("a tied weight is gathered and reduced once", "[fsdp]", {.worlds = {2, 3}}) {
  models::Transformer model(small_transformer(2));
  const std::int64_t before = static_cast<std::int64_t>(model.parameters().size());
  shard_transformer(model, {.mesh = t.world().mesh()});
  nn::initialize(model, {.seed = 3});
  const TokenBatch batch = {.ranks = data_rank(t.group())};
  const StepTrace trace = StepTrace::of(t, [&] {
    backward(token_loss(model(rows_of_rank(batch.tokens(0, 0), batch.ranks)),
                        rows_of_rank(batch.targets(0, 0), batch.ranks), batch.count()));
  });
  // Of the root: token and position embeddings, weight and bias of the norm.
  std::int64_t members = 0;
  for (const CollectiveRecord& record : trace.collectives("reduce_scatter")) {
    members += static_cast<std::int64_t>(record.members.size());
    t.check(record.label != "root" || record.members.size() == 4, "{} members in the root's reduce",
            record.members.size());
  }
  t.check(members == before, "{} parameters reduced, expected {}", members, before);
}

}  // namespace
}  // namespace tessera::testing
