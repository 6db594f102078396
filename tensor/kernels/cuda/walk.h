#pragma once

/// How CUDA kernels share out elements: which element is whose, and where it lies. Pure functions,
/// tested on the CPU.

#include <algorithm>
#include <cstdint>

#include "tessera/tensor/host_device.h"
#include "tessera/tensor/shape.h"

namespace tessera::cuda {

inline constexpr int kThreads = 256;  // of a block
/// Enough to fill any GPU; beyond it a thread takes several elements.
inline constexpr std::int64_t kMostBlocks = 4096;

/// Blocks for so many pieces of work; at least one.
inline unsigned blocks_for(std::int64_t work) {
  return static_cast<unsigned>(
      std::clamp<std::int64_t>(work / kThreads + (work % kThreads != 0 ? 1 : 0), 1, kMostBlocks));
}

/// Calls f(i) for what one thread has of 0 ... n - 1: every `threads`-th from `first` on, so that
/// neighbouring threads touch neighbouring elements.
template <class F>
TESSERA_HD void share(std::int64_t first, std::int64_t threads, std::int64_t n, F f) {
  for (std::int64_t i = first; i < n; i += threads) f(i);
}

/// Two operands that walk one shape, in elements.
struct Walk {
  int ndim = 0;
  std::int64_t shape[kMaxDims] = {};
  std::int64_t x_strides[kMaxDims] = {};
  std::int64_t y_strides[kMaxDims] = {};
};

inline Walk make_walk(const Shape& shape, const Shape& x_strides, const Shape& y_strides) {
  Walk walk;
  walk.ndim = shape.ndim();
  std::copy(shape.begin(), shape.end(), walk.shape);
  std::copy(x_strides.begin(), x_strides.end(), walk.x_strides);
  std::copy(y_strides.begin(), y_strides.end(), walk.y_strides);
  return walk;
}

struct WalkOffsets {
  std::int64_t x = 0;
  std::int64_t y = 0;
};

/// Where the i-th element lies, in row-major order. One dim costs no division.
TESSERA_HD WalkOffsets offsets_at(const Walk& walk, std::int64_t i) {
  WalkOffsets at;
  for (int d = walk.ndim - 1; d > 0; --d) {
    const std::int64_t outer = i / walk.shape[d];
    const std::int64_t index = i - outer * walk.shape[d];
    at.x += index * walk.x_strides[d];
    at.y += index * walk.y_strides[d];
    i = outer;
  }
  if (walk.ndim > 0) {
    at.x += i * walk.x_strides[0];
    at.y += i * walk.y_strides[0];
  }
  return at;
}

}  // namespace tessera::cuda
