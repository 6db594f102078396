#pragma once

/// Optimizer steps: one launch over a list of segments, each the real (unpadded) rows of one
/// parameter's shard.
///
/// All tensors of a segment are contiguous and of one shape and device; empty ones are legal. A
/// parameter of 16 bits is computed with in f32 and rounded once; its state may be of its own dtype
/// or of f32, that of others has the parameter's. A gradient may be of any floating dtype that is
/// not wider than what is computed in: 16-bit gradients of f32 parameters step without a copy.
/// Steps throw InvalidArgument where that does not hold; parameters of one list share dtype and
/// device.

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
  bool first_step = false;  ///< the momentum buffer starts as the gradient itself
  bool maximize = false;    ///< with the negative gradient
};

/// Per element, with PyTorch's definition:
///   g = +-gradient + weight_decay * p;  m = first_step ? g : momentum_factor * m + (1 - dampening)
///   * g; p -= lr * (nesterov ? g + momentum_factor * m : m)          (without momentum: p -= lr *
///   g)
void sgd_step(const std::vector<SgdSegment>& segments);

/// One parameter of a step of Adam or AdamW.
struct AdamSegment {
  Tensor parameter = {};
  Tensor gradient = {};
  Tensor exp_avg = {};         ///< m, zeros before the first step
  Tensor exp_avg_sq = {};      ///< v, likewise
  Tensor max_exp_avg_sq = {};  ///< amsgrad: the largest v so far; undefined without
  /// Of any floating dtype: becomes the new parameter, converted, in the same pass over memory.
  /// Undefined: none. For the 16-bit copy of which ranks gather the parameter.
  Tensor copy = {};
  double lr = 1e-3;
  double beta1 = 0.9;  ///< in [0, 1), as beta2
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  std::int64_t step = 1;        ///< of this parameter, from 1
  bool decoupled_decay = true;  ///< AdamW; false: Adam, decay is part of the gradient
  bool maximize = false;
};

/// Per element, with PyTorch's definition (Kingma and Ba, "Adam", 2014; Loshchilov and Hutter,
/// "Decoupled weight decay regularization", 2017):
///   decoupled: p *= 1 - lr * weight_decay, g = +-gradient; else g = +-gradient + weight_decay * p
///   m += (1 - beta1) (g - m);  v = beta2 v + (1 - beta2) g^2;  amsgrad: v = its largest so far
///   p -= lr / (1 - beta1^step) * m / (sqrt(v) / sqrt(1 - beta2^step) + eps)
void adam_step(const std::vector<AdamSegment>& segments);

/// One parameter of a step of Lion.
struct LionSegment {
  Tensor parameter = {};
  Tensor gradient = {};
  Tensor exp_avg = {};  ///< m, zeros before the first step
  double lr = 1e-4;
  double beta1 = 0.9;  ///< in [0, 1), as beta2
  double beta2 = 0.99;
  double weight_decay = 0;
  bool maximize = false;
};

/// Per element (Chen et al., "Symbolic discovery of optimization algorithms", 2023):
///   g = +-gradient;  p -= lr * (sign(beta1 m + (1 - beta1) g) + weight_decay * p)
///   m = beta2 m + (1 - beta2) g
void lion_step(const std::vector<LionSegment>& segments);

}  // namespace tessera
