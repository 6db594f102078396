#pragma once

/// Normalisation: layer, RMS, group and batch norm, and their derivatives.
///
/// y = (x - mean) * rstd * weight + bias. x is floating, with any strides; y is contiguous, with
/// x's shape and dtype. weight and bias may be undefined (1 and 0); their dtype is x's or x's
/// compute dtype (f32 for 16 bits). Statistics, and the gradients of weight and bias, are in the
/// compute dtype. A variance is computed from differences from the mean, so that it is accurate for
/// large means; the mean itself is rounded to the compute dtype. Sums are split by shape alone.
///
/// All functions throw InvalidArgument for shapes, dtypes and devices that do not match.

#include <optional>

#include "tessera/tensor/tensor.h"

namespace tessera {

/// What backward needs from the forward: one number for each normalised row (layer, RMS and group
/// norm) or for each channel (batch norm).
struct NormStatistics {
  Tensor mean;  ///< undefined for rms_norm
  Tensor rstd;  ///< 1 / sqrt(variance + eps), the variance with divisor count
};
struct NormResult {
  Tensor y;
  NormStatistics statistics;
};

// ---- layer, RMS and group norm ------------------------------------------------------------------

struct LayerNormOptions {
  int dims = 1;  ///< the number of trailing dims that are normalised together, >= 1
  double eps = 1e-5;
};
/// Statistics [leading dims]; weight and bias have the shape of the last `dims` dims.
NormResult layer_norm_forward(const Tensor& x, const Tensor& weight, const Tensor& bias,
                              const LayerNormOptions& options = {});
inline Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias,
                         const LayerNormOptions& options = {}) {
  return layer_norm_forward(x, weight, bias, options).y;
}

struct RmsNormOptions {
  int dims = 1;
  double eps = 1e-6;
};
/// y = x * rstd * weight, rstd = 1 / sqrt(mean of squares + eps): layer_norm without a mean (Zhang
/// and Sennrich, "Root mean square layer normalization", 2019).
NormResult rms_norm_forward(const Tensor& x, const Tensor& weight,
                            const RmsNormOptions& options = {});
inline Tensor rms_norm(const Tensor& x, const Tensor& weight, const RmsNormOptions& options = {}) {
  return rms_norm_forward(x, weight, options).y;
}

struct GroupNormOptions {
  std::int64_t groups = 1;  ///< divides the channels
  double eps = 1e-5;
};
/// x [samples, channels, ...]: each group of adjacent channels of a sample is normalised.
/// Statistics [samples, groups]; weight and bias [channels]. (Wu and He, "Group normalization",
/// 2018.)
NormResult group_norm_forward(const Tensor& x, const Tensor& weight, const Tensor& bias,
                              const GroupNormOptions& options = {});
inline Tensor group_norm(const Tensor& x, const Tensor& weight, const Tensor& bias,
                         const GroupNormOptions& options = {}) {
  return group_norm_forward(x, weight, bias, options).y;
}

/// The norm of a sum, as in a transformer's residual stream, in one pass over memory.
struct AddNormResult {
  Tensor y;    ///< the norm of `sum`
  Tensor sum;  ///< x + residual, in x's dtype
  NormStatistics statistics;
};
/// The same bits as add(x, residual) followed by the norm; the derivative is row_norm_backward at
/// `sum`. x and residual have one shape and dtype; sum is contiguous.
AddNormResult add_layer_norm_forward(const Tensor& x, const Tensor& residual, const Tensor& weight,
                                     const Tensor& bias, const LayerNormOptions& options = {});
AddNormResult add_rms_norm_forward(const Tensor& x, const Tensor& residual, const Tensor& weight,
                                   const RmsNormOptions& options = {});

struct NormBackwardOptions {
  int dims = 1;             ///< as in the forward of layer_norm and rms_norm
  std::int64_t groups = 0;  ///< as in the forward of group_norm; 0 for the other norms
  bool needs_x = true;
  bool needs_weight = true;
  bool needs_bias = true;
  /// Of the gradients of weight and bias: x's dtype, or the statistics', which is the default.
  std::optional<DType> weight_dtype = {};
  std::optional<DType> bias_dtype = {};
};
/// Undefined if not requested.
struct NormGradients {
  Tensor x;
  Tensor weight;
  Tensor bias;
};
/// For layer, RMS and group norm; an undefined statistics.mean selects rms_norm. weight may be
/// undefined. `added` is undefined, or like x: then it is added to the gradient of x, with the bits
/// of an addition afterwards.
NormGradients row_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& weight,
                                const NormStatistics& statistics,
                                const NormBackwardOptions& options = {}, const Tensor& added = {});

