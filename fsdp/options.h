#pragma once

/// What a caller of fully_shard and replicate can choose.

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "tessera/distributed/mesh/device_mesh.h"
#include "tessera/distributed/mesh/placement.h"
#include "tessera/fsdp/gather_extension.h"
#include "tessera/nn/module.h"

namespace tessera::fsdp {

/// When a gather is issued ahead of its use in backward.
enum class BackwardPrefetch : std::uint8_t {
  kPre,   ///< the preceding group of this forward's order, before a group's own backward computes
  kNone,  ///< not at all: each group gathers in its own pre-backward
};

/// Which gathers are issued ahead. The number of gathered buffers stays bounded as before: one in
/// use and the deeper of the two directions ahead, not counting held groups.
struct PrefetchOptions {
  int forward = 1;  ///< groups ahead in the order of the previous iteration; 0: none
  BackwardPrefetch backward = BackwardPrefetch::kPre;
  bool operator==(const PrefetchOptions&) const = default;
};

/// What becomes of a gathered value between forward and backward. Unset: it is released, except for
/// the root's, which backward needs first. `true`: released. `false`: kept. A number n >= 1 that
/// divides the ranks of the shard axis: each rank keeps 1/n, so that backward gathers among n
/// neighbours only; 1 is as false, all ranks as true. By default nothing is kept where no result of
/// forward needs a gradient.
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

/// Dtypes other than the stored one. local(), optimizer state and grad() stay in the stored dtype,
/// so f32 parameters are their own master copy.
struct MixedPrecision {
  /// Of value(): shards are cast before they are gathered. Unset, or the stored dtype: no cast.
  std::optional<DType> param_dtype = std::nullopt;
  /// Of gradients, from the first write into their slot until they are reduced, so accumulation
  /// without communication happens in it. Unset: the dtype of value() (where a group's differ, the
  /// widest).
  std::optional<DType> reduce_dtype = std::nullopt;
  /// Floating results of the module's forward are cast to it. Unset: they stay.
  std::optional<DType> output_dtype = std::nullopt;
  /// Floating buffers of the managed modules are cast to it; state dicts have their own dtype.
  std::optional<DType> buffer_dtype = std::nullopt;
  /// Floating arguments of the module's forward are cast to param_dtype (a derivative casts back).
  bool cast_forward_inputs = true;
  /// grad() keeps the reduce dtype instead of the stored one.
  bool keep_low_precision_gradients = false;
  /// Modules below that compute in the stored dtype: their own parameters are not cast, their
  /// arguments are cast to it and their results back to param_dtype. See is_norm(). A norm that is
  /// called with a residual adds it in the stored dtype too, which casts both and costs a kernel
  /// and two passes over memory more than adding before it; the sum comes back in param_dtype like
  /// any result.
  std::function<bool(const nn::Module&)> exempt = {};
};

/// For MixedPrecision::exempt: LayerNorm, RMSNorm, GroupNorm and BatchNorm of any kind, by type.
bool is_norm(const nn::Module& module);

/// Shards, their gradients and the optimizer's step on the host; values are copied to the device as
/// they are gathered, and gradients back when they are reduced.
struct CpuOffload {
  /// Shards and gradients are in page-locked memory, where there is a GPU: copies both ways run
  /// beside everything else, and the host waits only where it next touches what is copied. Else
  /// the host copies, through pinned pieces, and waits for gradients. A gradient that is added to
  /// one of an earlier pass is waited for in both cases.
  bool pin_memory = true;
  bool operator==(const CpuOffload&) const = default;
};

/// The dim along which a parameter is cut. Nothing: Shard{0}. Dims count from the back where
/// negative; another dim than 0 must be divisible by the ranks.
using ShardPlacement = std::function<std::optional<distributed::Shard>(const nn::Parameter&)>;
/// Null: the parameter travels as it is.
using ExtensionOf = std::function<std::shared_ptr<GatherExtension>(const nn::Parameter&)>;

struct FullyShardOptions {
  /// Required. One axis: parameters are split over it. Two: the first has replicas, the second
  /// splits (HSDP).
  distributed::DeviceMesh mesh;
  ReshardAfterForward reshard_after_forward = {};
  MixedPrecision mixed_precision = {};
  std::optional<CpuOffload> offload = std::nullopt;
  ShardPlacement shard_placement = {};
  /// Neither moved, sharded nor reduced: their gradients are the caller's. Modules: all that is
  /// below them too.
  std::vector<nn::Parameter> ignored_parameters = {};
  std::vector<nn::Module*> ignored_modules = {};
  /// Two axes only: local(), grad() and optimizer state are split over both. Once a step the shard
  /// is gathered among the replicas, and gradients are reduce-scattered among them.
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
