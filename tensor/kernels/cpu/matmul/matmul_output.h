#pragma once

/// The initial value of an output to which a product is added.

#include <cstdint>

#include "tessera/tensor/kernels/cpu/matmul/matmul_tile.h"

namespace tessera::cpu {

/// Writes bias, or beta times c, into the output, for products that add to it.
template <class T>
void prepare_output(const TileProduct& t) {
  if (t.bias == nullptr && t.beta == 1) return;
  const auto* bias = static_cast<const T*>(t.bias);
  for (std::int64_t i = 0; i < t.m; ++i) {
    T* row = static_cast<T*>(t.c.data) + i * t.c.row_stride;
    for (std::int64_t j = 0; j < t.n; ++j) {
      if (bias != nullptr) {
        row[j] = bias[j];
      } else {
        row[j] = t.beta == 0 ? T(0) : static_cast<T>(t.beta) * row[j];
      }
    }
  }
}

}  // namespace tessera::cpu
