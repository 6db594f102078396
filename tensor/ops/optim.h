#pragma once

/// Optimizer steps: one launch over a list of segments, each the real (unpadded) rows of one
/// parameter's shard.
///
/// All tensors of a segment are contiguous and have one shape and device; they may be empty. The
/// step of a 16-bit parameter is computed in f32 and rounded once; its state has the parameter's
/// dtype or f32. The state of other parameters has the parameter's dtype. A gradient may have any
/// floating dtype that is not wider than the compute dtype: f32 parameters accept 16-bit gradients
/// without a copy. Steps throw InvalidArgument if this does not hold. All parameters of a list have
/// one dtype and device.
///
/// `gradient_scale`, 0-d f64 on that device, may be undefined: gradients count as multiplied by it,
/// in the compute dtype, and stay as they are. It is read on the device: the coefficient of clipping
/// (nn/training/clip_grad.h) needs no pass of its own over the gradients.

#include <vector>

#include "tessera/tensor/tensor.h"

namespace tessera {

/// One parameter of an SGD step.
struct SgdSegment {
  Tensor parameter = {};
  Tensor gradient = {};
  Tensor momentum = {};  ///< undefined without momentum
  double lr = 0;
  double momentum_factor = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
  bool first_step = false;  ///< the momentum buffer is set to the gradient
  bool maximize = false;    ///< use the negative gradient
};

/// For each element, with PyTorch's definition:
///   g = +-gradient + weight_decay * p
///   m = first_step ? g : momentum_factor * m + (1 - dampening) * g
///   p -= lr * (nesterov ? g + momentum_factor * m : m)          (without momentum: p -= lr * g)
void sgd_step(const std::vector<SgdSegment>& segments, const Tensor& gradient_scale = {});

/// One parameter of a step of Adam or AdamW.
struct AdamSegment {
  Tensor parameter = {};
  Tensor gradient = {};
  Tensor exp_avg = {};         ///< m, zeros before the first step
  Tensor exp_avg_sq = {};      ///< v, likewise
  Tensor max_exp_avg_sq = {};  ///< amsgrad: the maximum of v so far; else undefined
  /// Any floating dtype: receives the new parameter, converted, in the same pass over memory.
  /// Undefined: no copy. For the 16-bit copy that ranks all-gather.
  Tensor copy = {};
  double lr = 1e-3;
  double beta1 = 0.9;  ///< in [0, 1); beta2 too
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  std::int64_t step = 1;        ///< the parameter's step number, from 1
  bool decoupled_decay = true;  ///< AdamW; false: Adam, decay is added to the gradient
  bool maximize = false;
};

/// For each element, with PyTorch's definition (Kingma and Ba, "Adam", 2014; Loshchilov and Hutter,
/// "Decoupled weight decay regularization", 2017):
///   decoupled: p *= 1 - lr * weight_decay, g = +-gradient; else g = +-gradient + weight_decay * p
///   m += (1 - beta1) (g - m);  v = beta2 v + (1 - beta2) g^2;  amsgrad: v = its maximum so far
///   p -= lr / (1 - beta1^step) * m / (sqrt(v) / sqrt(1 - beta2^step) + eps)
void adam_step(const std::vector<AdamSegment>& segments, const Tensor& gradient_scale = {});

/// One parameter of a step of Lion.
struct LionSegment {
  Tensor parameter = {};
  Tensor gradient = {};
  Tensor exp_avg = {};  ///< m, zeros before the first step
  double lr = 1e-4;
  double beta1 = 0.9;  ///< in [0, 1); beta2 too
  double beta2 = 0.99;
  double weight_decay = 0;
  bool maximize = false;
};

/// Per element (Chen et al., "Symbolic discovery of optimization algorithms", 2023):
///   g = +-gradient;  p -= lr * (sign(beta1 m + (1 - beta1) g) + weight_decay * p)
///   m = beta2 m + (1 - beta2) g
void lion_step(const std::vector<LionSegment>& segments, const Tensor& gradient_scale = {});

}  // namespace tessera
