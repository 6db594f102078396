#include <algorithm>
#include <cstdint>
#include <cstring>

#include "tessera/tensor/kernels/cpu/rows.h"
#include "tessera/tensor/kernels/cpu/windows/pool_planes.h"
#include "tessera/tensor/kernels/pool.h"

namespace tessera {
namespace {

// Rows [begin, end) of `from`, n elements each, added in order: in place if there is one, else in `sum`.
template <class C>
const C* sum_rows(const C* from, const PoolSpan& rows, std::int64_t n, C* sum) {
  if (rows.end - rows.begin == 1) return from + rows.begin * n;
  std::fill_n(sum, n, C{0});
  for (std::int64_t r = rows.begin; r < rows.end; ++r) {
    const C* row = from + r * n;
    for (std::int64_t i = 0; i < n; ++i) sum[i] += row[i];
  }
  return sum;
}

// Short runs in order; long ones in lanes.
template <class C>
C sum_run(const C* from, std::int64_t n) {
  constexpr std::int64_t kLong = 32;
  if (n >= kLong) {
    return static_cast<C>(cpu::row_sum<C>(n, [=](std::int64_t i) { return from[i]; }));
  }
  C sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += from[i];
  return sum;
}

// The sums of the windows of one row of the output.
template <class C>
void sum_windows(const PoolGeometry& g, const cpu::PoolTables<C>& tables, const C* x,
                 const PoolSpan& rows, C* buffer, C* out) {
  const PoolSpan& first = tables.columns[0];
  if (g.w.out == 1 && first.begin == 0 && first.end == g.w.in) {  // whole rows are one run
    out[0] = sum_run(x + rows.begin * g.w.in, (rows.end - rows.begin) * g.w.in);
    return;
  }
  const C* sums = sum_rows(x, rows, g.w.in, buffer);
  for (std::int64_t j = 0; j < g.w.out; ++j) {
    const PoolSpan& columns = tables.columns[j];
    out[j] = sum_run(sums + columns.begin, columns.end - columns.begin);
  }
}

// out = sums / the number of elements that a mean counts, for one row of the output.
template <class C>
void divide_row(const PoolGeometry& g, const cpu::PoolTables<C>& tables, const PoolSpan& rows,
                const C* sums, C* out) {
  const auto count = static_cast<C>(rows.count);
#pragma GCC ivdep
  for (std::int64_t j = 0; j < g.w.out; ++j) out[j] = sums[j] / (count * tables.counts[j]);
}

// Row r of dx: the sums over the windows that contain an element, of dy / count in `space.outputs`.
template <class C>
void spread_row(const PoolGeometry& g, const cpu::PoolTables<C>& tables, std::int64_t r,
                const cpu::PoolBuffers<C>& space, C* dx) {
  const C* sums = sum_rows(space.outputs, tables.above[r], g.w.out, space.out_row);
  std::fill_n(dx, g.w.in, C{0});
  for (std::int64_t j = 0; j < g.w.out; ++j) {
    const PoolSpan columns = tables.columns[j];
    const C share = sums[j];
    for (std::int64_t c = columns.begin; c < columns.end; ++c) dx[c] += share;
  }
}

// The number of rows from r on that lie in the same windows.
template <class C>
std::int64_t rows_alike(const PoolGeometry& g, const cpu::PoolTables<C>& tables, std::int64_t r) {
  const PoolSpan& of = tables.above[r];
  std::int64_t end = r + 1;
  while (end < g.h.in && tables.above[end].begin == of.begin && tables.above[end].end == of.end)
    ++end;
  return end - r;
}

// Rows [1, count) become copies of row 0.
void repeat_row(char* rows, std::size_t bytes, std::int64_t count) {
  for (std::int64_t done = 1; done < count;) {
    const std::int64_t more = std::min(done, count - done);
    std::memcpy(rows + static_cast<std::size_t>(done) * bytes, rows,
                static_cast<std::size_t>(more) * bytes);
    done += more;
  }
}

}  // namespace

// Rows first, then columns: the compiler vectorizes sums of rows.
void AvgPoolKernel::cpu(const Args& a, Workspace scratch) {
  const PoolGeometry& g = a.g;
  cpu::for_each_plane(g, scratch,
                      [&]<class C>(std::int64_t plane, const cpu::PoolTables<C>& tables,
                                   const cpu::PoolBuffers<C>& space) {
                        const C* x = cpu::read_plane(a.x, plane, space.inputs);
                        C* const y = cpu::place_plane(a.y, plane, space.outputs);
                        for (std::int64_t i = 0; i < g.h.out; ++i) {
                          C* out = y + i * g.w.out;
                          sum_windows(g, tables, x, tables.rows[i], space.in_row, out);
                          divide_row(g, tables, tables.rows[i], out, out);
                        }
                        cpu::commit_plane(a.y, plane, y);
                      });
}

void AvgPoolBackwardKernel::cpu(const Args& a, Workspace scratch) {
  const PoolGeometry& g = a.g;
  const std::size_t row_bytes = static_cast<std::size_t>(g.w.in) * dtype_size(a.dx.dtype);
  cpu::for_each_plane(g, scratch,
                      [&]<class C>(std::int64_t plane, const cpu::PoolTables<C>& tables,
                                   const cpu::PoolBuffers<C>& space) {
                        const C* dy = cpu::read_plane(a.dy, plane, space.outputs);
                        for (std::int64_t i = 0; i < g.h.out; ++i) {
                          const std::int64_t at = i * g.w.out;
                          divide_row(g, tables, tables.rows[i], dy + at, space.outputs + at);
                        }
                        const bool in_place = a.dx.dtype == dtype_of<C>;
                        auto* to = static_cast<char*>(cpu::plane_of(a.dx, plane));
                        for (std::int64_t r = 0; r < g.h.in;) {
                          C* row = in_place ? reinterpret_cast<C*>(to) : space.in_row;
                          spread_row(g, tables, r, space, row);
                          if (!in_place) cpu::store_run(a.dx.dtype, to, 1, g.w.in, row);
                          const std::int64_t alike = rows_alike(g, tables, r);
                          repeat_row(to, row_bytes, alike);
                          to += static_cast<std::size_t>(alike) * row_bytes;
                          r += alike;
                        }
                      });
}

}  // namespace tessera
