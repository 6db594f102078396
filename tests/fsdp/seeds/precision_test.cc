// The precision matrix of PyTorch's FSDP tests: mixed precision, autocast, pure 16-bit and loss
// scaling, each against a reference that computes in the same dtypes.

#include <catch2/catch.hpp>

#include "tessera/tests/support/fsdp/reference_training.h"
#include "tessera/tests/support/models/nested.h"
#include "tessera/tests/support/models/transformer_with_shared_params.h"
#include "tessera/tests/support/ranks.h"
#include "tessera/tests/support/subtests.h"

namespace tessera::testing {
namespace {

using MaybeDType = std::optional<DType>;

const auto strategies = axis(
    "strategy", {value("full", ShardingStrategy::kFull), value("grad", ShardingStrategy::kGrad),
                 value("replicate", ShardingStrategy::kReplicate),
                 value("hybrid_full", ShardingStrategy::kHybridFull)});
const auto low = axis("low", {DType::kBF16, DType::kF16});

// Sharding changes no bit: the reference computes and reduces in the same dtypes and order. Hybrid
// strategies add in another order, which rounds some sums differently.
std::optional<double> rounding(ShardingStrategy strategy, DType dtype) {
  if (!is_hybrid(strategy)) return std::nullopt;
  if (dtype == DType::kF32) return 1e-6;
  return dtype == DType::kBF16 ? 1.6e-2 : 1e-2;
}
// Kernels write gradients in f32 that the reference first rounds to 16 bits.
double unrounded(DType dtype) { return dtype == DType::kBF16 ? 4e-3 : 1e-3; }

TESSERA_RANK_TEST_WITH("seeds: mixed precision of parameters and of the reduction", "[fsdp][seeds]",
                       {.worlds = {seeds_world()}}) {
  run_subtests(
      t,
      [&](ShardingStrategy strategy, DType param, const MaybeDType& reduce) {
        train_against_reference(
            t, make<NestedWrappedModule>(),
            {.strategy = strategy,
             .mixed_precision = {.param_dtype = param, .reduce_dtype = reduce},
             .dtype = DType::kF32,
             .tolerance = reduce ? unrounded(param) : rounding(strategy, param)});
      },
      strategies, low, axis("reduce", {MaybeDType(), MaybeDType(DType::kF32)}));
}

TESSERA_RANK_TEST_WITH("seeds: a low reduce dtype alone, and an output dtype", "[fsdp][seeds]",
                       {.worlds = {seeds_world()}}) {
  run_subtests(
      t,
      [&](ShardingStrategy strategy, DType reduce) {
        train_against_reference(t, make<NestedWrappedModule>(),
                                {.strategy = strategy,
                                 .mixed_precision = {.reduce_dtype = reduce},
                                 .dtype = DType::kF32,
                                 .tolerance = rounding(strategy, reduce)});
        train_against_reference(
            t, make<NestedWrappedModule>(),
            {.strategy = strategy,
             .mixed_precision = {.param_dtype = reduce, .output_dtype = DType::kF32},
             .dtype = DType::kF32,
             .tolerance = rounding(strategy, reduce)});
      },
      strategies, low);
}

TESSERA_RANK_TEST_WITH("seeds: mixed precision of a model with buffers", "[fsdp][seeds]",
                       {.worlds = {seeds_world()}}) {
  run_subtests(
      t,
      [&](ShardingStrategy strategy, bool add_bn) {
        train_against_reference(
            t, make<TransformerWithSharedParams>({.add_bn = add_bn, .deterministic = true}),
            {.strategy = strategy,
             .mixed_precision = {.param_dtype = DType::kBF16, .buffer_dtype = DType::kBF16},
             .dtype = DType::kF32,
             .tolerance = rounding(strategy, DType::kBF16)});
      },
      strategies, axis("add_bn", {false, true}));
}

TESSERA_RANK_TEST_WITH("seeds: autocast", "[fsdp][seeds]", {.worlds = {seeds_world()}}) {
  run_subtests(
      t,
      [&](ShardingStrategy strategy, const MaybeDType& lower) {
        train_against_reference(t, make<NestedWrappedModule>(),
                                {.strategy = strategy,
                                 .autocast = lower,
                                 .dtype = DType::kF32,
                                 .tolerance = rounding(strategy, DType::kF32)});
      },
      strategies,
      axis("autocast", {MaybeDType(), MaybeDType(DType::kBF16), MaybeDType(DType::kF16)}));
}

TESSERA_RANK_TEST_WITH("seeds: pure 16-bit, converted after it was sharded", "[fsdp][seeds]",
                       {.worlds = {seeds_world()}}) {
  run_subtests(
      t,
      [&](ShardingStrategy strategy, DType dtype) {
        train_against_reference(t, make<NestedWrappedModule>(),
                                {.strategy = strategy,
                                 .pure = dtype,
                                 .dtype = DType::kF32,
                                 .tolerance = rounding(strategy, dtype)});
      },
      strategies, low);
}

TESSERA_RANK_TEST_WITH("seeds: converted to f64 after it was sharded", "[fsdp][seeds]",
                       {.worlds = {seeds_world()}}) {
  run_subtests(
      t,
      [&](ShardingStrategy strategy) {
        train_against_reference(t, make<NestedWrappedModule>(),
                                {.strategy = strategy, .pure = DType::kF64, .dtype = DType::kF32});
      },
      strategies);
}

TESSERA_RANK_TEST_WITH("seeds: a grad scaler changes nothing but the scale", "[fsdp][seeds]",
                       {.worlds = {seeds_world()}}) {
  run_subtests(
      t,
      [&](ShardingStrategy strategy, bool enabled, bool offload) {
        ReferenceTrainingOptions options{
            .strategy = strategy,
            .scaler =
                nn::GradScalerOptions{.init_scale = 1024, .growth_interval = 1, .enabled = enabled},
            .steps = 3};
        if (offload) options.offload = fsdp::CpuOffload{};
        train_against_reference(t, make<NestedWrappedModule>(), options);
      },
      strategies, axis("enabled", {false, true}), axis("offload", {false, true}));
}

TESSERA_RANK_TEST_WITH("seeds: a scaled loss in f16", "[fsdp][seeds]",
                       {.worlds = {seeds_world()}}) {
  run_subtests(
      t,
      [&](ShardingStrategy strategy, const MaybeDType& autocast) {
        ReferenceTrainingOptions options{.strategy = strategy,
                                         .autocast = autocast,
                                         .scaler = nn::GradScalerOptions{.init_scale = 16},
                                         .dtype = DType::kF32,
                                         .tolerance = rounding(strategy, DType::kF16)};
        if (!autocast) options.mixed_precision = {.param_dtype = DType::kF16};
        train_against_reference(t, make<NestedWrappedModule>(), options);
      },
      strategies, axis("autocast", {MaybeDType(), MaybeDType(DType::kF16)}));
}

}  // namespace
}  // namespace tessera::testing
