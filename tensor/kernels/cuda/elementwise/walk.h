#pragma once

/// How CUDA kernels distribute elements over threads, and the offset of each element. Pure
/// functions, tested on the CPU.

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include "tessera/tensor/host_device.h"
#include "tessera/tensor/kernels/layout.h"
#include "tessera/tensor/shape.h"

namespace tessera::cuda {

inline constexpr int kThreads = 256;  // of a block
/// Enough to fill any GPU; for more work a thread takes several elements.
inline constexpr std::int64_t kMostBlocks = 4096;

/// ceil(n / size).
TESSERA_HD std::int64_t pieces_of(std::int64_t n, std::int64_t size) {
  return n / size + (n % size != 0 ? 1 : 0);
}

/// Number of blocks for `work` pieces; at least one.
inline unsigned blocks_for(std::int64_t work) {
  return static_cast<unsigned>(std::clamp<std::int64_t>(pieces_of(work, kThreads), 1, kMostBlocks));
}

/// Calls f(i) for one thread's share of 0 ... n - 1: every `threads`-th from `first` on, so that
/// adjacent threads access adjacent elements.
template <class F>
TESSERA_HD void share(std::int64_t first, std::int64_t threads, std::int64_t n, F f) {
  for (std::int64_t i = first; i < n; i += threads) f(i);
}

// ---- division ----------------------------------------------------------------------------------

/// The upper half of a product.
TESSERA_HD std::uint32_t upper_product(std::uint32_t a, std::uint32_t b) {
  return static_cast<std::uint32_t>((std::uint64_t{a} * b) >> 32);
}
TESSERA_HD std::uint64_t upper_product(std::uint64_t a, std::uint64_t b) {
#ifdef __CUDA_ARCH__
  return __umul64hi(a, b);
#else
  return static_cast<std::uint64_t>((static_cast<unsigned __int128>(a) * b) >> 64);
#endif
}

/// Division by a number that is known before the launch: a product and a shift instead of the
/// hundred instructions of a GPU's integer division.
///
/// U has B bits; dividends are below 2^(B-1), divisors from 1 to 2^(B-1). With s the smallest shift
/// for which 2^s >= divisor, magic = ceil(2^(B-1+s) / divisor) has B bits and is too large by less
/// than 1. This changes n * magic / 2^(B-1+s) by less than 1 / divisor: it does not reach the next
/// integer. (T. Granlund, P. Montgomery, "Division by invariant integers using multiplication",
/// 1994.)
template <class U>
struct Divisor {
  U value = 1;
  U magic = U{1} << (std::numeric_limits<U>::digits - 1);
  int shift = 0;
};

template <class U>
Divisor<U> make_divisor(U value) {
  using Wide = std::conditional_t<sizeof(U) == 4, std::uint64_t, unsigned __int128>;
  const int shift = static_cast<int>(std::bit_width(static_cast<U>(value - 1)));
  const Wide numerator = Wide{1} << (std::numeric_limits<U>::digits - 1 + shift);
  return {.value = value, .magic = static_cast<U>((numerator + value - 1) / value), .shift = shift};
}

template <class U>
TESSERA_HD U quotient(U n, const Divisor<U>& by) {
  return upper_product(static_cast<U>(n << 1), by.magic) >> by.shift;
}

// ---- walks -------------------------------------------------------------------------------------

/// The offsets, in elements, of the elements of N operands that are walked with one shape.
template <int N>
struct Walk {
  int ndim = 0;
  bool narrow = true;  ///< below 2^31 elements: 32-bit arithmetic suffices
  Divisor<std::uint32_t> narrow_dims[kMaxDims];  ///< the extents, if narrow
  Divisor<std::uint64_t> wide_dims[kMaxDims];    ///< the extents, if not narrow
  std::int64_t strides[N][kMaxDims] = {};
};

/// merge_dims for an array of strides.
template <std::size_t N>
void merge_dims_of(Shape& shape, std::array<Shape, N>& strides) {
  [&]<std::size_t... I>(std::index_sequence<I...>) { merge_dims(shape, {&strides[I]...}); }
  (std::make_index_sequence<N>());
}

/// A walk in row-major order; adjacent dims are merged if the strides of all operands allow it.
/// Extents are not 0.
template <std::size_t N>
Walk<static_cast<int>(N)> make_walk(Shape shape, std::array<Shape, N> strides) {
  merge_dims_of(shape, strides);
  Walk<static_cast<int>(N)> walk;
  walk.ndim = shape.ndim();
  walk.narrow = shape.numel() <= std::numeric_limits<std::int32_t>::max();
  // The outermost extent needs no division.
  for (int d = 1; d < walk.ndim; ++d) {
    if (walk.narrow) {
      walk.narrow_dims[d] = make_divisor(static_cast<std::uint32_t>(shape[d]));
    } else {
      walk.wide_dims[d] = make_divisor(static_cast<std::uint64_t>(shape[d]));
    }
  }
  for (std::size_t o = 0; o < N; ++o)
    std::copy(strides[o].begin(), strides[o].end(), walk.strides[o]);
  return walk;
}

namespace detail {

template <class U, int K>
TESSERA_HD void add_offsets(int ndim, const Divisor<U>* dims, const std::int64_t* strides,
                            const std::int64_t (&elements)[K], std::int64_t (&at)[K]) {
  U rest[K];
  for (int k = 0; k < K; ++k) {
    rest[k] = static_cast<U>(elements[k]);
    at[k] = 0;
  }
  TESSERA_KEEP_LOOP
  for (int d = ndim - 1; d > 0; --d) {
    const Divisor<U> extent = dims[d];
    const std::int64_t stride = strides[d];
    for (int k = 0; k < K; ++k) {
      const U outer = quotient(rest[k], extent);
      at[k] += static_cast<std::int64_t>(rest[k] - outer * extent.value) * stride;
      rest[k] = outer;
    }
  }
  for (int k = 0; k < K; ++k) at[k] += static_cast<std::int64_t>(rest[k]) * strides[0];
}

}  // namespace detail

/// The offsets of K elements of one operand, given their row-major numbers. A single dim needs no
/// division.
template <int N, int K>
TESSERA_HD void find_offsets(const Walk<N>& walk, int operand, const std::int64_t (&elements)[K],
                             std::int64_t (&at)[K]) {
  if (walk.narrow) {
    detail::add_offsets(walk.ndim, walk.narrow_dims, walk.strides[operand], elements, at);
  } else {
    detail::add_offsets(walk.ndim, walk.wide_dims, walk.strides[operand], elements, at);
  }
}

/// The same for one element.
template <int N>
TESSERA_HD std::int64_t offset_at(const Walk<N>& walk, int operand, std::int64_t element) {
  const std::int64_t elements[1] = {element};
  std::int64_t at[1];
  find_offsets(walk, operand, elements, at);
  return at[0];
}

}  // namespace tessera::cuda
