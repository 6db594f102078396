// Replicated training: full parameters on every rank, one all-reduce per group, no second copies.

#include <catch2/catch.hpp>

#include <string>
#include <vector>

#include "tessera/distributed/parameters/parameters.h"
#include "tessera/fsdp/replicate.h"
#include "tessera/nn/recompute.h"
#include "tessera/tensor/memory/allocator.h"
#include "tessera/tests/fsdp/chain.h"
#include "tessera/tests/fsdp/training/side_by_side.h"
#include "tessera/tests/fsdp/training/tokens.h"
#include "tessera/tests/support/models/small_models.h"

namespace tessera::testing {
namespace {

void replicate_chain(Chain& chain, const fsdp::ReplicateOptions& options) {
  for (const auto& block : chain.blocks()) fsdp::replicate(*block, options);
  fsdp::replicate(chain, options);
}

struct Passes {
  int count = 1;
  bool late = false;  ///< reduced in the last pass
};
std::function<void(int)> sync_of(nn::Module& model, const Passes& passes) {
  return [&model, passes](int pass) {
    if (passes.late) fsdp::of(model).set_requires_gradient_sync(pass == passes.count - 1);
  };
}

void train_transformer(RankTest& t, bool recompute, const Passes& passes) {
  models::ModelArgs args = small_transformer(3);
  models::Transformer reference(args);
  args.checkpoint_activations = recompute;
  models::Transformer replicated(args);
  replicate_transformer(replicated, {.mesh = t.world().mesh()});
  initialize_both(replicated, reference);
  SideBySide run = over_tokens(
      fmt::format("recompute {}, {} passes, late {}", recompute, passes.count, passes.late),
      replicated, reference, {.ranks = data_rank(t.group())});
  run.passes = passes.count;
  run.before_pass = sync_of(replicated, passes);
  train_side_by_side(t, run);
}

TESSERA_RANK_TEST("a replicated Transformer trains like the reference", "[fsdp]") {
  for (const bool recompute : {false, true}) {
    for (const Passes& passes : {Passes{}, Passes{3, false}, Passes{3, true}})
      train_transformer(t, recompute, passes);
  }
}

TESSERA_RANK_TEST_WITH("a replicated Transformer with queued compute", "[fsdp]",
                       {.worlds = {2, 3}, .cpu_compute = StreamKind::kQueued}) {
  train_transformer(t, true, {3, true});
}

TESSERA_RANK_TEST("a replicated chain of odd sizes", "[fsdp]") {
  for (const std::int64_t rows : {11, 2}) {
    Chain replicated({}), reference({});
    replicate_chain(replicated, {.mesh = t.world().mesh()});
    initialize_both(replicated, reference);
    SideBySide run = over_rows("chain", replicated, reference,
                               {.rows = rows, .width = 7, .ranks = data_rank(t.group())});
    run.steps = 10;
    train_side_by_side(t, run);
  }
}

// By hand: each rank trains alone, with the mean of their gradients.
TESSERA_RANK_TEST("replicated Nets are what averaging gradients by hand makes of them", "[fsdp]") {
  Net replicated({.dtype = DType::kF64}), reference({.dtype = DType::kF64});
  for (const auto& [name, layer] : replicated.children())
    fsdp::replicate(*layer, {.mesh = t.world().mesh()});
  fsdp::replicate(replicated, {.mesh = t.world().mesh()});
  initialize_both(replicated, reference);
  nn::optim::SGD replicated_sgd(replicated.parameters(), kSgd),
      reference_sgd(reference.parameters(), kSgd);
  const Tensor before = clone(reference.parameters().front().local().tensor());
  for (std::uint64_t step = 0; step < 10; ++step) {
    const std::uint64_t seed = step * 16 + static_cast<std::uint64_t>(t.rank());
    const Tensor x = random_rows(2, 2, DType::kF64, seed);
    backward(mean(square(replicated(Variable(x)))));
    backward(mean(square(reference(Variable(x)))));
    for (const nn::Parameter& parameter : reference.parameters()) {
      const Tensor grad = parameter.grad();
      distributed::all_reduce(t.group(), std::span(&grad, 1), distributed::ReduceOp::kSum, "mean");
      mul_(grad, 1.0 / t.size());
    }
    const std::string difference = first_difference(replicated, reference, 1e-13);
    t.check(difference.empty(), "step {}: {}", step, difference);
    replicated_sgd.step();
    reference_sgd.step();
    replicated_sgd.zero_grad();
    reference_sgd.zero_grad();
  }
  const Tensor after = reference.parameters().front().local().tensor();
  t.check(!all_equal(before, after).ok, "nothing was trained");
}

TESSERA_RANK_TEST_WITH("replicated groups are not gathered, and all-reduced once", "[fsdp]",
                       {.worlds = {2, 3, 5}}) {
  for (const Passes& passes : {Passes{}, Passes{3, false}, Passes{3, true}}) {
    Chain model({});
    replicate_chain(model, {.mesh = t.world().mesh()});
    nn::initialize(model, {.seed = 3});
    const RowBatch batch = {.width = 7, .ranks = data_rank(t.group())};
    const auto before_pass = sync_of(model, passes);
    const StepTrace trace = StepTrace::of(t, [&] {
      for (int pass = 0; pass < passes.count; ++pass) {
        before_pass(pass);
        backward(half_squares(model(batch.mine(0, pass)), batch.rows));
      }
    });
    t.check(trace.count("all_gather") == 0 && trace.count("reduce_scatter") == 0,
            "{} gathers, {} reduce-scatters", trace.count("all_gather"),
            trace.count("reduce_scatter"));
    const int expected = passes.late ? 1 : passes.count;
    const auto reduces = trace.by_group("all_reduce");
    t.check(reduces.size() == 4, "{} groups reduced, expected 4", reduces.size());
    for (const auto& [group, count] : reduces)
      t.check(count == expected, "{} was reduced {} times, expected {}", group, count, expected);
  }
}

std::int64_t counted_bytes(const nn::Module& model) {
  std::int64_t bytes = 0;
  for (const nn::Parameter& parameter : model.parameters())
    bytes += tessera::counted_bytes(
        default_device().type, static_cast<std::size_t>(parameter.spec().global_shape.numel() * 8));
  return bytes;
}

TESSERA_RANK_TEST("nothing of a replicated model is there twice", "[fsdp]") {
  MemoryCounters& memory = t.world().context()->memory();
  const MemoryReading before = memory.current();
  Chain model({});
  replicate_chain(model, {.mesh = t.world().mesh()});
  nn::initialize(model, {.seed = 3});
  const RowBatch batch = {.width = 7, .ranks = data_rank(t.group())};
  memory.reset_peak();
  const Variable loss = half_squares(model(batch.mine(0, 0)), batch.rows);
  for (const nn::Parameter& parameter : model.parameters()) {
    const Tensor value = parameter.value_leaf().tensor(), local = parameter.local().tensor();
    t.check(value.storage().id() == local.storage().id(), "the value of {} is a copy",
            parameter.name());
  }
  backward(loss);
  const std::int64_t expected = counted_bytes(model);
  const auto grown = [&](const MemoryReading& reading, MemoryCategory category) {
    return reading[category] - before[category];
  };
  t.check(grown(memory.peak(), MemoryCategory::kGathered) == 0, "{} bytes were gathered",
          grown(memory.peak(), MemoryCategory::kGathered));
  t.check(grown(memory.peak(), MemoryCategory::kParameter) == expected, "parameters take {} bytes",
          grown(memory.peak(), MemoryCategory::kParameter));
  t.check(grown(memory.peak(), MemoryCategory::kGradient) == expected,
          "gradients took {} bytes at a time, expected {}",
          grown(memory.peak(), MemoryCategory::kGradient), expected);
  for (nn::Module* module : fsdp::sharded_modules(model)) {
    t.check(fsdp::of(*module).gathered_bytes() == 0, "gathered bytes of a group");
    t.check(fsdp::of(*module).kind() == fsdp::Kind::kReplicate, "kind");
  }
  const std::int64_t copied = fsdp::of(model).copies().total();
  t.check(copied == fsdp::of(model).copies().accumulated, "{} bytes copied", copied);
}

TESSERA_RANK_TEST("whatever is asked of a replicated group, it lies whole on every rank",
                  "[fsdp]") {
  Chain model({});
  replicate_chain(model, {.mesh = t.world().mesh()});
  const fsdp::GroupPlacements found = fsdp::of(model).placements();
  for (const auto& placements : {found.parameter, found.kept, found.gradient, found.optimizer}) {
    t.check(distributed::str(placements) == "[Replicate]", "{}", distributed::str(placements));
  }
}

/// On the host, accumulated there over several passes.
void train_offloaded(RankTest& t, const Passes& passes, bool pin) {
  Chain replicated({}), reference({});
  replicate_chain(replicated,
                  {.mesh = t.world().mesh(), .offload = fsdp::CpuOffload{.pin_memory = pin}});
  initialize_both(replicated, reference);
  SideBySide run =
      over_rows(fmt::format("offloaded, {} passes, late {}", passes.count, passes.late), replicated,
                reference, {.width = 7, .ranks = data_rank(t.group())});
  run.passes = passes.count;
  run.before_pass = sync_of(replicated, passes);
  run.before_optimizer = [&](int) {
    for (const nn::Parameter& parameter : replicated.parameters()) {
      t.check(parameter.local().device() == kCpu && parameter.grad().device() == kCpu,
              "{} left the host", parameter.name());
    }
  };
  train_side_by_side(t, run);
}

TESSERA_RANK_TEST("replicated and offloaded, with accumulation", "[fsdp]") {
  for (const Passes& passes : {Passes{}, Passes{3, false}, Passes{3, true}})
    train_offloaded(t, passes, /*pin=*/false);
  train_offloaded(t, {3, true}, /*pin=*/true);
}

TESSERA_RANK_TEST_WITH("gradients of ignored modules stay each rank's own", "[fsdp]",
                       {.worlds = {2, 3}}) {
  Net model({.dtype = DType::kF64}), alone({.dtype = DType::kF64});
  nn::Module& ignored = model.get_submodule("fc1");
  fsdp::replicate(model, {.mesh = t.world().mesh(), .ignored_modules = {&ignored}});
  initialize_both(model, alone);
  const Tensor x = random_rows(2, 2, DType::kF64, static_cast<std::uint64_t>(t.rank()));
  backward(mean(square(model(Variable(x)))));
  backward(mean(square(alone(Variable(x)))));
  for (const nn::NamedParameter& named : alone.named_parameters()) {
    const Tensor mine = model.get_parameter(named.name).grad(), own = named.parameter.grad();
    const bool equal = all_close(mine, own, {1e-13, 1e-13}).ok;
    t.check(equal == named.name.starts_with("fc1"), "{}: the rank's own gradient {}", named.name,
            equal);
  }
}

}  // namespace
}  // namespace tessera::testing
