// Shared by the tests of products: operands, plain loops, tolerances of sums.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "tessera/tensor/ops/matmul.h"
#include "tessera/tests/support/close.h"
#include "tessera/tests/tensor/ops/ops_support.h"

namespace tessera::testing {

inline constexpr DType kFloating[] = {DType::kF32, DType::kF64, DType::kBF16, DType::kF16};

inline std::vector<double> values(const Tensor& x) {
  return cast(x, DType::kF64).to_vector<double>();
}

inline Tensor spread_of(DType dtype, const Shape& shape, double low = -2, double high = 2) {
  return cast(spread_tensor<double>(shape, low, high), dtype);
}

inline Tensor by_columns(const Tensor& x) { return clone(x.transpose(-1, -2)).transpose(-1, -2); }

// The tolerance of a product over k elements of up to 2 in size: every addition rounds, in f32 for
// operands of at most that precision, and the result rounds once in its own dtype.
inline bool is_close(const Tensor& got, const std::vector<double>& exact, DType operands,
                     std::int64_t k) {
  const auto unit = [](DType dtype) {
    switch (dtype) {
      case DType::kF64:
        return 0x1p-53;
      case DType::kBF16:
        return 0x1p-8;
      case DType::kF16:
        return 0x1p-11;
      default:
        return 0x1p-24;
    }
  };
  const double sums =
      (operands == DType::kF64 ? 0x1p-53 : 0x1p-24) * 12 * static_cast<double>(k + 2);
  const std::vector<double> values_got = values(got);
  if (values_got.size() != exact.size()) return false;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const double allowed = sums + 1.01 * unit(got.dtype()) * std::abs(exact[i]);
    if (!(std::abs(values_got[i] - exact[i]) <= allowed)) return false;
  }
  return true;
}

// The product in f64, three plain loops.
inline std::vector<double> slow_product(const Tensor& a, const Tensor& b) {
  const std::int64_t m = a.dim(0), k = a.dim(1), n = b.dim(1);
  const auto x = values(a), y = values(b);
  std::vector<double> c(static_cast<std::size_t>(m * n));
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t p = 0; p < k; ++p) {
      for (std::int64_t j = 0; j < n; ++j)
        c[static_cast<std::size_t>(i * n + j)] +=
            x[static_cast<std::size_t>(i * k + p)] * y[static_cast<std::size_t>(p * n + j)];
    }
  }
  return c;
}

// The product of the matrices at `index` of two broadcast batches, one after another.
inline std::vector<double> slow_batch(const Tensor& a, const Tensor& b, const Shape& batch) {
  const auto wide = [&](const Tensor& x) {
    Shape shape = batch;
    shape.push_back(x.dim(-2));
    shape.push_back(x.dim(-1));
    return clone(x.expand(shape)).view({batch.numel(), x.dim(-2), x.dim(-1)});
  };
  const Tensor left = wide(a), right = wide(b);
  std::vector<double> all;
  for (std::int64_t i = 0; i < batch.numel(); ++i) {
    const auto one = slow_product(left.select(0, i), right.select(0, i));
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

// Does not print all bytes that differ.
inline bool equal_bits(const Tensor& a, const Tensor& b) { return bits_of(a) == bits_of(b); }

// Whether y, the result of a fused activation, has the bits of the separate operation on `before`.
// On a GPU three activations in 16 bits only come close: cuBLASLt applies the tanh form of GELU to
// sums that are not yet rounded, and the separate operations of GELU and SiLU, whose formulas are
// shorter, may round to a neighbour.
inline bool is_activation_of(const Tensor& y, const Tensor& before, ActivationKind activation) {
  const bool is_16_bit_on_gpu = default_device().is_cuda() && dtype_size(y.dtype()) == 2;
  const double unit = y.dtype() == DType::kBF16 ? 0x1p-7 : 0x1p-10;
  const auto agrees = [&](const Tensor& expected, Tolerance on_gpu) {
    return is_16_bit_on_gpu ? static_cast<bool>(all_close(y, expected, on_gpu))
                            : equal_bits(y, expected);
  };
  switch (activation) {
    case ActivationKind::kNone:
      return equal_bits(y, before);
    case ActivationKind::kRelu:
      return equal_bits(y, relu(before));
    case ActivationKind::kGelu:
      return agrees(gelu(before), {.rtol = unit, .atol = 0x1p-20});
    case ActivationKind::kGeluTanh:
      return agrees(gelu_tanh(before), {.rtol = 2e-2, .atol = 2e-2});
    case ActivationKind::kSilu:
      return agrees(silu(before), {.rtol = unit, .atol = 0x1p-20});
  }
  return false;
}

}  // namespace tessera::testing
