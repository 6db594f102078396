#pragma once

/// Options of fully_shard and replicate.

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "tessera/distributed/mesh/device_mesh.h"
#include "tessera/distributed/mesh/placement.h"
#include "tessera/fsdp/gather_extension.h"
#include "tessera/nn/module.h"

namespace tessera::fsdp {

/// When backward issues a group's gather ahead of its use.
enum class BackwardPrefetch : std::uint8_t {
  kPre,   ///< gather the group that ran just before this one in forward, before this group's
          ///< backward runs
  kNone,  ///< no prefetch: each group is gathered in its own pre-backward
};

/// Which gathers are issued ahead. The number of gathered buffers is still bounded: one in use plus
/// the prefetch depth (the larger of the two directions), not counting held groups.
struct PrefetchOptions {
  int forward = 1;  ///< number of groups ahead, in the previous iteration's order; 0: none
  BackwardPrefetch backward = BackwardPrefetch::kPre;
  bool operator==(const PrefetchOptions&) const = default;
};

/// What happens to gathered values between forward and backward. Unset: they are released, with two
/// exceptions. The root keeps its values, because backward needs them first. A group whose shard
/// axis has one rank keeps values of another dtype than its parameters' (unless they are
/// offloaded), because a second gather would only cast them again; their memory also stays between
/// steps, where Adam and AdamW write the new values. `true`: released. `false`: kept.
/// An integer n >= 1 that divides the ranks of the shard axis: each rank keeps 1/n, so backward
/// gathers among n neighbouring ranks only; 1 means `false`, all ranks means `true`. By default
/// nothing is kept if no result of the forward requires a gradient.
class ReshardAfterForward {
 public:
  ReshardAfterForward() = default;
  ReshardAfterForward(std::nullopt_t) {}                                   // NOLINT(*-explicit-*)
  ReshardAfterForward(bool reshard) : reshard_(reshard) {}                 // NOLINT(*-explicit-*)
  ReshardAfterForward(int ranks) : ranks_(ranks) {}                        // NOLINT(*-explicit-*)
  ReshardAfterForward(std::optional<bool> reshard) : reshard_(reshard) {}  // NOLINT(*-explicit-*)

  bool is_set() const { return reshard_.has_value() || ranks_.has_value(); }
  const std::optional<bool>& reshard() const { return reshard_; }
  const std::optional<int>& ranks() const { return ranks_; }
  bool operator==(const ReshardAfterForward&) const = default;

 private:
  std::optional<bool> reshard_;
  std::optional<int> ranks_;
};

/// Dtypes other than the stored dtype. local(), optimizer state and grad() keep the stored dtype,
/// so f32 parameters are their own master copy.
struct MixedPrecision {
  /// Dtype of value(): shards are cast before the gather. Unset, or the stored dtype: no cast.
  std::optional<DType> param_dtype = std::nullopt;
  /// Dtype of gradients from the first write into their slot until they are reduced, so gradient
  /// accumulation without communication uses it. Unset: the dtype of value() (the widest one, if
  /// the group's values differ).
  std::optional<DType> reduce_dtype = std::nullopt;
  /// Floating-point results of the module's forward are cast to it. Unset: no cast. Leave it unset
  /// for inner modules whose results go to modules that compute in 16 bits.
  std::optional<DType> output_dtype = std::nullopt;
  /// Floating-point buffers of the managed modules are cast to it; state dicts keep the stored
  /// dtype.
  std::optional<DType> buffer_dtype = std::nullopt;
  /// Floating-point arguments of the module's forward are cast to param_dtype (backward casts
  /// back).
  bool cast_forward_inputs = true;
  /// grad() has the reduce dtype instead of the stored dtype.
  bool keep_low_precision_gradients = false;
  /// Modules below that compute in the stored dtype: their own parameters are not cast, their
  /// arguments are cast to the stored dtype and their results back to param_dtype. See is_norm(). A
  /// norm that is called with a residual also adds it in the stored dtype: both inputs are cast,
  /// which costs one kernel and two passes over memory more than adding before the call. The sum is
  /// returned in param_dtype like any result.
  std::function<bool(const nn::Module&)> exempt = {};
};

/// For MixedPrecision::exempt: true for LayerNorm, RMSNorm, GroupNorm and every BatchNorm class.
bool is_norm(const nn::Module& module);

/// Shards, their gradients and the optimizer's step are on the host. Values are copied to the
/// device when they are gathered, gradients to the host when they are reduced.
struct CpuOffload {
  /// Shards and gradients are in page-locked memory if there is a GPU: copies in both directions
  /// overlap other work, and the host waits only when it next uses the copied data. false: the host
  /// copies through pinned staging buffers and waits for gradients. In both cases the host waits
  /// for a gradient that is added to one of an earlier pass.
  bool pin_memory = true;
  bool operator==(const CpuOffload&) const = default;
};

/// The dim along which a parameter is sharded; nullopt: Shard{0}. Negative dims count from the
/// back. A dim other than 0 must be divisible by the number of ranks.
using ShardPlacement = std::function<std::optional<distributed::Shard>(const nn::Parameter&)>;
/// Null: the parameter is gathered without an extension.
using ExtensionOf = std::function<std::shared_ptr<GatherExtension>(const nn::Parameter&)>;

struct FullyShardOptions {
  /// Required. One axis: parameters are sharded over it. Two axes (HSDP): the first replicates, the
  /// second shards.
  distributed::DeviceMesh mesh;
  ReshardAfterForward reshard_after_forward = {};
  MixedPrecision mixed_precision = {};
  std::optional<CpuOffload> offload = std::nullopt;
  ShardPlacement shard_placement = {};
  /// Neither moved, sharded nor reduced: the caller handles their gradients. An ignored module
  /// includes everything below it.
  std::vector<nn::Parameter> ignored_parameters = {};
  std::vector<nn::Module*> ignored_modules = {};
  /// Two axes only: local(), grad() and optimizer state are sharded over both. Once per step the
  /// shard is all-gathered over the replica axis, and gradients are reduce-scattered over it.
  bool shard_optimizer_over_replicas = false;
  ExtensionOf gather_extension = {};
};

struct ReplicateOptions {
  distributed::DeviceMesh mesh;  ///< required; one axis
  MixedPrecision mixed_precision = {};
  std::optional<CpuOffload> offload = std::nullopt;
  std::vector<nn::Parameter> ignored_parameters = {};
  std::vector<nn::Module*> ignored_modules = {};
};

}  // namespace tessera::fsdp
