#pragma once

/// One element of the axpby kernel on a GPU, written so that a CPU can compute it too, for tests.

#include <cstdint>
#include <type_traits>

#include "tessera/tensor/kernels/cuda/elements.h"
#include "tessera/tensor/kernels/cuda/walk.h"
#include "tessera/tensor/kernels/scalar_math.h"

namespace tessera::cuda {

/// What a launch computes; computed in C.
template <class C>
struct AxpbyWork {
  const void* x = nullptr;  ///< null: y is filled with `number`
  DType x_dtype = DType::kF32;
  void* y = nullptr;
  DType y_dtype = DType::kF32;
  Walk walk;
  C alpha = 1;
  C beta = 0;
  C number = 0;
};

/// A product that is rounded by itself; integers wrap around.
TESSERA_HD float rounded_product(float a, float b) { return scalar::mul(a, b); }
TESSERA_HD double rounded_product(double a, double b) { return scalar::mul(a, b); }
TESSERA_HD std::int64_t rounded_product(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
}

template <class C>
TESSERA_HD C wrapping_sum(C a, C b) {
  if constexpr (std::is_integral_v<C>) {
    return static_cast<C>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
  } else {
    return a + b;
  }
}

/// y[i] = alpha * x[i] + beta * y[i], for the i-th element of the walk.
template <class C>
TESSERA_HD void axpby_element(const AxpbyWork<C>& work, std::int64_t i) {
  const WalkOffsets at = offsets_at(work.walk, i);
  if (work.x == nullptr) return store_element<C>(work.y, work.y_dtype, at.y, work.number);
  C value = load_element<C>(work.x, work.x_dtype, at.x);
  // As on the CPU: a copy multiplies nothing, and y is read only where it counts.
  if (work.beta != C{0} || work.alpha != C{1}) value = rounded_product(work.alpha, value);
  if (work.beta != C{0}) {
    const C before = load_element<C>(work.y, work.y_dtype, at.y);
    value = wrapping_sum<C>(value, rounded_product(work.beta, before));
  }
  store_element<C>(work.y, work.y_dtype, at.y, value);
}

}  // namespace tessera::cuda
