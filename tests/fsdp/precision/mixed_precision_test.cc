// Training in several dtypes: sharded and replicated models, compared with a reference that
// computes every rank's part in low precision, adds in rank order and updates f32 values.

#include <catch2/catch.hpp>

#include <memory>
#include <string>
#include <vector>

#include "tessera/fsdp/fully_shard.h"
#include "tessera/fsdp/replicate.h"
#include "tessera/nn/init.h"
#include "tessera/tests/fsdp/chain.h"
#include "tessera/tests/fsdp/precision/precision_reference.h"
#include "tessera/tests/fsdp/precision/shard_compare.h"
#include "tessera/tests/fsdp/reference.h"
#include "tessera/tests/support/collective_records.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

using fsdp::MixedPrecision;

struct Case {
  std::string name;
  MixedPrecision mixed = {};
  ReferencePrecision reference = {};  ///< the same dtypes for the reference
  DType stored = DType::kF32;
  fsdp::ReshardAfterForward reshard = {};
  bool replicate = false;
  int micro_batches = 1;
  bool sync_each = false;  ///< every microbatch is reduced; false: the last one, with all before it
  std::int64_t batch = 11;
  std::vector<std::int64_t> widths = {7, 5, 9, 3};
  fsdp::ShardPlacement placement = {};

  ChainOptions chain() const { return {.widths = widths, .stem = true, .dtype = stored}; }
};

void split(Chain& chain, const Case& c, const distributed::DeviceMesh& mesh) {
  std::vector<nn::Module*> modules;
  for (const auto& block : chain.blocks()) modules.push_back(block.get());
  modules.push_back(&chain);
  for (nn::Module* module : modules) {
    if (c.replicate) {
      fsdp::replicate(*module, {.mesh = mesh, .mixed_precision = c.mixed});
    } else {
      fsdp::fully_shard(*module, {.mesh = mesh,
                                  .reshard_after_forward = c.reshard,
                                  .mixed_precision = c.mixed,
                                  .shard_placement = c.placement});
    }
  }
}

std::unique_ptr<Chain> make_chain(const ChainOptions& options) {
  auto chain = std::make_unique<Chain>(options);
  nn::initialize(*chain, {.seed = 3});
  return chain;
}

/// Runs every rank's rows of a batch through the reference.
void run_reference(PrecisionReference<Chain>& reference, const Tensor& x, int ranks, DType param) {
  for (int rank = 0; rank < ranks; ++rank) {
    const distributed::Chunk rows = distributed::chunk_of(x.dim(0), ranks, rank);
    const Variable mine(cast(x.slice(0, rows.begin, rows.end), param));
    reference.run(rank, [&](Chain& chain) { return row_loss(chain(mine)); });
  }
}

/// One step's gradients in both models.
void accumulate(RankTest& t, const Case& c, Chain& sharded, PrecisionReference<Chain>& reference,
                std::uint64_t step) {
  for (int micro = 0; micro < c.micro_batches; ++micro) {
    const bool sync = c.sync_each || micro + 1 == c.micro_batches;
    fsdp::of(sharded).set_requires_gradient_sync(sync);
    const Tensor x =
        random_rows(c.batch, c.widths[0], c.stored, 10 * step + static_cast<std::uint64_t>(micro));
    backward(row_loss(sharded(Variable(my_rows(x, t.world())))));
    run_reference(reference, x, t.size(), c.reference.param);
    if (sync) reference.reduce();
  }
}

void train(RankTest& t, const Case& c, Chain& sharded, PrecisionReference<Chain>& reference) {
  nn::optim::SGD sharded_sgd(sharded.parameters(), kSgd);
  nn::optim::SGD reference_sgd(reference.master().parameters(), kSgd);
  const DType kept = c.reference.keep ? c.reference.reduce : c.stored;
  const std::uint64_t steps = test_transport() == "local" ? 3 : 2;  // processes are slow
  for (std::uint64_t step = 0; step < steps; ++step) {
    accumulate(t, c, sharded, reference, step);
    const std::string difference =
        compare_parts(sharded, reference.master(), 0, /*gradients=*/true);
    t.check(difference.empty(), "{}, step {}: {}", c.name, step, difference);
    for (const nn::NamedParameter& named : sharded.named_parameters()) {
      t.check(named.parameter.local().dtype() == c.stored, "{}: {} is stored as {}", c.name,
              named.name, dtype_name(named.parameter.local().dtype()));
      t.check(named.parameter.grad().dtype() == kept, "{}: gradient of {} is {}", c.name,
              named.name, dtype_name(named.parameter.grad().dtype()));
    }
    sharded_sgd.step();
    reference_sgd.step();
    sharded_sgd.zero_grad();
    reference_sgd.zero_grad();
    reference.refresh();
  }
  const std::string difference = compare_parts(sharded, reference.master(), 0);
  t.check(difference.empty(), "{}, at the end: {}", c.name, difference);
}

