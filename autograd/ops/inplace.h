#pragma once

/// Operations in place on variables; in_place.h says which variables they may be used on. All are
/// twice.
///
/// The first operand is written and keeps its shape and dtype. Shapes, dtypes and errors are those
/// of the tensor operations of the same names (ops/elementwise.h). Both operands may be the same
/// variable.

#include <type_traits>
#include <vector>

#include "tessera/autograd/variable.h"
#include "tessera/tensor/ops/index.h"

namespace tessera {

namespace detail {

inline const Variable& in_place_operand(const Variable&, const Variable& y) { return y; }
inline Variable in_place_operand(const Variable&, const Tensor& y) { return Variable(y); }
/// An integer has x's dtype. A fraction stays one, so that an integer x refuses it.
template <class T>
requires std::is_arithmetic_v<T> Variable in_place_operand(const Variable& x, T y) {
  const DType dtype =
      std::is_floating_point_v<T> && !is_floating(x.dtype()) ? DType::kF32 : x.dtype();
  return Variable(Tensor::scalar(static_cast<double>(y), {.dtype = dtype, .device = x.device()}));
}

}  // namespace detail

void add_(const Variable& x, const Variable& b);
void sub_(const Variable& x, const Variable& b);
/// Keeps a copy of x when b requires a gradient.
void mul_(const Variable& x, const Variable& b);
void div_(const Variable& x, const Variable& b);
/// x += alpha b, x -= alpha b.
void add_(const Variable& x, const Variable& b, double alpha);
void sub_(const Variable& x, const Variable& b, double alpha);
void add_(const Variable& x, double b);
void mul_(const Variable& x, double b);
/// y is a variable, a tensor as a constant, or a number.
template <class T>
const Variable& operator+=(const Variable& x, const T& y) {
  add_(x, detail::in_place_operand(x, y));
  return x;
}
template <class T>
const Variable& operator-=(const Variable& x, const T& y) {
  sub_(x, detail::in_place_operand(x, y));
  return x;
}
template <class T>
const Variable& operator*=(const Variable& x, const T& y) {
  mul_(x, detail::in_place_operand(x, y));
  return x;
}
template <class T>
const Variable& operator/=(const Variable& x, const T& y) {
  div_(x, detail::in_place_operand(x, y));
  return x;
}

void neg_(const Variable& x);
void exp_(const Variable& x);
void sqrt_(const Variable& x);
void tanh_(const Variable& x);
void sigmoid_(const Variable& x);
void relu_(const Variable& x);
/// Between two numbers; the gradient passes where low <= x <= high.
void clamp_(const Variable& x, double low, double high);
/// With one bound; the gradient passes where x >= low, or x <= high.
void clamp_min_(const Variable& x, double low);
void clamp_max_(const Variable& x, double high);
/// x = value where the mask is not 0; the mask broadcasts. No gradient passes there.
void masked_fill_(const Variable& x, const Tensor& mask, double value);

// These compute the result beside x, with the function without the underscore, and copy it into x.
// Errors of indices and shapes name that function.

/// The mask broadcasts to x's shape.
void masked_scatter_(const Variable& x, const Tensor& mask, const Variable& source);
void scatter_(const Variable& x, int dim, const Tensor& index, const Variable& src);
void scatter_add_(const Variable& x, int dim, const Tensor& index, const Variable& src);
void index_add_(const Variable& x, int dim, const Tensor& index, const Variable& src,
                const IndexAddOptions& options = {});
void index_copy_(const Variable& x, int dim, const Tensor& index, const Variable& src);
void index_fill_(const Variable& x, int dim, const Tensor& index, double value);
void index_put_(const Variable& x, const std::vector<Tensor>& indices, const Variable& values,
                const IndexPutOptions& options = {});

/// x = source, of the same shape, converted to x's dtype. The gradient goes to source; none goes to
/// what x was.
void copy_(const Variable& x, const Variable& source);
/// The old value of x gets no gradient.
void fill_(const Variable& x, double value);
void zero_(const Variable& x);

}  // namespace tessera
