#pragma once

/// The definitions of ops/activations.h. At a kink the derivative is PyTorch's: 0 for functions that are flat on one
/// side. For the .cc files that instantiate them.

#include <limits>

#include "tessera/tensor/ops/composed/operands.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/internal/along_dim.h"

namespace tessera::composed {

// clamp(x), but with slope 0 where it touches the bounds, and 1 at NaN.
template <class V>
V clamp_open(const V& x, double low, double high) {
  const Tensor& elements = plain(x);
  if constexpr (kIsTensor<V>) {
    return clamp(elements, low, high);
  } else {
    const Tensor outside = logical_or(le(elements, low), ge(elements, high));
    return where(outside, V(clamp(elements, low, high)), x);
  }
}

// The same with slope 0 at NaN, as PyTorch's hardsigmoid has.
template <class V>
V clamp_or_stop(const V& x, double low, double high) {
  const Tensor& elements = plain(x);
  if constexpr (kIsTensor<V>) {
    return clamp(elements, low, high);
  } else {
    const Tensor inside = logical_and(gt(elements, low), lt(elements, high));
    return where(inside, x, V(clamp(elements, low, high)));
  }
}

// min(x, 0), with slope 1 at 0, where relu has 0.
template <class V>
V negative_part(const V& x) {
  return clamp(x, -std::numeric_limits<double>::infinity(), 0);
}

template <class V>
V hardtanh(const char* where_, const V& x, double low, double high) {
  floating(where_, x);
  TESSERA_CHECK(low < high, where_, "min_val = {} must be below max_val = {}", low, high);
  return clamp_open(x, low, high);
}

template <class V>
V leaky_relu(const V& x, double negative_slope) {
  const Tensor& elements = floating("leaky_relu", x);
  return where(gt(elements, 0), x, mul(x, negative_slope));
}

template <class V>
V prelu(const V& x, const V& weight) {
  constexpr const char* kWhere = "prelu";
  const Tensor& elements = floating(kWhere, x);
  const Tensor& slopes = floating(kWhere, weight);
  ops::check_same_device(kWhere, elements, slopes);
  const std::int64_t count = slopes.numel();
  TESSERA_CHECK(slopes.ndim() <= 1 && (count == 1 || (x.ndim() >= 2 && x.dim(1) == count)), kWhere,
                "a weight of shape {} does not fit x of shape {}: it has 1 slope, or as many as x "
                "[samples, channels, ...] has channels",
                slopes.shape().str(), elements.shape().str());
  Shape shape = Shape::filled(x.ndim() < 2 ? x.ndim() : x.ndim() - 1, 1);
  if (count != 1) shape = shape.with(0, count);
  return where(gt(elements, 0), x, mul(x, reshape(weight, shape)));
}

// The constants at which mean 0 and variance 1 stay.
inline constexpr double kSeluAlpha = 1.6732632423543772848170429916717;
inline constexpr double kSeluScale = 1.0507009873554804934193349852946;

template <class V>
V scaled_elu(const char* where_, const V& x, double alpha, double scale) {
  floating(where_, x);
  return rounded_once(x, [&](const V& v) {
    return add(mul(relu(v), scale), mul(expm1(negative_part(v)), alpha * scale));
  });
}

template <class V>
V celu(const V& x, double alpha) {
  floating("celu", x);
  TESSERA_CHECK(alpha != 0, "celu", "alpha is 0; it must be another number");
  return rounded_once(
      x, [&](const V& v) { return add(relu(v), mul(expm1(div(negative_part(v), alpha)), alpha)); });
}

template <class V>
V mish(const V& x) {
  floating("mish", x);
  return rounded_once(x, [](const V& v) { return mul(v, tanh(softplus(v))); });
}

template <class V>
V logsigmoid(const V& x) {
  floating("logsigmoid", x);
  return neg(softplus(neg(x)));
}

template <class V>
V hardsigmoid(const V& x) {
  floating("hardsigmoid", x);
  return rounded_once(x, [](const V& v) { return div(clamp_or_stop(add(v, 3), 0, 6), 6); });
}

template <class V>
V hardswish(const V& x) {
  floating("hardswish", x);
  return rounded_once(x, [](const V& v) { return div(mul(v, clamp_or_stop(add(v, 3), 0, 6)), 6); });
}

template <class V>
V softsign(const V& x) {
  floating("softsign", x);
  return rounded_once(x, [](const V& v) { return div(v, add(abs(v), 1)); });
}

template <class V>
V tanhshrink(const V& x) {
  floating("tanhshrink", x);
  return rounded_once(x, [](const V& v) { return sub(v, tanh(v)); });
}

template <class V>
V hardshrink(const V& x, double lambd) {
  const Tensor& elements = floating("hardshrink", x);
  return where(logical_and(ge(elements, -lambd), le(elements, lambd)), 0, x);
}

// What clamp cuts off: exactly 0 between the bounds, where its slope and x's cancel.
template <class V>
V softshrink(const V& x, double lambd) {
  floating("softshrink", x);
  TESSERA_CHECK(lambd >= 0, "softshrink", "lambd is {}; it must not be negative", lambd);
  return rounded_once(x, [&](const V& v) { return sub(v, clamp(v, -lambd, lambd)); });
}

template <class V>
V threshold(const V& x, double at, double value) {
  return where(le(floating("threshold", x), at), value, x);
}

template <class V>
V glu(const V& x, int dim) {
  const Tensor& elements = floating("glu", x);
  const int at = normalize_dim(dim, elements.ndim(), "glu");
  TESSERA_CHECK(x.dim(at) % 2 == 0, "glu", "dim {} of shape {} has an odd extent; it is halved", at,
                elements.shape().str());
  const std::int64_t half = x.dim(at) / 2;
  return rounded_once(x, [&](const V& v) {
    return mul(narrowed(v, at, 0, half), sigmoid(narrowed(v, at, half, half)));
  });
}

template <class V>
V softmin(const V& x, int dim) {
  ops::along_dim("softmin", floating("softmin", x), dim);  // checks
  return softmax(neg(x), dim);
}

}  // namespace tessera::composed