void train(RankTest& t, const Case& c) {
  Chain sharded(c.chain());
  split(sharded, c, t.world().mesh());
  nn::initialize(sharded, {.seed = 3});
  PrecisionReference<Chain> reference([&] { return make_chain(c.chain()); }, c.reference,
                                      {.shards = t.size()});
  train(t, c, sharded, reference);
}

/// Processes are slow, and send both 16-bit dtypes the same way.
std::vector<DType> halves() {
  if (test_transport() != "local") return {DType::kBF16};
  return {DType::kBF16, DType::kF16};
}

TESSERA_RANK_TEST("mixed precision: a 16-bit compute dtype, which gradients are reduced in",
                  "[fsdp]") {
  for (const DType half : halves()) {
    const MixedPrecision mixed = {.param_dtype = half};
    const ReferencePrecision reference = {.param = half, .reduce = half};
    for (const fsdp::ReshardAfterForward reshard :
         {fsdp::ReshardAfterForward(), fsdp::ReshardAfterForward(true),
          fsdp::ReshardAfterForward(false)}) {
      train(t,
            {.name = dtype_name(half), .mixed = mixed, .reference = reference, .reshard = reshard});
    }
    train(t, {.name = "replicate", .mixed = mixed, .reference = reference, .replicate = true});
    train(t, {.name = "few rows", .mixed = mixed, .reference = reference, .batch = 2});
    train(t, {.name = "of f64", .mixed = mixed, .reference = reference, .stored = DType::kF64});
  }
}

TESSERA_RANK_TEST_WITH("mixed precision: values of which half are kept after forward", "[fsdp]",
                       {.worlds = {2, 4, 6}}) {
  train(t, {.name = "two of them",
            .mixed = {.param_dtype = DType::kBF16},
            .reference = {.param = DType::kBF16, .reduce = DType::kBF16},
            .reshard = 2});
}

TESSERA_RANK_TEST_WITH("mixed precision: parameters cut along their largest dim", "[fsdp]",
                       {.worlds = {2, 4}}) {
  const auto largest = [](const nn::Parameter& parameter) {
    int dim = 0;
    for (int d = 1; d < parameter.shape().ndim(); ++d) {
      if (parameter.shape()[d] > parameter.shape()[dim]) dim = d;
    }
    return distributed::Shard{.dim = dim};
  };
  const auto with_gaps = [&](const nn::Parameter& parameter) {
    return largest(parameter).dim != 0;
  };
  for (const DType reduce : {DType::kF32, DType::kBF16}) {
    train(t, {.name = std::string("largest dim, reduced in ") + dtype_name(reduce),
              .mixed = {.param_dtype = DType::kBF16, .reduce_dtype = reduce},
              .reference = {.param = DType::kBF16, .reduce = reduce, .with_gaps = with_gaps},
              .micro_batches = 2,
              .widths = {8, 4, 12, 8},
              .placement = largest});
  }
  // Sharded along dim 1: each rank has columns of [4, 8].
  Chain chain({.widths = {8, 4}, .classes = 0});
  split(chain, {.name = "columns", .placement = largest}, t.world().mesh());
  const nn::Parameter weight = chain.blocks()[0]->parameters().front();
  t.check(weight.spec().boxes.front().extent == Shape({4, 8 / t.size()}), "it holds {} of [4, 8]",
          weight.spec().boxes.front().extent.str());
}

TESSERA_RANK_TEST("mixed precision: gradients reduced in another dtype than computed in",
                  "[fsdp]") {
  for (const bool replicate : {false, true}) {
    for (const DType half : halves()) {
      train(t, {.name = std::string(dtype_name(half)) + ", reduced in f32",
                .mixed = {.param_dtype = half, .reduce_dtype = DType::kF32},
                .reference = {.param = half},
                .replicate = replicate});
      train(t, {.name = std::string("f32, reduced in ") + dtype_name(half),
                .mixed = {.reduce_dtype = half},
                .reference = {.reduce = half},
                .replicate = replicate});
    }
    train(t, {.name = "f64, computed in f32",
              .mixed = {.param_dtype = DType::kF32, .reduce_dtype = DType::kF64},
              .reference = {.reduce = DType::kF64},
              .stored = DType::kF64,
              .replicate = replicate});
    train(t, {.name = "reduce dtype given as what it would be",
              .mixed = {.param_dtype = DType::kBF16, .reduce_dtype = DType::kBF16},
              .reference = {.param = DType::kBF16, .reduce = DType::kBF16},
              .replicate = replicate});
  }
}

