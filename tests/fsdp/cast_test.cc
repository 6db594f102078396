// A model converted after it was sharded: parameters, gradients and what travels are of the new
// dtype, and it trains like a twin that was converted too.

#include <catch2/catch.hpp>

#include <string>

#include "tessera/fsdp/replicate.h"
#include "tessera/tests/fsdp/chain.h"
#include "tessera/tests/fsdp/side_by_side.h"
#include "tessera/tests/fsdp/step_trace.h"

namespace tessera::testing {
namespace {

enum class Way { kSharded, kKept, kReplicated, kHybrid, kHybridOptimizer };

void wrap(RankTest& t, Chain& model, Way way) {
  if (way == Way::kReplicated) {
    for (const auto& block : model.blocks()) fsdp::replicate(*block, {.mesh = t.world().mesh()});
    fsdp::replicate(model, {.mesh = t.world().mesh()});
    return;
  }
  const int replicas = t.size() % 2 == 0 ? 2 : 1;
  const distributed::DeviceMesh hybrid({"replicate", "shard"}, {replicas, t.size() / replicas},
                                       t.world().group(), t.world().device());
  const bool is_hybrid = way == Way::kHybrid || way == Way::kHybridOptimizer;
  shard_chain(model, {.mesh = is_hybrid ? hybrid : t.world().mesh(),
                      .reshard_after_forward = way != Way::kKept,
                      .shard_optimizer_over_replicas = way == Way::kHybridOptimizer});
}

void check_dtypes(RankTest& t, const Chain& model) {
  for (const nn::Parameter& parameter : model.parameters()) {
    t.check(parameter.dtype() == DType::kF64 && parameter.local().dtype() == DType::kF64,
            "{} is {}", parameter.name(), dtype_name(parameter.local().dtype()));
    t.check(!parameter.grad().defined() || parameter.grad().dtype() == DType::kF64,
            "the gradient of {} is {}", parameter.name(),
            parameter.grad().defined() ? dtype_name(parameter.grad().dtype()) : "");
  }
}

/// `trained`: a step in f32 goes ahead of the conversion.
void train_converted(RankTest& t, Way way, bool trained) {
  const ChainOptions options = {.dtype = DType::kF32};
  Chain sharded(options), twin(options);
  wrap(t, sharded, way);
  initialize_both(sharded, twin);
  const DataRank ranks = data_rank(t.group());
  SideBySide run = over_rows(fmt::format("way {}, trained {}", static_cast<int>(way), trained),
                             sharded, twin, {.width = 7, .ranks = ranks, .dtype = DType::kF32});
  run.steps = 1;
  run.tolerance = 1e-5;
  if (trained) train_side_by_side(t, run);
  sharded.to(DType::kF64);
  twin.to(DType::kF64);
  check_dtypes(t, sharded);
  // What rounding in f32 left is no part of the comparison.
  for (std::size_t i = 0; i < sharded.parameters().size(); ++i) {
    const nn::Parameter mine = sharded.parameters()[i];
    copy_(mine.local().tensor(), part_of(twin.parameters()[i].local().tensor(), mine));
  }
  SideBySide next = over_rows(run.what, sharded, twin, {.width = 7, .ranks = ranks});
  next.steps = 10;
  next.before_optimizer = [&](int) { check_dtypes(t, sharded); };
  train_side_by_side(t, next);
}

TESSERA_RANK_TEST_WITH("converted to f64 after sharding", "[fsdp]", {.worlds = {1, 2, 3, 4}}) {
  for (const Way way :
       {Way::kSharded, Way::kKept, Way::kReplicated, Way::kHybrid, Way::kHybridOptimizer}) {
    for (const bool trained : {false, true}) train_converted(t, way, trained);
  }
}

TESSERA_RANK_TEST_WITH("what travels is of the new dtype", "[fsdp]", {.worlds = {2, 3}}) {
  Chain model({.dtype = DType::kF32});
  shard_chain(model, {.mesh = t.world().mesh()});
  nn::initialize(model, {.seed = 3});
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    model.to(dtype);
    const RowBatch batch = {.width = 7, .ranks = data_rank(t.group()), .dtype = dtype};
    const StepTrace trace =
        StepTrace::of(t, [&] { backward(half_squares(model(batch.mine(0, 0)), batch.rows)); });
    int seen = 0;
    for (const char* op : {"all_gather", "reduce_scatter"}) {
      for (const CollectiveRecord& record : trace.collectives(op)) {
        t.check(record.dtype == dtype, "{} of {} in {}", op, record.label,
                dtype_name(record.dtype));
        ++seen;
      }
    }
    t.check(seen >= 11, "{} collectives", seen);
    for (nn::Parameter& parameter : model.parameters()) parameter.zero_grad();
  }
}

}  // namespace
}  // namespace tessera::testing
