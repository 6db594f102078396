// The small models of PyTorch's FSDP tests: DummyDDP, SkipModel, DoubleLinear, MLP, MLPStack,
// SaveForwardInputs.

#include <catch2/catch.hpp>

#include "tessera/autograd/ops/ops.h"
#include "tessera/fsdp/fully_shard.h"
#include "tessera/fsdp/testing.h"
#include "tessera/tests/fsdp/seeds/seed_models.h"
#include "tessera/tests/support/fsdp/reference_training.h"
#include "tessera/tests/support/models/mlp.h"
#include "tessera/tests/support/models/small_models.h"
#include "tessera/tests/support/models/test_model.h"
#include "tessera/tests/support/ranks.h"
#include "tessera/tests/support/subtests.h"

namespace tessera::testing {
namespace {

const auto strategies = axis(
    "strategy", {value("full", ShardingStrategy::kFull), value("grad", ShardingStrategy::kGrad),
                 value("replicate", ShardingStrategy::kReplicate)});

TESSERA_RANK_TEST("seeds: SkipModel, one and two levels of nesting", "[fsdp][seeds]") {
  run_subtests(
      t,
      [&](ShardingStrategy strategy, bool double_nest) {
        train_against_reference(t, make_small<SkipModel>({.double_nest = double_nest}, {3, 10}),
                                {.strategy = strategy});
      },
      strategies, axis("double_nest", {false, true}));
}

TESSERA_RANK_TEST("seeds: SkipModel leaves what is not wrapped to the root", "[fsdp][seeds]") {
  AdaptedModel<SkipModel> model({.groups = [](SkipModel& m) { return m.groups(); }});
  shard_model(model, {.mesh = t.world().mesh()});
  const std::vector<std::string> names = fsdp::of(model.root()).parameter_names();
  t.check(names == std::vector<std::string>{"linear.weight", "linear_skip.lin.weight"},
          "the root has {}", fmt::join(names, ", "));
  t.check(fsdp::has_state(model.root().get_submodule("nested_linear")) &&
              !fsdp::has_state(model.root().get_submodule("linear_skip")),
          "states are elsewhere");
}

TESSERA_RANK_TEST("seeds: MLP", "[fsdp][seeds]") {
  run_subtests(
      t,
      [&](ShardingStrategy strategy, bool bias, bool with_buffer) {
        train_against_reference(
            t,
            make_small<MLP>({.dim = 5, .multiplier = 3, .bias = bias, .with_buffer = with_buffer},
                            {4, 5}),
            {.strategy = strategy});
      },
      strategies, axis("bias", {false, true}), axis("with_buffer", {false, true}));
}

TESSERA_RANK_TEST("seeds: MLPStack", "[fsdp][seeds]") {
  run_subtests(
      t,
      [&](ShardingStrategy strategy, int dim, bool norm) {
        train_against_reference(
            t, make_small<MLPStack>({.dim = dim, .with_seq_parallel = norm}, {2, 3, dim}),
            {.strategy = strategy, .max_norm = 1.0, .tolerance = 1e-12});
      },
      strategies, axis("dim", {3, 16, 17}), axis("norm", {false, true}));
}

// PyTorch's reset_parameters: the same seed gives the same numbers again, including the buffer.
TESSERA_RANK_TEST("seeds: MLP is reset to the same values after it was sharded", "[fsdp][seeds]") {
  const MLPOptions options{.dim = 5, .with_buffer = true, .dtype = DType::kF64};
  MLP model(options), reference(options);
  fsdp::fully_shard(model, {.mesh = t.world().mesh()});
  for (const std::uint64_t seed : {3, 4, 3}) {
    nn::initialize(model, {.seed = seed});
    nn::initialize(reference, {.seed = seed});
    const std::string report = fsdp::check_sharded_parity(reference, model);
    t.check(report.empty(), "seed {}: {}", seed, report);
    t.check_equal(model.get_buffer("buffer").tensor(), reference.get_buffer("buffer").tensor());
  }
}

// Two results, or a layer that is never called: its group stays sharded, its gradient undefined,
// and the next step works. The training loop checks all three.
TESSERA_RANK_TEST("seeds: DoubleLinear", "[fsdp][seeds]") {
  run_subtests(
      t,
      [&](ShardingStrategy strategy, bool use_second) {
        train_against_reference(t, make_double_linear(use_second),
                                {.strategy = strategy, .steps = 3});
      },
      strategies, axis("use_second", {false, true}));
}

// Names get a prefix, which the parity check is told to ignore.
TESSERA_RANK_TEST("seeds: DummyDDP", "[fsdp][seeds]") {
  const MLPOptions options{.dim = 5, .dtype = DType::kF64};
  auto whole = std::make_unique<AdaptedModel<MLP>>(AdaptedModelOptions<MLP>{
      .model = options,
      .call = [](MLP& m, const std::vector<Variable>& input) { return m(input.at(0)); }});
  whole->initialize({.seed = 1, .prefix = "module."});
  UnshardedReference reference(std::move(whole), nullptr, {.group = t.world().group()});
  DummyDDP<MLP> model(options);
  fsdp::fully_shard(model.module(), {.mesh = t.world().mesh()});
  fsdp::fully_shard(model, {.mesh = t.world().mesh()});
  nn::initialize(model, {.seed = 1});
  t.check(!fsdp::of(model).has_group(), "the wrapper has parameters of its own");
  const Variable x = rows({3, 5}, t.rank(), DType::kF64);
  backward(sum(model(x)));
  reference.run_backward(reference.loss({x}));
  const std::string report = fsdp::check_sharded_parity(
      reference.root(), model, {.prefixes_to_ignore = {"module."}, .tolerance = 1e-13});
  t.check(report.empty(), "{}", report);
  t.check(!fsdp::check_sharded_parity(reference.root(), model).empty(), "prefixes do not matter");
}

// The dtypes of inputs inside the model, for each dtype configuration.
TESSERA_RANK_TEST("seeds: SaveForwardInputs", "[fsdp][seeds]") {
  run_subtests(
      t,
      [&](bool cast_root, bool cast_children) {
        SaveForwardInputsModel model({.cast_forward_inputs = !cast_children});
        const auto precision = [](bool cast) {
          return fsdp::MixedPrecision{.param_dtype = DType::kBF16, .cast_forward_inputs = cast};
        };
        for (nn::Module* child :
             {static_cast<nn::Module*>(&model.c1()), static_cast<nn::Module*>(&model.c2())}) {
          fsdp::fully_shard(
              *child, {.mesh = t.world().mesh(), .mixed_precision = precision(cast_children)});
        }
        fsdp::fully_shard(model,
                          {.mesh = t.world().mesh(), .mixed_precision = precision(cast_root)});
        nn::initialize(model, {.seed = 1});
        const Variable y = model(rows({2, 100}, t.rank(), DType::kF32));
        const DType outer = cast_root ? DType::kBF16 : DType::kF32;
        t.check(model.forward_input().dtype() == outer, "the root's input");
        t.check(model.c1().forward_input().dtype() == (cast_children ? DType::kBF16 : outer),
                "c1's input");
        t.check(model.c2().forward_input().dtype() == DType::kBF16, "c2's input");
        t.check(y.dtype() == DType::kBF16, "the output");
        backward(sum(y));
        for (const nn::Parameter& parameter : model.parameters())
          t.check(parameter.grad().dtype() == DType::kF32, "a gradient");
      },
      axis("cast_root", {false, true}), axis("cast_children", {false, true}));
}

}  // namespace
}  // namespace tessera::testing
