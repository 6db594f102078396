// Bytes of parameters, gradients, momentum and gathered values: exact where the arithmetic is,
// bounded elsewhere.

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tessera/fsdp/fully_shard.h"
#include "tessera/nn/init.h"
#include "tessera/tests/fsdp/chain.h"
#include "tessera/tests/fsdp/twin.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

std::int64_t round_up(std::int64_t bytes, std::int64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

/// The arithmetic of the layout, written down a second time.
struct Sizes {
  Sizes(const std::vector<Shape>& shapes, int world, int rank, std::int64_t element) {
    for (const Shape& shape : shapes) {
      const std::int64_t row = shape.numel() / shape[0] * element;
      const std::int64_t rows = (shape[0] + world - 1) / world;
      const std::int64_t real = std::clamp<std::int64_t>(shape[0] - rows * rank, 0, rows);
      padded_shard += round_up(rows * row, 64);
      real_shard += round_up(real * row, 64);
      slots += round_up(rows * world * row, 64);
      gathered = round_up(gathered, 256) + rows * world * row;
    }
    gathered = world == 1 ? 0 : round_up(gathered, 64);
  }
  std::int64_t padded_shard = 0;  ///< parameters, and their gradients once reduced
  std::int64_t real_shard = 0;    ///< momentum
  std::int64_t slots = 0;         ///< gradients before they are reduced
  std::int64_t gathered = 0;
};

std::vector<Shape> linear_shapes(std::int64_t in, std::int64_t out) { return {{out, in}, {out}}; }

Sizes sizes_of(RankTest& t, std::int64_t in, std::int64_t out) {
  return Sizes(linear_shapes(in, out), t.world().size(), t.world().rank(), 8);
}

TESSERA_RANK_TEST("fsdp memory: shards, gradients and momentum are what the arithmetic says",
                  "[fsdp]") {
  MemoryCounters& memory = t.world().context()->memory();
  const MemoryReading before = memory.current();
  {
    Chain model({.widths = {7, 5, 9}, .classes = 3});
    shard_chain(model, {.mesh = t.world().mesh()});
    nn::initialize(model, {.seed = 1});
    nn::optim::SGD sgd(model.parameters(), kSgd);
    std::int64_t padded = 0, real = 0;
    for (const auto& [in, out] : {std::pair{7, 5}, {5, 9}, {9, 3}}) {
      padded += sizes_of(t, in, out).padded_shard;
      real += sizes_of(t, in, out).real_shard;
    }
    const auto grown = [&](MemoryCategory category) {
      return memory.current()[category] - before[category];
    };
    for (int step = 0; step < 3; ++step) {
      backward(sharded_loss(model(Variable(random_rows(4, 7, DType::kF64, 1))), t.world()));
      t.check(grown(MemoryCategory::kGradient) == padded, "gradients take {} bytes, expected {}",
              grown(MemoryCategory::kGradient), padded);
      sgd.step();
      sgd.zero_grad();
      t.check(grown(MemoryCategory::kParameter) == padded, "parameters take {} bytes, expected {}",
              grown(MemoryCategory::kParameter), padded);
      t.check(grown(MemoryCategory::kOptimizer) == real, "momentum takes {} bytes, expected {}",
              grown(MemoryCategory::kOptimizer), real);
      t.check(grown(MemoryCategory::kGradient) == 0, "{} gradient bytes after zero_grad",
              grown(MemoryCategory::kGradient));
      t.check(grown(MemoryCategory::kGathered) == 0, "{} gathered bytes after a step",
              grown(MemoryCategory::kGathered));
    }
  }
  const MemoryReading after = memory.current();
  t.check(after.total() == before.total(), "{} bytes remain after the model is gone",
          after.total() - before.total());
}

/// A flat chain of `groups` equal blocks: the peaks of forward and backward, in full.
void check_peaks(RankTest& t, int groups, int reduces_in_flight) {
  constexpr std::int64_t kWidth = 24;
  MemoryCounters& memory = t.world().context()->memory();
  Chain model({.widths = std::vector<std::int64_t>(static_cast<std::size_t>(groups) + 1, kWidth),
               .classes = 0});
  shard_chain(model, {.mesh = t.world().mesh()});
  fsdp::of(model).set_max_reduces_in_flight(reduces_in_flight);
  nn::initialize(model, {.seed = 1});
  const Sizes block = sizes_of(t, kWidth, kWidth);
  const std::int64_t shards = groups * block.padded_shard;
  for (int step = 0; step < 3; ++step) {
    memory.reset_peak();
    const Variable loss =
        sharded_loss(model(Variable(random_rows(4, kWidth, DType::kF64, 1))), t.world());
    // The value in use and the one gathered ahead (in the first step there is no order to follow:
    // the one released before).
    std::int64_t expected = shards + 2 * block.gathered;
    t.check(memory.peak_model() == expected, "step {}: forward peak {}, expected {}", step,
            memory.peak_model(), expected);
    memory.reset_peak();
    backward(loss);
    // At the first block, the last to run: its slots, and either its value, the one released before
    // it, the slots of the reduce in flight and the reduced gradients of all other blocks; or, when
    // all values have gone, all reduced gradients.
    expected = shards + block.slots +
               std::max(2 * block.gathered + std::min(reduces_in_flight, 1) * block.slots +
                            (groups - 1) * block.padded_shard,
                        groups * block.padded_shard);
    t.check(memory.peak_model() == expected, "step {}: backward peak {}, expected {}", step,
            memory.peak_model(), expected);
    const int blocks = 3 + std::min(reduces_in_flight, 1);
    t.check(memory.peak_model() <= 2 * shards + blocks * std::max(block.gathered, block.slots),
            "step {}: over the bound", step);
    for (nn::Parameter parameter : model.parameters()) parameter.zero_grad();
  }
}

TESSERA_RANK_TEST("fsdp memory: peaks of a flat chain", "[fsdp]") {
  for (const int groups : {2, 3, 6}) check_peaks(t, groups, /*reduces_in_flight=*/1);
  check_peaks(t, 4, /*reduces_in_flight=*/0);
}

TESSERA_RANK_TEST("fsdp memory: the bounds hold with parameters of the root's own", "[fsdp]") {
  constexpr std::int64_t kWidth = 24, kClasses = 2, kGroups = 5;
  MemoryCounters& memory = t.world().context()->memory();
  for (const int reduces : {1, 0}) {
    Chain model({.widths = std::vector<std::int64_t>(kGroups + 1, kWidth), .classes = kClasses});
    shard_chain(model, {.mesh = t.world().mesh()});
    fsdp::of(model).set_max_reduces_in_flight(reduces);
    nn::initialize(model, {.seed = 1});
    const Sizes block = sizes_of(t, kWidth, kWidth), root = sizes_of(t, kWidth, kClasses);
    const std::int64_t shards = kGroups * block.padded_shard + root.padded_shard;
    const std::int64_t b = std::max(block.gathered, block.slots);
    const std::int64_t n = std::max(root.gathered, root.slots);
    for (int step = 0; step < 3; ++step) {
      memory.reset_peak();
      const Variable loss =
          sharded_loss(model(Variable(random_rows(4, kWidth, DType::kF64, 1))), t.world());
      t.check(memory.peak_model() <= 2 * b + n + shards, "forward: {} bytes, bound {}",
              memory.peak_model(), 2 * b + n + shards);
      memory.reset_peak();
      backward(loss);
      const std::int64_t bound = (3 + reduces) * b + n + 2 * shards;
      t.check(memory.peak_model() <= bound, "backward: {} bytes, bound {}", memory.peak_model(),
              bound);
      for (nn::Parameter parameter : model.parameters()) parameter.zero_grad();
    }
  }
}

TESSERA_RANK_TEST("fsdp memory: everything goes back after an exception in the middle of a step",
                  "[fsdp]") {
  MemoryCounters& memory = t.world().context()->memory();
  const MemoryReading before = memory.current();
  {
    Chain model({});
    shard_chain(model, {.mesh = t.world().mesh()});
    nn::initialize(model, {.seed = 1});
    const auto shards = memory.current();
    bool threw = false;
    try {
      model(Variable(random_rows(4, 6, DType::kF64, 1)));  // the first block takes 7
    } catch (const InvalidArgument&) {
      threw = true;
    }
    t.check(threw, "a wrong input did not throw");
    t.check(memory.current().total() == shards.total(), "{} bytes remain after a failed forward",
            memory.current().total() - shards.total());
    const Variable y = model(Variable(random_rows(4, 7, DType::kF64, 1)));
    Variable bad = y;
    bad.register_hook([](const Variable&) -> Variable { throw InvalidArgument("on purpose"); });
    threw = false;
    try {
      backward(sum(bad));
    } catch (const InvalidArgument&) {
      threw = true;
    }
    t.check(threw, "the hook's exception was lost");
    t.check(memory.current()[MemoryCategory::kGathered] == 0,
            "gathered bytes remain after a failed backward");
    t.check(memory.current()[MemoryCategory::kGradient] == 0,
            "gradient bytes remain after a failed backward");
    backward(sharded_loss(model(Variable(random_rows(4, 7, DType::kF64, 1))),
                          t.world()));  // and it goes on
    t.check(model.parameters().front().grad().defined(), "no gradient after recovery");
  }
  t.check(memory.current().total() == before.total(), "{} bytes remain",
          memory.current().total() - before.total());
}

}  // namespace
}  // namespace tessera::testing
