#pragma once

/// What the kernels of pooling share: planes as plain arrays, their distribution over threads, and
/// tables of windows, so that the division behind each window is done once and not in each plane.

#include <cstdint>
#include <cstring>

#include "tessera/tensor/kernels/cpu/convert.h"
#include "tessera/tensor/kernels/cpu/rows.h"
#include "tessera/tensor/kernels/cpu/units.h"
#include "tessera/tensor/kernels/pool.h"
#include "tessera/tensor/kernels/types.h"

namespace tessera::cpu {

/// The windows of both dims, and the number of columns that a mean counts, as it is divided by.
template <class C>
struct PoolTables {
  const PoolSpan* rows;     ///< of each row of the output: the input's rows in its window
  const PoolSpan* columns;  ///< of each column of the output: the input's columns in its window
  const PoolSpan* above;    ///< of each row of the input: the output's rows with it in their window
  const C* counts;

  PoolTables(const PoolGeometry& g, Workspace scratch) {
    ScratchCutter cut(scratch);
    auto* r = cut.take<PoolSpan>(g.h.out);
    auto* c = cut.take<PoolSpan>(g.w.out);
    auto* a = cut.take<PoolSpan>(g.h.in);
    C* n = cut.take<C>(g.w.out);
    for (std::int64_t i = 0; i < g.h.out; ++i) r[i] = g.window(g.h, i);
    for (std::int64_t j = 0; j < g.w.out; ++j) {
      c[j] = g.window(g.w, j);
      n[j] = static_cast<C>(c[j].count);
    }
    for (std::int64_t i = 0; i < g.h.in; ++i) a[i] = {g.h.first_output(i), g.h.end_output(i)};
    rows = r, columns = c, above = a, counts = n;
  }
};

/// A thread's scratch: see PoolGeometry::share.
template <class C>
struct PoolBuffers {
  C* inputs;
  C* outputs;
  C* in_row;
  C* other_in_row;
  C* out_row;

  PoolBuffers(const PoolGeometry& g, C* scratch)
      : inputs(scratch),
        outputs(inputs + padded(g.inputs())),
        in_row(outputs + padded(g.outputs())),
        other_in_row(in_row + padded(g.w.in)),
        out_row(other_in_row + padded(g.w.in)) {}
};

/// The elements of plane `plane` of x [images, channels, h, w]: in place, or in `buffer`.
template <class C>
const C* read_plane(const ConstView& x, std::int64_t plane, C* buffer) {
  const std::int64_t rows = x.shape[2], n = x.shape[3];
  const std::int64_t first = plane / x.shape[1] * x.strides[0] + plane % x.shape[1] * x.strides[1];
  const void* from = advance(x.data, x.dtype, first);
  const bool packed = (n == 1 || x.strides[3] == 1) && (rows == 1 || x.strides[2] == n);
  if (packed && x.dtype == dtype_of<C>) return static_cast<const C*>(from);
  const std::int64_t runs = packed ? 1 : rows, length = packed ? rows * n : n;
  for (std::int64_t r = 0; r < runs; ++r) {
    load_run(x.dtype, advance(from, x.dtype, r * x.strides[2]), packed ? 1 : x.strides[3], length,
             buffer + r * n);
  }
  return buffer;
}

/// Plane `plane` of contiguous y.
inline void* plane_of(const View& y, std::int64_t plane) {
  return advance(y.data, y.dtype, plane * y.shape[2] * y.shape[3]);
}
/// The same, to be written as values of C: in place, or in `buffer` before commit_plane().
template <class C>
C* place_plane(const View& y, std::int64_t plane, C* buffer) {
  return y.dtype == dtype_of<C> ? static_cast<C*>(plane_of(y, plane)) : buffer;
}
template <class C>
void commit_plane(const View& y, std::int64_t plane, const C* values) {
  if (y.dtype == dtype_of<C>) return;
  store_run(y.dtype, plane_of(y, plane), 1, y.shape[2] * y.shape[3], values);
}

/// body(plane, tables, buffers) for every plane, distributed over threads.
template <class Body>
void for_each_plane(const PoolGeometry& g, Workspace scratch, const Body& body) {
  with_floating_type(g.compute, [&]<class C>() {
    const PoolTables<C> tables(g, scratch);
    const Workspace shares{static_cast<char*>(scratch.data) + g.table_bytes(),
                           scratch.bytes - g.table_bytes()};
    parallel_buffered_rows<C>(
        g.planes, g.longer_side(), shares, g.share(),
        [&](std::int64_t plane, C* buffer) { body(plane, tables, PoolBuffers<C>(g, buffer)); });
  });
}

}  // namespace tessera::cpu