TESSERA_RANK_TEST("mixed precision: gradients wait in the reduce dtype", "[fsdp]") {
  const auto run = [&](DType reduce, bool replicate, bool sync_each, bool reshard) {
    train(t, {.name = std::string("4 micro-batches, reduced in ") + dtype_name(reduce),
              .mixed = {.param_dtype = DType::kBF16, .reduce_dtype = reduce},
              .reference = {.param = DType::kBF16, .reduce = reduce},
              .reshard = reshard,
              .replicate = replicate,
              .micro_batches = 4,
              .sync_each = sync_each});
  };
  for (const bool replicate : {false, true}) {
    for (const bool sync_each : {false, true}) {
      for (const DType reduce : {DType::kF32, DType::kBF16})
        run(reduce, replicate, sync_each, /*reshard=*/true);
    }
  }
  run(DType::kF32, /*replicate=*/false, /*sync_each=*/false, /*reshard=*/false);
  train(t, {.name = "2 micro-batches in f32, reduced in f16",
            .mixed = {.reduce_dtype = DType::kF16},
            .reference = {.reduce = DType::kF16},
            .micro_batches = 2});
}

TESSERA_RANK_TEST("mixed precision: gradients are kept in the reduce dtype on request", "[fsdp]") {
  for (const bool replicate : {false, true}) {
    for (const DType half : halves()) {
      train(t, {.name = std::string("kept in ") + dtype_name(half),
                .mixed = {.param_dtype = half, .keep_low_precision_gradients = true},
                .reference = {.param = half, .reduce = half, .keep = true},
                .replicate = replicate});
    }
    train(t, {.name = "kept, and added to",
              .mixed = {.param_dtype = DType::kBF16, .keep_low_precision_gradients = true},
              .reference = {.param = DType::kBF16, .reduce = DType::kBF16, .keep = true},
              .replicate = replicate,
              .micro_batches = 3,
              .sync_each = true});
  }
}

TESSERA_RANK_TEST("mixed precision: models of 16 bits throughout, made so before or after sharding",
                  "[fsdp]") {
  for (const DType half : halves()) {
    for (const bool before : {false, true}) {
      const Case c = {
          .name = dtype_name(half), .reference = {.param = half, .reduce = half}, .stored = half};
      Chain sharded({.stem = true});
      if (before) sharded.to(half);
      split(sharded, c, t.world().mesh());
      nn::initialize(sharded, {.seed = 3});
      if (!before) sharded.to(half);
      const auto make = [&] {
        auto chain = std::make_unique<Chain>(ChainOptions{.stem = true});
        if (before) chain->to(half);
        nn::initialize(*chain, {.seed = 3});
        if (!before) chain->to(half);
        return chain;
      };
      PrecisionReference<Chain> reference(make, c.reference, {.shards = t.size()});
      train(t, c, sharded, reference);
    }
  }
}

TESSERA_RANK_TEST("mixed precision: a model born in bf16 and moved to f32 reduces as it was told",
                  "[fsdp]") {
  const Case c = {.name = "born bf16",
                  .mixed = {.reduce_dtype = DType::kBF16},
                  .reference = {.reduce = DType::kBF16}};
  Chain sharded({.stem = true, .dtype = DType::kBF16});
  split(sharded, c, t.world().mesh());
  nn::initialize(sharded, {.seed = 3});
  sharded.to(DType::kF32);
  const auto make = [] {
    std::unique_ptr<Chain> chain = make_chain({.stem = true, .dtype = DType::kBF16});
    chain->to(DType::kF32);
    return chain;
  };
  PrecisionReference<Chain> reference(make, c.reference, {.shards = t.size()});
  train(t, c, sharded, reference);
  const auto records = collectives_of([&] {
    backward(row_loss(sharded(Variable(my_rows(random_rows(5, 7, DType::kF32, 1), t.world())))));
  });
  if (t.size() == 1) return;  // nothing is sent
  t.check(dtypes_of(records, "reduce_scatter") == std::set{DType::kBF16}, "reduced in another");
  t.check(dtypes_of(records, "all_gather") == std::set{DType::kF32}, "gathered in another");
}

}  // namespace
}  // namespace tessera::testing
