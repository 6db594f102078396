#pragma once

/// Random tensors. Each call draws from a new key: random::next_key("rand") and so on
/// (random_scope.h). manual_seed() or a StepScope therefore makes a run repeatable. For numbers
/// that must not depend on ranks or on the order of calls, fill by key and box: see
/// tensor/random.h.

#include <cstdint>

#include "tessera/tensor/ops/promotion.h"
#include "tessera/tensor/random.h"
#include "tessera/tensor/random_scope.h"
#include "tessera/tensor/tensor.h"

namespace tessera {

using random::manual_seed;

/// Uniform in [0, 1); floating only.
Tensor rand(const Shape& shape, const TensorOptions& options = {});
/// Standard normal; floating only.
Tensor randn(const Shape& shape, const TensorOptions& options = {});
/// Normal with the given mean and standard deviation; floating only. Throws for stddev < 0.
Tensor normal(double mean, double stddev, const Shape& shape, const TensorOptions& options = {});
/// Integers from low to high - 1. Throws unless low < high and the dtype can hold them.
Tensor randint(std::int64_t low, std::int64_t high, const Shape& shape,
               const TensorOptions& options = {.dtype = DType::kI64});
/// A permutation of 0 .. n-1.
Tensor randperm(std::int64_t n, const TensorOptions& options = {.dtype = DType::kI64});
/// 1 with the probability given by the element of p, else 0, in p's shape and dtype; floating only.
/// Probabilities outside [0, 1] count as 0 or 1.
Tensor bernoulli(const Tensor& p);
struct MultinomialOptions {
  bool replacement = false;  ///< an index may be drawn several times
};
/// Indices drawn with probabilities proportional to weights [..., n], floating: i64 [..., samples].
/// Without replacement they are distinct. Drawn in f64, also for 16-bit weights. Throws
/// InvalidArgument for samples < 0, and without replacement > n. Weights that are negative or not
/// finite, or fewer positive ones than samples without replacement (than 1 with it), are an
/// InvalidArgument too, thrown at once on an inline stream, by the next synchronize() on a queued
/// one.
Tensor multinomial(const Tensor& weights, std::int64_t samples,
                   const MultinomialOptions& options = {});
Tensor rand_like(const Tensor& x);
Tensor randn_like(const Tensor& x);

// Dropout. Its random numbers are found by position, so ranks, threads and a recomputed forward
// drop the same elements.

/// y = x / (1 - p) for kept elements, else 0. An element is kept if random::fill_uniform on an f32
/// tensor with this key and box gives at least p; the choice is the same for every dtype. p = 0
/// gives x, p = 1 zeros. The derivative is dropout of dy with the same p, key and box.
///
/// x is floating, with any strides, and is the box `box` of the global tensor. Throws
/// InvalidArgument for p outside [0, 1] and for a box that does not match x (see
/// random::fill_uniform).
Tensor dropout(const Tensor& x, double p, random::Key key, const random::Box& box);

struct DropoutResult {
  Tensor output;
  /// What dropout_backward reads, one bit per element: u8, of whole blocks of 512 elements. Undefined on a GPU, where
  /// dropout_backward draws the numbers again.
  Tensor mask;
};
/// dropout(), and the mask for its derivative. Throws what dropout throws.
DropoutResult dropout_with_mask(const Tensor& x, double p, random::Key key, const random::Box& box);
/// dropout of dy with the same p, key and box. With the mask it draws no numbers; an undefined mask is allowed. Throws
/// InvalidArgument for a mask of another shape or dtype, or on another device, beyond what dropout throws.
Tensor dropout_backward(const Tensor& dy, const Tensor& mask, double p, random::Key key,
                        const random::Box& box);

}  // namespace tessera
