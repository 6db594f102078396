#include "tessera/tensor/kernels/pool.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "tessera/tensor/kernels/cpu/convert.h"
#include "tessera/tensor/kernels/cpu/traversal.h"
#include "tessera/tensor/kernels/cpu/units.h"
#include "tessera/tensor/kernels/types.h"

namespace tessera {
namespace {

// Scratch of one plane: see PoolGeometry::share.
template <class C>
struct Plane {
  C* elements;
  C* in_row;
  C* out_row;

  Plane(const PoolGeometry& g, std::int64_t size, Workspace scratch) {
    cpu::ScratchCutter cut(scratch);
    elements = cut.take<C>(size);
    in_row = cut.take<C>(g.w.in);
    out_row = cut.take<C>(g.w.out);
  }
};

// Plane `plane` of x [images, channels, h, w].
template <class C>
void load_plane(const ConstView& x, std::int64_t plane, C* out) {
  const std::int64_t rows = x.shape[2], n = x.shape[3];
  const std::int64_t first = plane / x.shape[1] * x.strides[0] + plane % x.shape[1] * x.strides[1];
  for (std::int64_t r = 0; r < rows; ++r) {
    const void* from = cpu::advance(x.data, x.dtype, first + r * x.strides[2]);
    cpu::load_run(x.dtype, from, x.strides[3], n, out + r * n);
  }
}

// Row `row` of a plane of contiguous y.
template <class C>
void store_plane_row(const View& y, std::int64_t plane, std::int64_t row, const C* values) {
  const std::int64_t n = y.shape[3], at = (plane * y.shape[2] + row) * n;
  cpu::store_run(y.dtype, cpu::advance(y.data, y.dtype, at), 1, n, values);
}

// body<C>(plane, scratch) for every plane, distributed over threads. Few small planes are computed
// on the calling thread, as in parallel_pieces.
template <class Body>
void for_each_plane(const PoolGeometry& g, std::int64_t size, Workspace scratch, const Body& body) {
  const std::int64_t work = g.planes * std::max(g.inputs(), g.outputs());
  if (work <= cpu::kPiece) scratch.bytes = std::min(scratch.bytes, g.share(size));
  with_floating_type(g.compute, [&]<class C>() {
    cpu::parallel_units(g.planes, g.share(size), scratch, [&](std::int64_t plane, Workspace mine) {
      body(plane, Plane<C>(g, size, mine));
    });
  });
}

template <class C>
struct Best {
  C value = -std::numeric_limits<C>::infinity();
  std::int64_t index = -1;
};

// The largest element of window (i, j); the first of equal elements, and the first NaN.
template <class C>
Best<C> largest(const PoolGeometry& g, const C* x, std::int64_t i, std::int64_t j) {
  Best<C> best;
  for (std::int64_t r = g.h.first_inside(i); r < g.h.end_inside(i); r += g.h.dilation) {
    for (std::int64_t c = g.w.first_inside(j); c < g.w.end_inside(j); c += g.w.dilation) {
      const C value = x[r * g.w.in + c];
      const bool is_first_nan = value != value && best.value == best.value;
      if (value > best.value || best.index < 0 || is_first_nan) best = {value, r * g.w.in + c};
    }
  }
  return best;
}

// Rows [begin, end) of `from`, n elements each, added in order.
template <class C>
void sum_rows(const C* from, std::int64_t begin, std::int64_t end, std::int64_t n, C* sum) {
  std::fill_n(sum, n, C{0});
  for (std::int64_t r = begin; r < end; ++r) {
    const C* row = from + r * n;
    for (std::int64_t i = 0; i < n; ++i) sum[i] += row[i];
  }
}

template <class C>
C sum_run(const C* from, std::int64_t begin, std::int64_t end) {
  C sum = 0;
  for (std::int64_t i = begin; i < end; ++i) sum += from[i];
  return sum;
}

}  // namespace

void MaxPoolKernel::cpu(const Args& a, Workspace scratch) {
  const PoolGeometry& g = a.g;
  for_each_plane(g, g.inputs(), scratch, [&]<class C>(std::int64_t plane, Plane<C> space) {
    load_plane(a.x, plane, space.elements);
    std::int64_t* indices = a.indices.as<std::int64_t>() + plane * g.outputs();
    for (std::int64_t i = 0; i < g.h.out; ++i) {
      for (std::int64_t j = 0; j < g.w.out; ++j) {
        const Best<C> best = largest(g, space.elements, i, j);
        space.out_row[j] = best.value;
        *indices++ = best.index;
      }
      store_plane_row(a.y, plane, i, space.out_row);
    }
  });
}

void MaxPoolBackwardKernel::cpu(const Args& a, Workspace scratch) {
  const PoolGeometry& g = a.g;
  for_each_plane(g, g.outputs(), scratch, [&]<class C>(std::int64_t plane, Plane<C> space) {
    load_plane(a.dy, plane, space.elements);
    const std::int64_t* indices = a.indices.as<std::int64_t>() + plane * g.outputs();
    for (std::int64_t r = 0; r < g.h.in; ++r) {
      for (std::int64_t c = 0; c < g.w.in; ++c) {
        C sum = 0;
        for (std::int64_t i = g.h.first_output(r); i < g.h.end_output(r); ++i) {
          for (std::int64_t j = g.w.first_output(c); j < g.w.end_output(c); ++j) {
            const std::int64_t o = i * g.w.out + j;
            if (indices[o] == r * g.w.in + c) sum += space.elements[o];
          }
        }
        space.in_row[c] = sum;
      }
      store_plane_row(a.dx, plane, r, space.in_row);
    }
  });
}

// Rows first, then columns: the compiler vectorizes sums of rows.
void AvgPoolKernel::cpu(const Args& a, Workspace scratch) {
  const PoolGeometry& g = a.g;
  for_each_plane(g, g.inputs(), scratch, [&]<class C>(std::int64_t plane, Plane<C> space) {
    load_plane(a.x, plane, space.elements);
    for (std::int64_t i = 0; i < g.h.out; ++i) {
      sum_rows(space.elements, g.h.first_inside(i), g.h.end_inside(i), g.w.in, space.in_row);
      for (std::int64_t j = 0; j < g.w.out; ++j) {
        space.out_row[j] = sum_run(space.in_row, g.w.first_inside(j), g.w.end_inside(j)) /
                           static_cast<C>(g.divisor(i, j));
      }
      store_plane_row(a.y, plane, i, space.out_row);
    }
  });
}

void AvgPoolBackwardKernel::cpu(const Args& a, Workspace scratch) {
  const PoolGeometry& g = a.g;
  for_each_plane(g, g.outputs(), scratch, [&]<class C>(std::int64_t plane, Plane<C> space) {
    load_plane(a.dy, plane, space.elements);
    for (std::int64_t i = 0; i < g.h.out; ++i) {
      for (std::int64_t j = 0; j < g.w.out; ++j)
        space.elements[i * g.w.out + j] /= static_cast<C>(g.divisor(i, j));
    }
    for (std::int64_t r = 0; r < g.h.in; ++r) {
      sum_rows(space.elements, g.h.first_output(r), g.h.end_output(r), g.w.out, space.out_row);
      for (std::int64_t c = 0; c < g.w.in; ++c)
        space.in_row[c] = sum_run(space.out_row, g.w.first_output(c), g.w.end_output(c));
      store_plane_row(a.dx, plane, r, space.in_row);
    }
  });
}

}  // namespace tessera
