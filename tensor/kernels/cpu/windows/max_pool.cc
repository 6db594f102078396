// The maximum as the largest key of an integer order, see sort_key.h: the compiler vectorizes folds of integers, and
// NaN needs no case of its own.

#include <algorithm>
#include <cstdint>
#include <limits>

#include "tessera/tensor/kernels/cpu/first_extreme.h"
#include "tessera/tensor/kernels/cpu/windows/pool_planes.h"
#include "tessera/tensor/kernels/math/convert_element.h"
#include "tessera/tensor/kernels/math/sort_key.h"
#include "tessera/tensor/kernels/pool.h"

namespace tessera {
namespace {

template <class C>
using Key = decltype(sort_key(C{}));

// Smaller than the key of every element, and larger than every position in a plane.
template <class K>
constexpr K kNoKey = 0;
template <class K>
constexpr K kNowhere = std::numeric_limits<K>::max();

// Of each column: the first of the largest elements in the rows of a window, and its position in
// the plane.
template <class C>
void column_maxima(const C* x, const PoolSpan& rows, std::int64_t dilation, std::int64_t n,
                   Key<C>* keys, Key<C>* places) {
  using K = Key<C>;
  const C* row = x + rows.begin * n;
  const auto first = static_cast<K>(rows.begin * n);
  for (std::int64_t c = 0; c < n; ++c) {
    keys[c] = sort_key(row[c]);
    places[c] = first + static_cast<K>(c);
  }
  for (std::int64_t r = rows.begin + dilation; r < rows.end; r += dilation) {
    row = x + r * n;
    const auto at = static_cast<K>(r * n);
#pragma GCC ivdep
    for (std::int64_t c = 0; c < n; ++c) {
      const K key = sort_key(row[c]);
      const bool larger = key > keys[c];
      keys[c] = larger ? key : keys[c];
      places[c] = larger ? at + static_cast<K>(c) : places[c];
    }
  }
}

bool is_long(const PoolSpan& columns) {
  constexpr std::int64_t kLong = 32;
  return columns.end - columns.begin >= kLong;
}

// The place of the largest key in columns [begin, end); the first one of equal keys.
template <class K>
K first_largest(const K* keys, const K* places, const PoolSpan& columns, std::int64_t dilation) {
  constexpr std::int64_t kLong = 16;  // shorter runs are not worth two loops
  K largest = kNoKey<K>, place = kNowhere<K>;
  if (dilation == 1 && columns.end - columns.begin >= kLong) {
    for (std::int64_t c = columns.begin; c < columns.end; ++c) largest = std::max(largest, keys[c]);
    for (std::int64_t c = columns.begin; c < columns.end; ++c)
      place = std::min(place, places[c] | (keys[c] == largest ? K{0} : kNowhere<K>));
    return place;
  }
  for (std::int64_t c = columns.begin; c < columns.end; c += dilation) {
    const bool better = (keys[c] > largest) | ((keys[c] == largest) & (places[c] < place));
    largest = better ? keys[c] : largest;
    place = better ? places[c] : place;
  }
  return place;
}

// The same, of elements [columns.begin, columns.end) of one row, which begins at `first` in the plane.
template <class C>
Key<C> first_largest_of_row(const C* x, std::int64_t first, const PoolSpan& columns) {
  cpu::FirstExtreme<C, true> extreme;
  const std::int64_t begin = first + columns.begin;
  if (columns.begin < columns.end) extreme.add(x + begin, columns.end - columns.begin, 0);
  return extreme.position() < 0 ? kNowhere<Key<C>>
                                : static_cast<Key<C>>(begin + extreme.position());
}

// dx = the sums of the dy whose index names an element. The sums of 16-bit elements are formed in
// `sums`: of a whole plane, or, of few outputs, only where there are some.
template <class T, class C>
void scatter_plane(const PoolGeometry& g, const C* dy, const std::int64_t* indices, C* sums,
                   T* dx) {
  const auto inside = static_cast<std::uint64_t>(g.inputs());
  const auto for_each = [&](const auto& body) {
    for (std::int64_t o = 0; o < g.outputs(); ++o) {
      if (static_cast<std::uint64_t>(indices[o]) < inside) body(indices[o], o);
    }
  };
  constexpr std::int64_t kFew = 8;
  if constexpr (std::is_same_v<T, C>) {
    std::fill_n(dx, g.inputs(), T{});
    for_each([&](std::int64_t at, std::int64_t o) { dx[at] += dy[o]; });
  } else if (g.outputs() * kFew >= g.inputs()) {
    std::fill_n(sums, g.inputs(), C{});
    for_each([&](std::int64_t at, std::int64_t o) { sums[at] += dy[o]; });
    cpu::store_run(dtype_of<T>, dx, 1, g.inputs(), sums);
  } else {
    std::fill_n(dx, g.inputs(), T{});
    for_each([&](std::int64_t at, std::int64_t) { sums[at] = 0; });
    for_each([&](std::int64_t at, std::int64_t o) { sums[at] += dy[o]; });
    for_each([&](std::int64_t at, std::int64_t) { dx[at] = convert_element<T>(sums[at]); });
  }
}

}  // namespace

void MaxPoolKernel::cpu(const Args& a, Workspace scratch) {
  const PoolGeometry& g = a.g;
  cpu::for_each_plane(
      g, scratch,
      [&]<class C>(std::int64_t plane, const cpu::PoolTables<C>& tables,
                   const cpu::PoolBuffers<C>& space) {
        const C* x = cpu::read_plane(a.x, plane, space.inputs);
        C* const y = cpu::place_plane(a.y, plane, space.outputs);
        std::int64_t* const indices = a.indices.as<std::int64_t>() + plane * g.outputs();
        auto* keys = reinterpret_cast<Key<C>*>(space.in_row);
        auto* places = reinterpret_cast<Key<C>*>(space.other_in_row);
        std::int64_t o = 0;
        for (std::int64_t i = 0; i < g.h.out; ++i) {
          const PoolSpan& rows = tables.rows[i];
          const bool some = rows.begin < rows.end;
          // Keys serve windows that overlap, and windows of several rows. Long windows of one row are faster without them.
          const bool direct = some && rows.end - rows.begin <= g.h.dilation && g.w.dilation == 1 &&
                              is_long(tables.columns[0]);
          if (some && !direct) column_maxima(x, rows, g.h.dilation, g.w.in, keys, places);
          for (std::int64_t j = 0; j < g.w.out; ++j, ++o) {
            const Key<C> place =
                !some    ? kNowhere<Key<C>>
                : direct ? first_largest_of_row(x, rows.begin * g.w.in, tables.columns[j])
                         : first_largest(keys, places, tables.columns[j], g.w.dilation);
            const bool found = place != kNowhere<Key<C>>;
            indices[o] = found ? static_cast<std::int64_t>(place) : -1;
            y[o] = found ? x[place] : -std::numeric_limits<C>::infinity();
          }
        }
        cpu::commit_plane(a.y, plane, y);
      });
}

void MaxPoolBackwardKernel::cpu(const Args& a, Workspace scratch) {
  const PoolGeometry& g = a.g;
  with_type(a.dx.dtype, [&]<class T>() {
    if constexpr (!is_floating(dtype_of<T>)) return;
    cpu::for_each_plane(g, scratch,
                        [&]<class C>(std::int64_t plane, const cpu::PoolTables<C>&,
                                     const cpu::PoolBuffers<C>& space) {
                          const std::int64_t* indices =
                              a.indices.as<std::int64_t>() + plane * g.outputs();
                          scatter_plane(g, cpu::read_plane(a.dy, plane, space.outputs), indices,
                                        space.inputs, static_cast<T*>(cpu::plane_of(a.dx, plane)));
                        });
  });
}

}  // namespace tessera
