// The ways in which PyTorch's FSDP tests shard a model, as values of a test matrix.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "tessera/distributed/launch/world.h"
#include "tessera/distributed/mesh/device_mesh.h"
#include "tessera/fsdp/options.h"
#include "tessera/tests/support/models/test_model.h"

namespace tessera::testing {

// When a model gets its values: CUDAInitMode of PyTorch's FSDP tests. On a CPU all three train to
// the same numbers.
enum class InitMode : std::uint8_t {
  kBefore,    // initialised, then sharded
  kAfter,     // initialised and sharded, then moved to the device
  kDeferred,  // sharded, then initialised: only shards exist
};
const char* value_name(InitMode mode);  // for subtests.h

// FSDP1's strategies, mapped to a call and its options.
enum class ShardingStrategy : std::uint8_t {
  kFull,        // fully_shard, values released after forward (ZeRO-3)
  kGrad,        // fully_shard, values kept until backward (ZeRO-2)
  kReplicate,   // replicate: full parameters (NO_SHARD)
  kHybridFull,  // fully_shard over half of the ranks, two replicas
  kHybridGrad,  // the same, with values kept until backward
};
const char* value_name(ShardingStrategy strategy);
bool is_hybrid(ShardingStrategy strategy);

// One axis over the world. Hybrid strategies have two axes, {"replicate": 2, "shard"}, or one
// replica if the world size is odd. All ranks call it.
distributed::DeviceMesh mesh_of(ShardingStrategy strategy, const distributed::World& world);

struct ShardModelOptions {
  ShardingStrategy strategy = ShardingStrategy::kFull;
  distributed::DeviceMesh mesh;
  std::optional<fsdp::CpuOffload> offload = {};
  fsdp::MixedPrecision mixed_precision = {};
  // For modules on another mesh than the others (an expert). If unset, or if it returns an
  // undefined mesh: `mesh`.
  std::function<distributed::DeviceMesh(const nn::Module& group)> mesh_of_group = {};
};
// Shards the model's groups(), then the root if it is not among them.
void shard_model(TestModel& model, const ShardModelOptions& options);

}  // namespace tessera::testing
