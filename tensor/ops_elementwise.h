#pragma once

/// Elementwise operations. Binary ones broadcast as NumPy does.

#include "tessera/tensor/tensor.h"

namespace tessera {

Tensor add(const Tensor& a, const Tensor& b);
Tensor sub(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, const Tensor& b);
Tensor div(const Tensor& a, const Tensor& b);  ///< floating dtypes only
/// For integer tensors the number must be whole.
Tensor add(const Tensor& a, double b);
Tensor mul(const Tensor& a, double b);

/// Floating dtypes only.
Tensor neg(const Tensor& x);
Tensor abs(const Tensor& x);
Tensor exp(const Tensor& x);
Tensor log(const Tensor& x);
Tensor sqrt(const Tensor& x);
Tensor square(const Tensor& x);
Tensor tanh(const Tensor& x);
Tensor relu(const Tensor& x);  ///< max(x, 0); NaN stays NaN
/// x * Phi(x), Phi the standard normal distribution function: the exact form, through erf.
Tensor gelu(const Tensor& x);

/// dy where x > 0, else 0.
Tensor relu_backward(const Tensor& dy, const Tensor& x);
/// dy * (Phi(x) + x * phi(x)).
Tensor gelu_backward(const Tensor& dy, const Tensor& x);

/// 1 where equal, else 0, as u8.
Tensor equal(const Tensor& a, const Tensor& b);

/// A contiguous copy; with a dtype, converted (floating to integer truncates
/// towards zero and clamps to the range; NaN gives 0).
Tensor clone(const Tensor& x);
Tensor cast(const Tensor& x, DType dtype);
/// x itself when contiguous, else a copy.
Tensor contiguous(const Tensor& x);
/// out = x, converted to out's dtype; both of one shape, any strides.
void copy_(const Tensor& out, const Tensor& x);

struct AxpbyOptions {
  double alpha = 1;  ///< factor of x
  double beta = 0;   ///< factor of what out holds; 0: out is not read
};
/// out = alpha * x + beta * out, computed in the wider of both dtypes, stored in out's. One shape,
/// any strides. This is the add-with-cast of gradient accumulation and the scale-and-cast of a
/// reduced shard.
void axpby_(const Tensor& out, const Tensor& x, const AxpbyOptions& options);

}  // namespace tessera
