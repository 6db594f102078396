#pragma once

/// Index arithmetic of the GPU kernels that use indices: dims with the strides of all operands, and
/// the distribution of rows over groups of threads. Pure functions, tested on the CPU.

#include <algorithm>
#include <bit>
#include <cstdint>

#include "tessera/tensor/host_device.h"
#include "tessera/tensor/kernels/cuda/elementwise/walk.h"
#include "tessera/tensor/kernels/indexing.h"

namespace tessera::cuda {

/// Some dims of an IndexedWalk, as plain data for a kernel.
struct IndexDims {
  int ndim = 0;
  std::int64_t shape[kMaxDims] = {};
  std::int64_t indexed[kMaxDims] = {};
  std::int64_t index[kMaxDims] = {};
  std::int64_t other[kMaxDims] = {};
  std::int64_t position[kMaxDims] = {};  ///< see BadIndex; 0 if the indices are repeated

  Divisor<std::uint64_t> by[kMaxDims];  ///< the extents

  void set_extent(int d, std::int64_t extent) {
    shape[d] = extent;
    by[d] = make_divisor(static_cast<std::uint64_t>(std::max<std::int64_t>(1, extent)));
  }
  std::int64_t numel() const {
    std::int64_t product = 1;
    for (int d = 0; d < ndim; ++d) product *= shape[d];
    return product;
  }
  /// Divides the strides of the operands that move by `elements`, the elements per unit.
  void in_units(std::int64_t elements) {
    for (int d = 0; d < ndim; ++d) {
      indexed[d] /= elements;
      other[d] /= elements;
    }
  }
};

/// The dims d of the walk for which keep(d) is true.
template <class Keep>
IndexDims index_dims(const IndexedWalk& walk, Keep keep) {
  IndexDims dims;
  std::int64_t position[kMaxDims] = {}, step = 1;
  for (int d = walk.shape.ndim() - 1; d >= 0; --d) {
    if (walk.index[d] == 0 && walk.shape[d] > 1) continue;
    position[d] = step;
    step *= walk.shape[d];
  }
  for (int d = 0; d < walk.shape.ndim(); ++d) {
    if (!keep(d)) continue;
    dims.set_extent(dims.ndim, walk.shape[d]);
    dims.indexed[dims.ndim] = walk.indexed[d];
    dims.index[dims.ndim] = walk.index[d];
    dims.other[dims.ndim] = walk.other[d];
    dims.position[dims.ndim++] = position[d];
  }
  return dims;
}

struct IndexPlace {
  std::int64_t indexed = 0;
  std::int64_t index = 0;
  std::int64_t other = 0;
};

/// f(d, coordinate) for the coordinates of the i-th element in row-major order.
template <class F>
TESSERA_HD void for_coordinates(const IndexDims& dims, std::int64_t i, F f) {
  for (int d = dims.ndim - 1; d > 0; --d) {
    const auto outer =
        static_cast<std::int64_t>(quotient(static_cast<std::uint64_t>(i), dims.by[d]));
    f(d, i - outer * dims.shape[d]);
    i = outer;
  }
  if (dims.ndim > 0) f(0, i);
}
TESSERA_HD IndexPlace place_of(const IndexDims& dims, std::int64_t i) {
  IndexPlace place;
  for_coordinates(dims, i, [&](int d, std::int64_t at) {
    place.indexed += at * dims.indexed[d];
    place.index += at * dims.index[d];
    place.other += at * dims.other[d];
  });
  return place;
}
TESSERA_HD std::int64_t position_of(const IndexDims& dims, std::int64_t i) {
  std::int64_t position = 0;
  for_coordinates(dims, i, [&](int d, std::int64_t at) { position += at * dims.position[d]; });
  return position;
}

/// The widest access in bytes, up to 16, that is possible for a row; `bits` is the bitwise or of
/// its address, byte strides and length.
constexpr int unit_bytes(std::uint64_t bits) {
  return (bits & 15) == 0 ? 16 : 1 << std::countr_zero(bits);
}

/// The number of threads that share a row of `units`, each up to `each` of them: a power of 2, at
/// most `most`; longer rows are split into slices.
struct RowGroups {
  int lanes_log2 = 0;
  std::int64_t slices = 1;

  TESSERA_HD int lanes() const { return 1 << lanes_log2; }
};
inline RowGroups row_groups(std::int64_t units, int each, int most) {
  RowGroups groups;
  const auto slice = [&] { return std::int64_t{each} << groups.lanes_log2; };
  while (slice() < units && groups.lanes() < most) ++groups.lanes_log2;
  groups.slices = (units + slice() - 1) / slice();
  return groups;
}

}  // namespace tessera::cuda
