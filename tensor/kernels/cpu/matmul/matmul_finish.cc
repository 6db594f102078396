#include "tessera/tensor/kernels/cpu/matmul/matmul_finish.h"

#include <algorithm>

#include "tessera/tensor/kernels/cpu/blocks.h"
#include "tessera/tensor/kernels/math/functors.h"
#include "tessera/tensor/kernels/types.h"

namespace tessera::cpu {
namespace {

template <class Body>
void with_activation(ActivationKind activation, Body&& body) {
  switch (activation) {
    case ActivationKind::kNone:
      return;
    case ActivationKind::kRelu:
      return body(functors::Relu{});
    case ActivationKind::kGelu:
      return body(functors::Gelu{});
    case ActivationKind::kGeluTanh:
      return body(functors::GeluTanh{});
    case ActivationKind::kSilu:
      return body(functors::Silu{});
  }
}

template <class C>
void activate_rows(ActivationKind activation, const Matrix& x, const Matrix& y, std::int64_t m,
                   std::int64_t n) {
  const bool in_place = x.dtype == dtype_of<C>;
  with_activation(activation, [&]<class F>(F functor) {
    const std::uint16_t* table = nullptr;
    if constexpr (std::is_same_v<C, float> && kIsLookedUp<F>) {
      if (x.dtype == y.dtype && is_looked_up(x.dtype, m * n)) table = results_of(x.dtype, functor);
    }
    C buffer[kBlockLength];
    for (std::int64_t row = 0; row < m; ++row) {
      for (std::int64_t at = 0; at < n; at += kBlockLength) {
        const std::int64_t count = std::min(kBlockLength, n - at);
        const void* from = x.at(row, at).data;
        void* to = y.at(row, at).data;
        if (in_place) {
          apply_run<C>(count, functor, static_cast<C*>(to), static_cast<const C*>(from));
        } else if (table != nullptr) {
          look_up_run(table, from, 1, count, to, 1);
        } else {
          load_run(x.dtype, from, 1, count, buffer);
          apply_run<C>(count, functor, buffer, static_cast<const C*>(buffer));
          store_run(y.dtype, to, 1, count, buffer);
        }
      }
    }
  });
}

// One run of a row, computed in C.
template <class C, class P>
void finish_run(const Finish& how, const P* product, std::int64_t n) {
  C value[kBlockLength], other[kBlockLength];
  const C alpha = static_cast<C>(how.alpha), beta = static_cast<C>(how.beta);
  for (std::int64_t i = 0; i < n; ++i) value[i] = alpha * static_cast<C>(product[i]);
  if (how.bias != nullptr) {
    load_run(how.bias_dtype, how.bias, how.bias_stride, n, other);
    for (std::int64_t i = 0; i < n; ++i) value[i] += other[i];
  }
  if (how.beta != 0) {
    load_run(how.c.dtype, how.c.data, 1, n, other);
    for (std::int64_t i = 0; i < n; ++i) value[i] += beta * other[i];
  }
  const Matrix& to = how.before.data != nullptr ? how.before : how.c;
  store_run(to.dtype, to.data, 1, n, value);
  if (how.activation != ActivationKind::kNone) activate(how.activation, to, how.c, 1, n);
}

template <class P>
void finish_rows(const Finish& how, const P* product, std::int64_t stride, std::int64_t m,
                 std::int64_t n) {
  const bool in_f64 = sizeof(P) == 8 || how.c.dtype == DType::kF64 ||
                      (how.bias != nullptr && how.bias_dtype == DType::kF64);
  with_floating_type(in_f64 ? DType::kF64 : DType::kF32, [&]<class C>() {
    for (std::int64_t row = 0; row < m; ++row) {
      for (std::int64_t at = 0; at < n; at += kBlockLength) {
        finish_run<C>(how.at(row, at), product + row * stride + at, std::min(kBlockLength, n - at));
      }
    }
  });
}

}  // namespace

Finish Finish::at(std::int64_t row, std::int64_t column) const {
  Finish part = *this;
  part.c = c.at(row, column);
  if (before.data != nullptr) part.before = before.at(row, column);
  if (bias != nullptr) part.bias = advance(bias, bias_dtype, column * bias_stride);
  return part;
}

void finish(const Finish& how, const float* product, std::int64_t stride, std::int64_t m,
            std::int64_t n) {
  finish_rows(how, product, stride, m, n);
}
void finish(const Finish& how, const double* product, std::int64_t stride, std::int64_t m,
            std::int64_t n) {
  finish_rows(how, product, stride, m, n);
}

void activate(ActivationKind activation, const Matrix& x, const Matrix& y, std::int64_t m,
              std::int64_t n) {
  with_floating_type(x.dtype, [&]<class C>() { activate_rows<C>(activation, x, y, m, n); });
}

}  // namespace tessera::cpu
