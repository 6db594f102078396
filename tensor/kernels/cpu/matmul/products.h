#pragma once

/// Products of matrices in scratch memory, for kernels that consist of them. The only place in
/// kernels/cpu outside the matmul kernel that uses the libraries.

#include <algorithm>
#include <cstdint>

#include "tessera/tensor/dtype.h"
#include "tessera/tensor/kernels/cpu/convert.h"
#include "tessera/tensor/kernels/cpu/matmul/matmul_tile.h"
#include "tessera/tensor/kernels/view.h"

namespace tessera::cpu {

/// out[i] = element at + i * step of x, i < n, as load_run. Runs are short here, so runs that need
/// no conversion are copied without a call.
template <class C>
void load_short_run(const ConstView& x, std::int64_t at, std::int64_t step, std::int64_t n,
                    C* out) {
  if (x.dtype != dtype_of<C>) return load_run(x.dtype, advance(x.data, x.dtype, at), step, n, out);
  const C* from = x.as<C>() + at;
  if (step == 1) {
    std::copy_n(from, n, out);
  } else {
    for (std::int64_t i = 0; i < n; ++i) out[i] = from[i * step];
  }
}

/// A matrix in memory: its first element and strides, one of which is 1.
template <class T>
struct Operand {
  T* data = nullptr;
  std::int64_t row_stride = 0;
  std::int64_t column_stride = 1;

  Operand transposed() const { return {data, column_stride, row_stride}; }
};

/// c = a b + beta * c; extents above 0, c with rows of unit stride.
template <class C>
struct Product {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  Operand<const C> a;
  Operand<const C> b;
  Operand<C> c;
  double beta = 0;
};

/// Uses one thread: call it under a OneThreadScope, as parallel_units does. `scratch` has
/// product_scratch() bytes.
template <class C>
void multiply(const Product<C>& p, Workspace scratch) {
  constexpr DType kType = dtype_of<C>;
  const TileProduct tile{.m = p.m,
                         .n = p.n,
                         .k = p.k,
                         .a = {p.a.data, kType, p.a.row_stride, p.a.column_stride},
                         .b = {p.b.data, kType, p.b.row_stride, p.b.column_stride},
                         .c = {p.c.data, kType, p.c.row_stride, 1},
                         .beta = p.beta};
  if constexpr (kType == DType::kF64) {
    multiply_by_eigen(tile, scratch);
  } else {
    multiply_by_onednn(tile, scratch);
  }
}

}  // namespace tessera::cpu
