#pragma once

/// Runs flat chains and compares their peaks with memory_arithmetic.h.

#include <functional>
#include <string>
#include <vector>

#include "tessera/fsdp/fully_shard.h"
#include "tessera/nn/init.h"
#include "tessera/tests/fsdp/chain.h"
#include "tessera/tests/fsdp/memory/memory_arithmetic.h"
#include "tessera/tests/fsdp/reference.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {

inline constexpr std::int64_t kChainWidth = 24;

/// Blocks of kChainWidth to kChainWidth, and nothing else.
inline ChainOptions flat_chain(int groups) {
  return {.widths = std::vector<std::int64_t>(static_cast<std::size_t>(groups) + 1, kChainWidth),
          .classes = 0};
}
inline GroupBytes flat_group(const Cut& cut) {
  return bytes_of(linear_shapes(kChainWidth, kChainWidth), cut);
}
/// One axis over all ranks.
inline Cut world_cut(const RankTest& t) { return {.ranks = t.size(), .rank = t.rank()}; }

inline Variable chain_loss(RankTest& t, Chain& model, std::uint64_t seed = 1) {
  return sharded_loss(model(Variable(random_rows(4, kChainWidth, DType::kF64, seed))), t.world());
}

inline void drop_gradients(const nn::Module& model) {
  for (nn::Parameter parameter : model.parameters()) parameter.zero_grad();
}

/// Bytes of parameters, gradients and gathered values.
inline std::int64_t model_bytes(const MemoryReading& reading) {
  return reading[MemoryCategory::kParameter] + reading[MemoryCategory::kGradient] +
         reading[MemoryCategory::kGathered];
}

/// Peaks of model bytes above the bytes before the model existed.
class PeakReader {
 public:
  explicit PeakReader(RankTest& t)
      : memory_(t.world().context()->memory()), before_(model_bytes(memory_.current())) {}
  void start() { memory_.reset_peak(); }
  std::int64_t peak() const { return memory_.peak_model() - before_; }
  std::int64_t now() const { return model_bytes(memory_.current()) - before_; }
  std::int64_t now(MemoryCategory category) const { return memory_.current()[category]; }

 private:
  MemoryCounters& memory_;
  std::int64_t before_;
};

/// Three steps of a chain sharded by `shard`: each forward's and backward's peak, and the bytes
/// left after a step.
inline void check_flat_chain(RankTest& t, const std::string& name, const FlatChain& expected,
                             const std::function<void(Chain&)>& shard) {
  PeakReader reader(t);
  Chain model(flat_chain(expected.groups));
  shard(model);
  nn::initialize(model, {.seed = 1});
  for (int step = 0; step < 3; ++step) {
    reader.start();
    const Variable loss = chain_loss(t, model);
    t.check(reader.peak() == expected.forward_peak(), "{}, step {}: forward peak {}, expected {}",
            name, step, reader.peak(), expected.forward_peak());
    reader.start();
    backward(loss);
    const std::int64_t over = reader.peak() - expected.backward_peak();
    t.check(over >= 0 && over <= expected.late, "{}, step {}: backward peak {}, expected {} to {}",
            name, step, reader.peak(), expected.backward_peak(),
            expected.backward_peak() + expected.late);
    const std::int64_t kept =
        expected.stays_between_steps ? expected.groups * expected.group.gathered : 0;
    t.check(reader.now(MemoryCategory::kGathered) == kept, "{}, step {}: {} gathered bytes remain",
            name, step, reader.now(MemoryCategory::kGathered));
    drop_gradients(model);
    t.check(reader.now() == expected.shards() + kept,
            "{}, step {}: {} bytes remain beside {} of shards", name, step,
            reader.now() - expected.shards(), expected.shards());
  }
}

}  // namespace tessera::testing
