#pragma once

/// What operations that are made of others share. They are templates over V, which is Tensor or Variable, so that
/// both forms have one definition; the form for Variable gets its derivative from the operations that it calls. For
/// the .cc files that instantiate them.

#include <cstdint>
#include <span>
#include <type_traits>

#include "tessera/tensor/ops/internal/op_checks.h"
#include "tessera/tensor/tensor.h"

namespace tessera::composed {

template <class V>
inline constexpr bool kIsTensor = std::is_same_v<V, Tensor>;

/// The elements of x, without history.
template <class V>
const Tensor& plain(const V& x) {
  if constexpr (kIsTensor<V>) {
    return x;
  } else {
    return x.tensor();
  }
}

/// Throws InvalidArgument unless x is defined and floating. Returns its elements.
template <class V>
const Tensor& floating(const char* where, const V& x) {
  const Tensor& elements = plain(x);
  ops::check_defined(where, "the tensor", elements);
  ops::check_floating(where, elements);
  return elements;
}

/// x itself where it has the dtype already.
template <class V>
V in_dtype(const V& x, DType dtype) {
  return x.dtype() == dtype ? x : cast(x, dtype);
}

/// function(x), computed in f32 for 16 bits and rounded once, at the end.
template <class V, class Function>
V rounded_once(const V& x, const Function& function) {
  return in_dtype(function(in_dtype(x, compute_dtype(x.dtype()))), x.dtype());
}

// Views, which are methods of Tensor and functions of Variable.

template <class V>
V narrowed(const V& x, int dim, std::int64_t start, std::int64_t length) {
  if constexpr (kIsTensor<V>) {
    return x.narrow(dim, start, length);
  } else {
    return narrow(x, dim, start, length);
  }
}

template <class V>
V expanded(const V& x, const Shape& shape) {
  if constexpr (kIsTensor<V>) {
    return x.expand(shape);
  } else {
    return expand(x, shape);
  }
}

template <class V>
V permuted(const V& x, std::span<const int> dims) {
  if constexpr (kIsTensor<V>) {
    return x.permute(dims);
  } else {
    return permute(x, dims);
  }
}

/// x with a dim 0 of extent 1 in front.
template <class V>
V batch_of_one(const V& x) {
  if constexpr (kIsTensor<V>) {
    return x.unsqueeze(0);
  } else {
    return unsqueeze(x, 0);
  }
}

/// The inverse of batch_of_one.
template <class V>
V only_sample(const V& x) {
  if constexpr (kIsTensor<V>) {
    return x.select(0, 0);
  } else {
    return select(x, 0, 0);
  }
}

}  // namespace tessera::composed
