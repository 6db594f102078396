#pragma once

/// y = (x - mean) / sqrt(variance + eps) * weight + bias, each channel over all samples and places.
///
///     BatchNorm1d: x [N, C] or [N, C, L]      BatchNorm2d: x [N, C, H, W]
///     weight [C], starts as 1; bias [C], as 0
///     buffers: running_mean [C], starts as 0; running_var [C], as 1; num_batches_tracked, i64, 0
///
/// While training, mean and variance (which divides by the count n) are those of the batch, and
///
///     running = (1 - momentum) running + momentum batch's
///
/// with the variance that divides by n - 1; momentum = nullopt: 1 / num_batches_tracked, the plain
/// average over all batches. In evaluation the running statistics take the batch's place; without
/// them (track_running_stats = false) it is the batch's there too. A forward that runs again for
/// backward (recompute) updates nothing. (Ioffe and Szegedy, "Batch normalization", 2015.)
///
/// Computed and summed in f32 for 16 bits, rounded once; there the running statistics are f32,
/// which PyTorch's are not, and weight and bias may be. All of PyTorch's options but device (see
/// nn::initialize).
///
/// Synchronised: with a mesh, a training batch is that of all ranks along one of its axes, which
/// may bring different numbers of samples, also none: y, the running statistics and the gradient of
/// x are those of one BatchNorm over the whole batch. Gradients of weight and bias are sums over
/// this rank's samples, to be reduced as any parameter's. Two all-reduces in forward and one in
/// backward: all ranks must run both. Differentiable once, not twice. Without a mesh each rank has
/// statistics of its own, so its buffers differ too, and saving those of rank 0 saves statistics
/// that the other ranks did not evaluate with. synchronize_batch_norms() sets the mesh of all batch
/// norms of a model.

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/nn/layer.h"
#include "tessera/nn/layers/sync_batch_norm.h"
#include "tessera/nn/mesh/mesh.h"

namespace tessera::nn {

struct BatchNormOptions {
  std::int64_t channels = 0;  ///< required, >= 1
  double eps = 1e-5;
  std::optional<double> momentum = 0.1;        ///< in [0, 1]
  bool affine = true;                          ///< false: neither weight nor bias
  bool bias = true;                            ///< false: a weight alone
  bool track_running_stats = true;             ///< false: no buffers
  std::shared_ptr<const Mesh> mesh = nullptr;  ///< null: this rank's samples alone
  std::string axis = {};                       ///< of mesh; "": its only one
  DType dtype = DType::kF32;
};

namespace detail {

/// Both layers; Derived says how many dims an input has.
template <class Derived>
class BatchNorm : public Layer<Derived> {
 public:
  using Options = BatchNormOptions;
  /// Throws InvalidArgument for channels below 1, a negative eps, a momentum outside [0, 1], and as
  /// synchronize().
  explicit BatchNorm(const BatchNormOptions& options);
  BatchNorm(std::integral auto, const auto&...) = delete;  ///< {.channels = 8}

  /// Throws InvalidArgument when x has other channels or dims, or another dtype; and, where
  /// statistics are those of this rank's batch, for fewer than 2 elements in a channel. (Over
  /// several ranks their number is not known without waiting; there the variance of one element is
  /// 0.)
  Variable forward(const Variable& x);

  /// Over the ranks of `axis` from now on ("": the mesh's only one); null: not. Throws
  /// InvalidArgument for an axis that the mesh has not.
  void synchronize(std::shared_ptr<const Mesh> mesh, std::string axis = {});
  bool is_synchronized() const { return ranks_.mesh != nullptr; }
  /// Whether the running statistics have batches of this rank alone in them: a training forward
  /// updated them without a mesh since they were last set otherwise, by reset_running_stats(),
  /// nn::initialize() or a load.
  bool has_local_batches() const;
  /// To the initial values.
  void reset_running_stats();

  bool has_weight() const { return weight_.has_value(); }
  bool has_bias() const { return bias_.has_value(); }
  bool has_running_stats() const { return running_mean_.has_value(); }
  /// Throw StateError when built without.
  Parameter& weight();
  Parameter& bias();
  Buffer& running_mean();
  Buffer& running_var();
  Buffer& num_batches_tracked();

 private:
  void check_input(const Variable& x) const;
  void note_batch(bool is_local);
  Variable evaluated(const Variable& x) const;
  Variable with_batch_statistics(const Variable& x, const tessera::BatchNormOptions& options) const;
  Variable with_cumulative_average(const Variable& x, tessera::BatchNormOptions options);
  Buffer& buffer(std::optional<Buffer>& buffer) const;

  std::int64_t channels_;
  double eps_;
  std::optional<double> momentum_;
  RanksOfBatch ranks_;
  // The running mean as the last training forward left it, if that has local batches in it. A write
  // by others gives it another version.
  struct RunningMean {
    std::uint64_t storage = 0, version = 0;
  };
  std::optional<RunningMean> local_mean_;
  std::optional<Parameter> weight_, bias_;
  std::optional<Buffer> running_mean_, running_var_, num_batches_tracked_;
};

}  // namespace detail

class BatchNorm1d final : public detail::BatchNorm<BatchNorm1d> {
 public:
  using BatchNorm::BatchNorm;
  static constexpr const char* kName = "nn.BatchNorm1d";
  static constexpr const char* kInput = "[samples, {0}] or [samples, {0}, length]";
  static constexpr int kMinDims = 2, kMaxDims = 3;
};

class BatchNorm2d final : public detail::BatchNorm<BatchNorm2d> {
 public:
  using BatchNorm::BatchNorm;
  static constexpr const char* kName = "nn.BatchNorm2d";
  static constexpr const char* kInput = "[samples, {0}, height, width]";
  static constexpr int kMinDims = 4, kMaxDims = 4;
};

/// Calls synchronize(mesh, axis) of every BatchNorm1d and BatchNorm2d in `module`, itself included,
/// and returns their number: 0 is no error. Sharding neither does nor needs it; it may come before
/// or after fully_shard, before the first training step. Throws InvalidArgument for a null mesh and
/// as synchronize(), before any layer has changed.
///
///     nn::synchronize_batch_norms(model, world.mesh());
int synchronize_batch_norms(Module& module, const MeshArgument& mesh, const std::string& axis = {});
/// The names in `module` of the batch norms for which has_local_batches() is true.
std::vector<std::string> batch_norms_with_local_batches(Module& module);

extern template class detail::BatchNorm<BatchNorm1d>;
extern template class detail::BatchNorm<BatchNorm2d>;

}  // namespace tessera::nn
