#pragma once

/// Normalisation: layer, RMS, group and batch norm, and their derivatives.
///
/// y = (x - mean) * rstd * weight + bias. x is floating, of any strides; y is contiguous, of x's
/// shape and dtype. weight and bias may be undefined (1 and 0) and are of x's dtype or of the one
/// that it is computed in (f32 for 16 bits), in which statistics and the gradients of weight and
/// bias are. Variances are those of differences from the mean, so that they stay exact where the
/// mean is large; the mean itself is rounded to that dtype. Sums are cut by shape alone.
///
/// All throw InvalidArgument for shapes, dtypes and devices that do not fit.

#include "tessera/tensor/tensor.h"

namespace tessera {

/// What backward needs of the forward; for layer and group norm one number for each normalised row,
/// for batch norm one for each channel.
struct NormStatistics {
  Tensor mean;  ///< undefined for rms_norm
  Tensor rstd;  ///< 1 / sqrt(variance + eps), the variance that divides by the count
};
struct NormResult {
  Tensor y;
  NormStatistics statistics;
};

// ---- layer, RMS and group norm ------------------------------------------------------------------

struct LayerNormOptions {
  int dims = 1;  ///< the last so many dims are normalised together, >= 1
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
/// y = x * rstd * weight, rstd = 1 / sqrt(mean of squares + eps). As layer_norm without a mean
/// (Zhang and Sennrich, "Root mean square layer normalization", 2019).
NormResult rms_norm_forward(const Tensor& x, const Tensor& weight,
                            const RmsNormOptions& options = {});
inline Tensor rms_norm(const Tensor& x, const Tensor& weight, const RmsNormOptions& options = {}) {
  return rms_norm_forward(x, weight, options).y;
}

struct GroupNormOptions {
  std::int64_t groups = 1;  ///< divides the channels
  double eps = 1e-5;
};
/// x [samples, channels, ...]: each group of neighbouring channels of a sample is normalised.
/// Statistics [samples, groups]; weight and bias [channels]. (Wu and He, "Group normalization",
/// 2018.)
NormResult group_norm_forward(const Tensor& x, const Tensor& weight, const Tensor& bias,
                              const GroupNormOptions& options = {});
inline Tensor group_norm(const Tensor& x, const Tensor& weight, const Tensor& bias,
                         const GroupNormOptions& options = {}) {
  return group_norm_forward(x, weight, bias, options).y;
}

/// A norm of a sum, as a transformer's residual stream has it, in one pass over memory.
struct AddNormResult {
  Tensor y;    ///< the norm of `sum`
  Tensor sum;  ///< x + residual, in x's dtype
  NormStatistics statistics;
};
/// The bits of add(x, residual) and then the norm; its derivative is row_norm_backward at `sum`. x
/// and residual have one shape and dtype; sum is contiguous.
AddNormResult add_layer_norm_forward(const Tensor& x, const Tensor& residual, const Tensor& weight,
                                     const Tensor& bias, const LayerNormOptions& options = {});
AddNormResult add_rms_norm_forward(const Tensor& x, const Tensor& residual, const Tensor& weight,
                                   const RmsNormOptions& options = {});

struct NormBackwardOptions {
  int dims = 1;             ///< as in the forward of layer_norm and rms_norm
  std::int64_t groups = 0;  ///< as in the forward of group_norm; 0 for the others
  bool needs_x = true;
  bool needs_weight = true;
  bool needs_bias = true;
};
/// Undefined where not needed; weight and bias in the dtype of the statistics.
struct NormGradients {
  Tensor x;
  Tensor weight;
  Tensor bias;
};
/// Of all three; it is rms_norm where statistics.mean is undefined. weight may be undefined.
NormGradients row_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& weight,
                                const NormStatistics& statistics,
                                const NormBackwardOptions& options = {});

// ---- batch norm ---------------------------------------------------------------------------------

struct BatchNormOptions {
  Tensor running_mean = {};  ///< [channels], floating, contiguous; updated in training
  Tensor running_var = {};   ///< with the variance that divides by count - 1
  bool training = true;      ///< with the statistics of x; else with the running ones
  double momentum = 0.1;     ///< running = (1 - momentum) running + momentum new
  double eps = 1e-5;
};
struct BatchNormResult {
  Tensor y;
  NormStatistics statistics;  ///< what y was made with
  Tensor count;               ///< 0-d f64: elements of a channel; undefined unless training
};
/// x [samples, channels, ...]; statistics are over all other dims. Training needs at least 2
/// elements in a channel, and running statistics only to update them; not training, they are
/// required. (Ioffe and Szegedy, "Batch normalization", 2015.)
BatchNormResult batch_norm_forward(const Tensor& x, const Tensor& weight, const Tensor& bias,
                                   const BatchNormOptions& options = {});
inline Tensor batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias,
                         const BatchNormOptions& options = {}) {
  return batch_norm_forward(x, weight, bias, options).y;
}

// Its pieces, between which statistics of several ranks can be put together: with count, mean and
// m2 of each rank r
//     count = sum count_r          mean = sum mean_r count_r / count
//     m2 = sum m2_r + sum count_r (mean_r - mean)^2
// and in the derivative the sums are sums over ranks.

/// Of the elements here; x may hold none, then all are 0.
struct BatchStatistics {
  Tensor mean;   ///< [channels]
  Tensor m2;     ///< [channels]: the sum of squared differences from mean
  Tensor count;  ///< 0-d, f64
};
BatchStatistics batch_norm_statistics(const Tensor& x);

/// 1 / sqrt(m2 / count + eps); also updates the running statistics that options hold. A count below
/// 2 leaves the running variance alone.
Tensor batch_norm_rstd(const BatchStatistics& statistics, const BatchNormOptions& options);

/// y with given statistics [channels].
Tensor batch_norm_apply(const Tensor& x, const Tensor& weight, const Tensor& bias,
                        const NormStatistics& statistics);

struct BatchNormSums {
  Tensor dy;         ///< [channels]: the gradient of bias
  Tensor dy_normal;  ///< of dy * (x - mean) * rstd: the gradient of weight
  Tensor count;      ///< 0-d f64: as many elements as the statistics are of
};
/// Over the elements here; without count.
BatchNormSums batch_norm_sums(const Tensor& dy, const Tensor& x, const NormStatistics& statistics);

/// dx = weight * rstd * (dy - sums.dy / count - normal(x) * sums.dy_normal / count); where the
/// statistics did not come from x (sums.count undefined) dx = weight * rstd * dy.
Tensor batch_norm_input_gradient(const Tensor& dy, const Tensor& x, const Tensor& weight,
                                 const NormStatistics& statistics, const BatchNormSums& sums);

}  // namespace tessera
