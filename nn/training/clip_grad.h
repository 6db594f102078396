#pragma once

/// The norm of all gradients together, over every rank's shards, and gradients cut down by it.
///
///     backward(loss);
///     nn::clip_grad_norm(model.parameters(), 1.0);
///     optimizer.step();
///
/// Parameters may be sharded in any mixture: over one axis, several, axes of several meshes, or not
/// at all. A parameter that every rank holds whole counts once. Parameters without a gradient count
/// as zero, tied ones once. Every rank lists the same parameters and takes part, also one that has
/// no gradient or whose shards are empty: which collectives there are depends on the specs alone.
/// Nothing comes to the host but where said.

#include <span>

#include "tessera/nn/parameter.h"

namespace tessera::nn {

struct GradNormOptions {
  double norm_type = 2;  ///< p > 0; infinity: the largest magnitude
};
/// (sum of |g|^p over the elements of all gradients)^(1/p), as a 0-d f64 tensor equal on every
/// rank. Powers are added in f64 whatever the dtype. NaN where a gradient holds one.
///
/// With p = 2 one operation adds up the squares of all gradients that are sharded over the same
/// axes, and copies only those that are not contiguous: on a GPU two kernels for every 1,024
/// gradients, on a CPU one gradient after the other. Any other p takes several operations for each
/// gradient, with copies of one at a time: of its magnitudes, and but for infinity in f64. Each
/// sharded axis is all-reduced once, whatever the number of parameters, and of meshes that share
/// it. Throws InvalidArgument for another p. Collective.
Tensor grad_norm(std::span<const Parameter> parameters, const GradNormOptions& options = {});

struct ClipGradOptions {
  double norm_type = 2;             ///< as GradNormOptions
  bool error_if_nonfinite = false;  ///< throw where the norm is infinite or NaN: a host read
};
/// Multiplies every gradient in place by min(1, max_norm / (norm + 1e-6)), the contiguous ones in
/// one operation: PyTorch's coefficient, also where it is 1; returns the norm before clipping, as
/// grad_norm. An infinite norm turns gradients into 0 and NaN, a NaN into NaN. Throws
/// InvalidArgument for a max_norm that is negative or NaN, and StateError for a norm that is not
/// finite, if asked: on all ranks alike, gradients untouched. Collective.
Tensor clip_grad_norm(std::span<const Parameter> parameters, double max_norm,
                      const ClipGradOptions& options = {});

/// min(1, max_norm / (norm + 1e-6)), 0-d f64 on the device of `norm`, which is 0-d f64 as grad_norm
/// returns it. An optimizer can multiply by it while it reads the gradients, which saves a pass over
/// them, 3 ms a step for a thousand million parameters on an H100:
///
///     const Tensor norm = nn::grad_norm(model.parameters());
///     optimizer.step({.gradient_scale = nn::clip_coefficient(1.0, norm)});
///
/// Throws InvalidArgument for a max_norm that is negative or NaN.
Tensor clip_coefficient(double max_norm, const Tensor& norm);

/// The second half of clip_grad_norm, for a norm that is known already: multiplies every gradient
/// in place by clip_coefficient(max_norm, norm). Needs no other rank. Throws InvalidArgument for a
/// max_norm that is negative or NaN.
void clip_grads_with_norm(std::span<const Parameter> parameters, double max_norm,
                          const Tensor& norm);

/// Cuts every element of every gradient off at -max_value and max_value, in place; NaN stays. Needs
/// no other rank. Throws InvalidArgument for a max_value that is negative or NaN.
void clip_grad_value(std::span<const Parameter> parameters, double max_value);

}  // namespace tessera::nn
