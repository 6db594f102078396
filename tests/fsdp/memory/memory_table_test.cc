// The memory bounds of a Transformer over two ranks in PyTorch's own tests, and this library's
// memory: on the null device, in a world whose other rank does not exist.
//
// With T elements in all, B in a block, N outside the blocks and S = T / 2: PyTorch gathers into
// one buffer and copies out into another, so it allows 3B + N + S in forward, where 2B + N + S is
// enough here.

#include <catch2/catch.hpp>

#include <functional>
#include <memory>
#include <optional>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/distributed/transports/process_group_fake.h"
#include "tessera/fsdp/fully_shard.h"
#include "tessera/models/nets/transformer.h"
#include "tessera/nn/init.h"
#include "tessera/nn/optim/adam.h"
#include "tessera/nn/optim/step_in_backward.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/rank_context.h"

namespace tessera::testing {
namespace {

constexpr models::ModelArgs kArgs = {.layers = 3,
                                     .vocab_size = 32,
                                     .max_seq_len = 16,
                                     .dim = 768,
                                     .heads = 12,
                                     .dropout = 0,
                                     .weight_tying = false};
constexpr double kTotal = 21'317'376, kBlock = 7'084'800, kRest = 62'976;
constexpr double kShard = kTotal / 2;

/// Bytes of `elements` in f32, with room for the alignment of parameters.
std::int64_t bytes(double elements) { return static_cast<std::int64_t>(4 * elements) + 32 * 1024; }

struct Peaks {
  std::int64_t sharded = 0;  ///< from here on of parameters, gradients and gathered values
  std::int64_t forward = 0;
  std::int64_t backward = 0;
  std::int64_t step = 0;       ///< with optimizer state
  std::int64_t zero_grad = 0;  ///< the same after zero_grad, not at the peak
};

struct Case {
  fsdp::ReshardAfterForward reshard = {};
  bool in_backward = false;
};

std::int64_t with_state(const MemoryReading& reading) {
  return reading[MemoryCategory::kParameter] + reading[MemoryCategory::kGradient] +
         reading[MemoryCategory::kGathered] + reading[MemoryCategory::kOptimizer];
}

void run_step(models::Transformer& model, nn::optim::Optimizer& adam, bool in_backward,
              Peaks& peaks) {
  MemoryCounters& memory = current_rank_context()->memory();
  const Tensor tokens = zeros({1, 4}, {.dtype = DType::kI64, .device = kNull});
  memory.reset_peak();
  const Variable loss = cross_entropy(model(tokens), tokens);
  peaks.forward = memory.peak_model();
  memory.reset_peak();
  backward(loss);
  peaks.backward = memory.peak_model();
  if (!in_backward) adam.step();
  peaks.step = with_state(memory.current());
  adam.zero_grad();
  peaks.zero_grad = with_state(memory.current());
}

/// Measures the second step, when optimizer state exists.
Peaks measure(const Case& c) {
  const RankScope scope(std::make_shared<RankContext>(0, 2, 1));
  MemoryCounters& memory = current_rank_context()->memory();
  const distributed::DeviceMesh mesh("data", distributed::make_fake_group("world", {.size = 2}),
                                     kNull);
  Peaks peaks;
  {
    models::Transformer model(kArgs);
    nn::initialize(model, {.device = kCpu});
    const std::int64_t on_host = memory.current().total();
    CHECK(on_host >= static_cast<std::int64_t>(4 * kTotal));
    model.to(kNull);
    for (models::TransformerBlock& block : model.blocks())
      fsdp::fully_shard(block, {.mesh = mesh, .reshard_after_forward = c.reshard});
    fsdp::fully_shard(model, {.mesh = mesh, .reshard_after_forward = c.reshard});
    peaks.sharded = memory.current().total();
    nn::optim::Adam adam(model.parameters(), {.lr = 1e-2});
    std::optional<nn::optim::StepInBackward> in_backward;
    if (c.in_backward) in_backward.emplace(adam);
    for (int step = 0; step < 2; ++step) run_step(model, adam, c.in_backward, peaks);
  }
  CHECK(memory.current().total() == 0);
  return peaks;
}

TEST_CASE("fsdp memory table: released after forward", "[fsdp]") {
  const Peaks peaks = measure({.reshard = true});
  CHECK(peaks.sharded <= bytes(kShard));
  CHECK(peaks.forward <= bytes(2 * kBlock + kRest + kShard));
  CHECK(peaks.backward <= bytes(4 * kBlock + kRest + 2 * kShard));
  CHECK(peaks.step <= bytes(4 * kShard));
  CHECK(peaks.zero_grad <= bytes(3 * kShard));
}

TEST_CASE("fsdp memory table: kept after forward", "[fsdp]") {
  const Peaks peaks = measure({.reshard = false});
  CHECK(peaks.forward <= bytes(kShard + kTotal));
  CHECK(peaks.backward <= bytes(kShard + kTotal + 1.5 * kBlock + kRest));
  CHECK(peaks.step <= bytes(4 * kShard));
}

TEST_CASE("fsdp memory table: the optimizer in backward", "[fsdp]") {
  const Peaks peaks = measure({.reshard = true, .in_backward = true});
  CHECK(peaks.forward <= bytes(2 * kBlock + kRest + kShard));
  CHECK(peaks.backward <= bytes(4 * kBlock + kRest + kShard + kBlock / 2));
  CHECK(peaks.step <= bytes(3 * kShard));
}

}  // namespace
}  // namespace tessera::testing
