// Training a sharded model beside its whole twin, through every cell of the seeds' matrix: their
// _test_fsdp_parity and _train_for_several_steps.
//
//     train_against_twin(t, make<NestedWrappedModule>(), {.strategy = ShardingStrategy::kGrad});
//
// Both start from one seed; every rank puts in its own batch. At each step the rank's losses, all
// gradients (before they are dropped) and all parameters are compared, as are the options read back
// and, after each backward, that nothing is gathered or in flight. The optimizer is SGD with
// momentum 0.9, lr 0.01: Adam would hide a wrong scale of gradients. What is dropped at random is
// the same in both, and another on each rank.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "tessera/distributed/process_group.h"
#include "tessera/fsdp/options.h"
#include "tessera/nn/training/grad_scaler.h"
#include "tessera/tests/support/fsdp/sharding_modes.h"
#include "tessera/tests/support/models/test_model.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {

// Makes the model once to be sharded, once whole.
struct ModelRequest {
  DType dtype = DType::kF64;
  bool sharded = false;
};
using MakeModel = std::function<std::unique_ptr<TestModel>(const ModelRequest&)>;

// Of models whose options have a dtype.
template <class M>
MakeModel make(typename M::Options options = {}) {
  return [options](const ModelRequest& request) mutable {
    options.dtype = request.dtype;
    return std::make_unique<M>(options);
  };
}

enum class SaveAndLoad : std::uint8_t {
  kNone,
  kSharded,  // nn::state_dict: each rank its own
  kFull,     // the whole state on rank 0, and from it
};

struct TwinTrainingOptions {
  InitMode init = InitMode::kDeferred;
  ShardingStrategy strategy = ShardingStrategy::kFull;
  std::optional<fsdp::CpuOffload> offload = {};
  fsdp::PrefetchOptions prefetch = {};
  fsdp::MixedPrecision mixed_precision = {};
  std::optional<DType> autocast = {};
  // Both models are converted to it once they are initialised (and sharded).
  std::optional<DType> pure = {};
  std::optional<nn::GradScalerOptions> scaler = {};
  // Gradients are unscaled and cut down to this norm before the step.
  std::optional<double> max_norm = {};
  // After each step the state is saved, the model zeroed and the state loaded.
  SaveAndLoad save_and_load = SaveAndLoad::kSharded;
  // Each collective of the kind comes late on its stream.
  std::optional<distributed::CollectiveKind> late = {};
  double late_ms = 0;
  DType dtype = DType::kF64;
  int steps = 2;
  // Relative, of losses, gradients and parameters. Unset: 0, for the twin adds in the same order;
  // hybrids add among shards first, then among replicas: 1e-12.
  std::optional<double> tolerance = {};
  // Buffers are each rank's own (statistics of its batches); they are compared with the twin's.
  bool buffers_of_rank = false;
  // For modules that lie over another mesh than the others; then the model reduces by itself.
  std::function<distributed::DeviceMesh(const nn::Module& group)> mesh_of_group = {};
};

// Failures are noted with `t`. Throws what training throws. Collective.
void train_against_twin(RankTest& t, const MakeModel& make, const TwinTrainingOptions& options);

}  // namespace tessera::testing
