#pragma once

// Training a sharded model beside an unsharded reference, for every cell of the test matrix of
// PyTorch's FSDP tests: their _test_fsdp_parity and _train_for_several_steps.
//     train_against_reference(t, make<NestedWrappedModule>(), {.strategy = ShardingStrategy::kGrad});
//
// Both start from one seed; every rank uses its own batch. Each step compares the rank's losses,
// all gradients (before they are dropped) and all parameters. It also checks the options read back
// and, after each backward, that nothing is gathered or in flight. The optimizer is SGD with
// momentum 0.9, lr 0.01: Adam would hide gradients of the wrong scale. Dropout is the same in both
// models, and different on each rank.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/distributed/process_group.h"
#include "tessera/fsdp/options.h"
#include "tessera/nn/module.h"
#include "tessera/nn/training/grad_scaler.h"
#include "tessera/tests/support/fsdp/sharding_modes.h"
#include "tessera/tests/support/models/test_model.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {

// Constructs the model: called once for the sharded model and once for the reference.
struct ModelRequest {
  DType dtype = DType::kF64;
  bool sharded = false;
};
using MakeModel = std::function<std::unique_ptr<TestModel>(const ModelRequest&)>;

// For models whose options have a dtype.
template <class M>
MakeModel make(typename M::Options options = {}) {
  return [options](const ModelRequest& request) mutable {
    options.dtype = request.dtype;
    return std::make_unique<M>(options);
  };
}

enum class SaveAndLoad : std::uint8_t {
  kNone,
  kSharded,  // nn::state_dict: each rank saves its own shards
  kFull,     // the full state, saved on and loaded from rank 0
};

struct ReferenceTrainingOptions {
  InitMode init = InitMode::kDeferred;
  ShardingStrategy strategy = ShardingStrategy::kFull;
  std::optional<fsdp::CpuOffload> offload = {};
  fsdp::PrefetchOptions prefetch = {};
  fsdp::MixedPrecision mixed_precision = {};
  std::optional<DType> autocast = {};
  // Both models are converted to this dtype after they are initialised (and sharded).
  std::optional<DType> pure = {};
  std::optional<nn::GradScalerOptions> scaler = {};
  // Gradients are unscaled and clipped to this norm before the step.
  std::optional<double> max_norm = {};
  // After each step the state is saved, the model zeroed and the state loaded.
  SaveAndLoad save_and_load = SaveAndLoad::kSharded;
  // Each collective of this kind is delayed on its stream.
  std::optional<distributed::CollectiveKind> late = {};
  double late_ms = 0;
  DType dtype = DType::kF64;
  int steps = 2;
  // Relative, of losses, gradients and parameters. Unset: 0, because the reference adds in the same
  // order; for hybrid strategies, which add among shards first and then among replicas, 1e-12.
  std::optional<double> tolerance = {};
  // Each rank has its own buffers (statistics of its batches); they are compared with the
  // reference's.
  bool buffers_of_rank = false;
  // For modules on another mesh than the others; the model then reduces their gradients itself.
  std::function<distributed::DeviceMesh(const nn::Module& group)> mesh_of_group = {};
};

// Reports failures to `t`. Throws the errors of training. Collective.
void train_against_reference(RankTest& t, const MakeModel& make,
                             const ReferenceTrainingOptions& options);

/// The reference of sharded training: the full model on every rank, and the definition of data
/// parallelism.
///
/// Each rank computes its own batch. Gradients are then added over the ranks in rank order and
/// multiplied by 1 / ranks. With a compute dtype, each step casts the stored parameters and buffers
/// into a second model of that dtype; its gradients are reduced in `reduce_dtype` and cast back.
struct UnshardedReferenceOptions {
  std::shared_ptr<distributed::ProcessGroup> group;
  // The model computes in this dtype, while parameters keep theirs: fsdp::MixedPrecision.
  std::optional<DType> param_dtype = {};
  std::optional<DType> reduce_dtype = {};  // unset: param_dtype, or the stored dtype
  std::optional<DType> output_dtype = {};  // of the model's result
  bool reduces_by_itself = false;          // the model's run_backward() averages gradients
};

// Casts floating-point Variables.
std::vector<Variable> cast_floating(const std::vector<Variable>& input, DType dtype);

class UnshardedReference {
 public:
  // `stored` is initialised. `computing` has the same class and the dtype param_dtype; null without
  // one.
  UnshardedReference(std::unique_ptr<TestModel> stored, std::unique_ptr<TestModel> computing,
                     UnshardedReferenceOptions options);

  // The module that the optimizer updates.
  nn::Module& root() { return stored_->root(); }
  // The model that computes.
  TestModel& model() { return computing_ ? *computing_ : *stored_; }
  // This rank's loss of its batch. The batch may have any floating-point dtype.
  Variable loss(const std::vector<Variable>& input);
  // Backward and the reduction: afterwards grad() of root()'s parameters is that of all ranks.
  void run_backward(const Variable& loss);

 private:
  void reduce_gradients();

  std::unique_ptr<TestModel> stored_, computing_;
  UnshardedReferenceOptions options_;
};

/// Zeroes or copies the full parameters of a sharded model.
struct ZeroModelOptions {
  bool zero_buffers = false;
  // true: through fsdp::FullParameters with write-back (collective), like a user. false: each rank
  // zeroes its local().
  bool summon_full = true;
};
// Zeroes all parameters, so that a state that does not restore everything changes the numbers.
void zero_model(nn::Module& model, const ZeroModelOptions& options = {});

struct FullParamsOptions {
  bool recurse = true;  // false: only the module's own group, without the groups below
};
// Copies of the full parameters in the stored dtype, which outlive the guard. Collective.
std::vector<Tensor> get_full_params(nn::Module& model, const FullParamsOptions& options = {});

}  // namespace tessera::testing
