// A model converted after it was sharded: parameters, gradients and sent tensors have the new
// dtype, and it trains like a converted unsharded reference.

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>

#include "tessera/fsdp/replicate.h"
#include "tessera/tests/fsdp/chain.h"
#include "tessera/tests/fsdp/schedule/events.h"
#include "tessera/tests/fsdp/training/side_by_side.h"

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

/// `trained`: one step in f32 precedes the conversion.
void train_converted(RankTest& t, Way way, bool trained) {
  const ChainOptions options = {.dtype = DType::kF32};
  Chain sharded(options), reference(options);
  wrap(t, sharded, way);
  initialize_both(sharded, reference);
  const DataRank ranks = data_rank(t.group());
  SideBySide run =
      over_rows(fmt::format("way {}, trained {}", static_cast<int>(way), trained), sharded,
                reference, {.width = 7, .ranks = ranks, .dtype = DType::kF32});
  run.steps = 1;
  run.tolerance = 1e-5;
  if (trained) train_side_by_side(t, run);
  sharded.to(DType::kF64);
  reference.to(DType::kF64);
  check_dtypes(t, sharded);
  // Rounding errors of f32 are not compared.
  for (std::size_t i = 0; i < sharded.parameters().size(); ++i) {
    const nn::Parameter mine = sharded.parameters()[i];
    copy_(mine.local().tensor(), part_of(reference.parameters()[i].local().tensor(), mine));
  }
  SideBySide next = over_rows(run.what, sharded, reference, {.width = 7, .ranks = ranks});
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

std::unique_ptr<Chain> f32_chain(RankTest& t, const fsdp::ReshardAfterForward& reshard) {
  auto chain = std::make_unique<Chain>(ChainOptions{.dtype = DType::kF32});
  shard_chain(*chain, {.mesh = t.world().mesh(), .reshard_after_forward = reshard});
  nn::initialize(*chain, {.seed = 3});
  return chain;
}

TESSERA_RANK_TEST("no conversion while gradients wait to be reduced", "[fsdp]") {
  const auto model = f32_chain(t, true);
  const fsdp::Handle root = fsdp::of(*model);
  root.set_requires_gradient_sync(false);
  backward(sum((*model)(Variable(random_rows(3, 7, DType::kF32, 1)))));
  t.check_throws<StateError>(
      "gradients of group block0 wait to be reduced: convert the model "
      "between steps, or discard_pending_gradients()",
      [&] { model->to(DType::kF64); });
  t.check(model->parameters().front().dtype() == DType::kF32, "converted all the same");
  root.discard_pending_gradients();
  model->to(DType::kF64);
  check_dtypes(t, *model);
}

// Throws in forward and in backward of a step, which then continues unchanged.
TESSERA_RANK_TEST("no conversion in the middle of a step", "[fsdp]") {
  const auto model = f32_chain(t, true), reference = f32_chain(t, true);
  int refused = 0;
  const auto convert = [&] {
    t.check_throws<StateError>("Block is in the middle of a step: convert it between steps",
                               [&] { model->to(DType::kF64); });
    ++refused;
  };
  model->blocks()[1]->register_forward_hook([&](nn::Module&, const nn::VisitVariables* results) {
    if (results == nullptr) return;
    convert();
    (*results)([&](Variable& y) {
      y.register_hook([&](const Variable&) {
        convert();
        return Variable();
      });
    });
  });
  const RowBatch batch = {.width = 7, .ranks = data_rank(t.group()), .dtype = DType::kF32};
  for (Chain* each : {model.get(), reference.get()})
    backward(half_squares((*each)(batch.mine(0, 0)), batch.rows, t.size()));
  t.check(refused == 2, "{} conversions were tried", refused);
  const auto mine = model->parameters(), others = reference->parameters();
  for (std::size_t i = 0; i < mine.size(); ++i)
    t.check_equal(mine[i].grad(), others[i].grad(), mine[i].name());
}

// Gathered by hand, gathered but not waited for, or kept by a forward without a backward: the
// values are released, and the next forward gathers them in the new dtype.
TESSERA_RANK_TEST("values that are gathered are released by a conversion", "[fsdp]") {
  enum class Gathered { kByHand, kUnderWay, kKept };
  for (const Gathered how : {Gathered::kByHand, Gathered::kUnderWay, Gathered::kKept}) {
    const auto model = f32_chain(t, how != Gathered::kKept);
    Chain reference({.dtype = DType::kF32});
    nn::initialize(reference, {.seed = 3});
    if (how == Gathered::kKept) {
      (*model)(Variable(random_rows(3, 7, DType::kF32, 1)));
    } else {
      for (nn::Module* module : fsdp::sharded_modules(*model))
        fsdp::of(*module).unshard({.async = how == Gathered::kUnderWay});
    }
    const auto states = [&](fsdp::GroupState expected, const char* when) {
      for (nn::Module* module : fsdp::sharded_modules(*model)) {
        const fsdp::GroupState state = fsdp::of(*module).state();
        t.check(state == expected, "case {}, {}: {} is {}", static_cast<int>(how), when,
                fsdp::of(*module).group_name(), fsdp::group_state_name(state));
      }
    };
    states(how == Gathered::kUnderWay ? fsdp::GroupState::kGathering : fsdp::GroupState::kFull,
           "before");
    const ExecutionTrace trace = traced(t, [&] { model->to(DType::kF64); });
    reference.to(DType::kF64);
    // No gather reads the shards when their memory is freed.
    const auto events = trace.all<EventRecord>();
    const auto waits = std::count_if(events.begin(), events.end(), [](const EventRecord& event) {
      return event.action == EventAction::kWait && event.name == "gathered";
    });
    const auto groups = static_cast<std::ptrdiff_t>(fsdp::sharded_modules(*model).size());
    t.check(t.size() == 1 || waits >= groups, "case {}: {} waits for gathers of {} groups",
            static_cast<int>(how), waits, groups);
    states(fsdp::GroupState::kSharded, "converted");
    t.check_throws<StateError>("is sharded", [&] { model->parameters().front().value(); });
    const Variable x(random_rows(3, 7, DType::kF64, 2));
    t.check_equal((*model)(x).tensor(), reference(x).tensor(), "computed with the new values");
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