struct InstanceNormOptions {
  Tensor running_mean = {};  ///< [channels], floating, contiguous; or undefined, as running_var
  Tensor running_var = {};
  bool use_input_stats =
      true;               ///< false: normalise with the running statistics, as batch_norm does
  double momentum = 0.1;  ///< running = (1 - momentum) running + momentum new
  double eps = 1e-5;
};
/// x [samples, channels, ...], at least 3 dims: each channel of a sample is normalised over its places, of which
/// use_input_stats needs 2 or more. weight and bias [channels]. Running statistics, if there are, are updated with the
/// means over the samples of mean and variance (of divisor count - 1). (Ulyanov et al., "Instance normalization",
/// 2016.)
Tensor instance_norm(const Tensor& x, const Tensor& weight, const Tensor& bias,
                     const InstanceNormOptions& options = {});

struct LocalResponseNormOptions {
  std::int64_t size = 0;  ///< required, >= 1: the channels of a window
  double alpha = 1e-4;
  double beta = 0.75;
  double k = 1;
};
/// x / (k + alpha * mean of squares)^beta. x [samples, channels, ...], at least 3 dims; the mean is over `size`
/// channels from c - size / 2 on, those outside counting as 0. (Krizhevsky et al., 2012.)
Tensor local_response_norm(const Tensor& x, const LocalResponseNormOptions& options);

// ---- batch norm ---------------------------------------------------------------------------------

struct BatchNormOptions {
  Tensor running_mean = {};  ///< [channels], floating, contiguous; updated in training
  Tensor running_var = {};   ///< updated with the variance of divisor count - 1
  bool training = true;      ///< use the statistics of x; else the running ones
  double momentum = 0.1;     ///< running = (1 - momentum) running + momentum new
  double eps = 1e-5;
};
struct BatchNormResult {
  Tensor y;
  NormStatistics statistics;  ///< the statistics that y was computed with
  Tensor count;               ///< 0-d f64: elements per channel; undefined unless training
};
/// x [samples, channels, ...]; statistics are over all dims but the channels. Training needs at
/// least 2 elements per channel; running statistics are then optional, and updated. Without
/// training they are required. (Ioffe and Szegedy, "Batch normalization", 2015.)
BatchNormResult batch_norm_forward(const Tensor& x, const Tensor& weight, const Tensor& bias,
                                   const BatchNormOptions& options = {});
inline Tensor batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias,
                         const BatchNormOptions& options = {}) {
  return batch_norm_forward(x, weight, bias, options).y;
}

// The parts of batch norm, between which the statistics of several ranks can be combined. With
// count, mean and m2 of each rank r
//     count = sum count_r          mean = sum mean_r count_r / count
//     m2 = sum m2_r + sum count_r (mean_r - mean)^2
// In the derivative the sums are summed over the ranks.

/// Of this rank's elements; x may be empty, then all are 0.
struct BatchStatistics {
  Tensor mean;   ///< [channels]
  Tensor m2;     ///< [channels]: the sum of squared differences from mean
  Tensor count;  ///< 0-d, f64
};
BatchStatistics batch_norm_statistics(const Tensor& x);

/// 1 / sqrt(m2 / count + eps); also updates the running statistics in `options`. A count below 2
/// does not change the running variance.
Tensor batch_norm_rstd(const BatchStatistics& statistics, const BatchNormOptions& options);

/// y with given statistics [channels].
Tensor batch_norm_apply(const Tensor& x, const Tensor& weight, const Tensor& bias,
                        const NormStatistics& statistics);

struct BatchNormSums {
  Tensor dy;         ///< [channels]: the sum of dy, the gradient of bias
  Tensor dy_normal;  ///< the sum of dy * (x - mean) * rstd: the gradient of weight
  Tensor count;      ///< 0-d f64: the number of elements in the statistics
};
/// Over this rank's elements; count is not set.
BatchNormSums batch_norm_sums(const Tensor& dy, const Tensor& x, const NormStatistics& statistics);

/// dx = weight * rstd * (dy - sums.dy / count - normal(x) * sums.dy_normal / count). If the
/// statistics did not come from x (sums.count undefined), dx = weight * rstd * dy.
Tensor batch_norm_input_gradient(const Tensor& dy, const Tensor& x, const Tensor& weight,
                                 const NormStatistics& statistics, const BatchNormSums& sums);

}  // namespace tessera
