#pragma once

/// y = (x - mean) / sqrt(variance + eps) * weight + bias, each channel of a sample over its own places.
///
///     InstanceNorm1d: x [N, C, L] or [C, L]      InstanceNorm2d: x [N, C, H, W] or [C, H, W]
///     weight [C], starts as 1; bias [C], as 0: with affine, which is off unless asked for
///     buffers, with track_running_stats: running_mean [C], starts as 0; running_var [C], as 1; num_batches_tracked,
///     i64, which stays 0, as in PyTorch
///
/// With track_running_stats training updates running = (1 - momentum) running + momentum new by the means over the
/// samples, and evaluation normalises with the running statistics; a forward that runs again for backward (recompute)
/// updates nothing. The variance divides by the count, the running one by the count - 1. Computed and summed in f32 for
/// 16 bits, rounded once; weight and bias may then be f32 too. (Ulyanov et al., "Instance normalization", 2016.)

#include <concepts>
#include <cstdint>
#include <optional>

#include "tessera/nn/layer.h"

namespace tessera::nn {

struct InstanceNormOptions {
  std::int64_t channels = 0;  ///< required, >= 1
  double eps = 1e-5;
  double momentum = 0.1;  ///< in [0, 1]
  bool affine = false;
  bool track_running_stats = false;
  DType dtype = DType::kF32;
};

namespace detail {

/// Both layers; Derived says how many dims an input has.
template <class Derived>
class InstanceNorm : public Layer<Derived> {
 public:
  using Options = InstanceNormOptions;
  /// Throws InvalidArgument for channels below 1, a negative eps and a momentum outside [0, 1].
  explicit InstanceNorm(const InstanceNormOptions& options);
  InstanceNorm(std::integral auto, const auto&...) = delete;  ///< {.channels = 8}

  /// Throws InvalidArgument when x has other channels or dims, or another dtype; and, where statistics are those of x,
  /// for fewer than 2 places.
  Variable forward(const Variable& x);

  bool has_weight() const { return weight_.has_value(); }
  bool has_running_stats() const { return running_mean_.has_value(); }
  /// Throw StateError when built without.
  Parameter& weight();
  Parameter& bias();
  Buffer& running_mean();
  Buffer& running_var();

 private:
  Buffer& buffer(std::optional<Buffer>& buffer) const;

  std::int64_t channels_;
  double eps_;
  double momentum_;
  std::optional<Parameter> weight_, bias_;
  std::optional<Buffer> running_mean_, running_var_, num_batches_tracked_;
};

}  // namespace detail

class InstanceNorm1d final : public detail::InstanceNorm<InstanceNorm1d> {
 public:
  using InstanceNorm::InstanceNorm;
  static constexpr const char* kName = "nn.InstanceNorm1d";
  static constexpr const char* kInput = "[samples, {0}, length] or [{0}, length]";
  static constexpr int kDims = 3;
};

class InstanceNorm2d final : public detail::InstanceNorm<InstanceNorm2d> {
 public:
  using InstanceNorm::InstanceNorm;
  static constexpr const char* kName = "nn.InstanceNorm2d";
  static constexpr const char* kInput = "[samples, {0}, height, width] or [{0}, height, width]";
  static constexpr int kDims = 4;
};

extern template class detail::InstanceNorm<InstanceNorm1d>;
extern template class detail::InstanceNorm<InstanceNorm2d>;

}  // namespace tessera::nn
