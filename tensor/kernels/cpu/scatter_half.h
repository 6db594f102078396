#pragma once

/// Folds into 16-bit elements: each destination is read once, folded in f32 and rounded once.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tessera/tensor/kernels/cpu/bits.h"
#include "tessera/tensor/kernels/cpu/convert.h"
#include "tessera/tensor/kernels/cpu/rows.h"
#include "tessera/tensor/kernels/cpu/scatter_lines.h"

namespace tessera::cpu {

template <ScatterMode kMode>
class ScatterHalf {
  using Destination = ScatterKernel::Destination;

 public:
  explicit ScatterHalf(const ScatterKernel::Args& a) : a_(a), lines_(a) {}

  void run(Workspace scratch) const {
    const ScatterLines& l = lines_;
    const std::size_t bytes = a_.buffer_bytes();
    if (!l.rows && a_.whole_lines()) {
      return parallel_buffered_rows<float>(
          l.pieces, l.piece * l.count, scratch, bytes, [&](std::int64_t p, float* line) {
            walk_lines(l.others, p * l.piece, std::min(l.total, (p + 1) * l.piece),
                       [&](const auto& offsets) { fold_line(offsets, line); });
          });
    }
    parallel_buffered_rows<Destination>(
        l.pieces, l.piece * l.count, scratch, bytes, [&](std::int64_t p, Destination* sorted) {
          fold_sorted(p * l.piece, std::min(l.total, (p + 1) * l.piece), sorted);
        });
  }

 private:
  static constexpr std::int64_t kRun = 512;

  // A line of y that has an index for many of its elements: all of it is converted.
  template <class Offsets>
  void fold_line(const Offsets& offsets, float* line) const {
    void* to = advance(a_.y.data, a_.y.dtype, offsets[0]);
    load_run(a_.y.dtype, to, a_.walk.stride, a_.walk.extent, line);
    std::int64_t buffer[kIndexRun];
    float values[kIndexRun];
    for (std::int64_t at = 0; at < lines_.count; at += kIndexRun) {
      const std::int64_t n = std::min(kIndexRun, lines_.count - at);
      const std::int64_t* indices = read_indices(a_.index, offsets[1] + at * lines_.index_step,
                                                 lines_.index_step, n, a_.walk, buffer);
      load_source(offsets[2] + at * lines_.src_step, lines_.src_step, n, values);
      for (std::int64_t i = 0; i < n; ++i) {
        if (indices[i] != a_.skip) put<kMode>(line[indices[i]], values[i]);
      }
    }
    store_run(a_.y.dtype, to, a_.walk.stride, a_.walk.extent, line);
  }

  // Few destinations, or rows that share an index: destination by destination.
  void fold_sorted(std::int64_t begin, std::int64_t end, Destination* sorted) const {
    std::int64_t sorted_from = -1, found = 0;
    walk(lines_.others, begin, end, [&](const auto& offsets, const auto& steps, std::int64_t n) {
      const bool shared = steps[1] == 0;
      auto at = offsets;
      for (std::int64_t i = 0; i < (shared ? 1 : n); ++i) {
        if (at[1] != sorted_from) found = sort_destinations(at[1], sorted);
        sorted_from = at[1];
        fold_groups(at, steps, shared ? n : 1, {sorted, static_cast<std::size_t>(found)});
        for (std::size_t operand = 0; operand < at.size(); ++operand) at[operand] += steps[operand];
      }
    });
  }

  // The number of indices that are not skipped.
  std::int64_t sort_destinations(std::int64_t index_offset, Destination* sorted) const {
    std::int64_t buffer[kIndexRun], found = 0;
    for (std::int64_t at = 0; at < lines_.count; at += kIndexRun) {
      const std::int64_t n = std::min(kIndexRun, lines_.count - at);
      const std::int64_t* indices = read_indices(a_.index, index_offset + at * lines_.index_step,
                                                 lines_.index_step, n, a_.walk, buffer);
      for (std::int64_t i = 0; i < n; ++i) {
        if (indices[i] != a_.skip) sorted[found++] = {.place = indices[i], .source = at + i};
      }
    }
    std::sort(sorted, sorted + found, [](const Destination& a, const Destination& b) {
      return a.place != b.place ? a.place < b.place : a.source < b.source;
    });
    return found;
  }

  template <class Offsets, class Steps>
  void fold_groups(const Offsets& offsets, const Steps& steps, std::int64_t n,
                   std::span<const Destination> sorted) const {
    float results[kRun], values[kRun];
    for (std::size_t first = 0, next = 0; first < sorted.size(); first = next) {
      const std::int64_t place = sorted[first].place;
      while (next < sorted.size() && sorted[next].place == place) ++next;
      for (std::int64_t at = 0; at < n; at += kRun) {
        const std::int64_t count = std::min(kRun, n - at);
        void* to =
            advance(a_.y.data, a_.y.dtype, offsets[0] + place * a_.walk.stride + at * steps[0]);
        load_run(a_.y.dtype, to, steps[0], count, results);
        for (std::size_t s = first; s < next; ++s) {
          if (s + 1 < sorted.size() && steps[2] == 1) {
            prefetch_source(offsets[2] + sorted[s + 1].source * lines_.src_step + at, count);
          }
          load_source(offsets[2] + sorted[s].source * lines_.src_step + at * steps[2], steps[2],
                      count, values);
          for (std::int64_t i = 0; i < count; ++i) put<kMode>(results[i], values[i]);
        }
        store_run(a_.y.dtype, to, steps[0], count, results);
      }
    }
  }

  // Sources lie in the order of their destinations, which the processor cannot foresee.
  void prefetch_source(std::int64_t offset, std::int64_t n) const {
    const auto size = static_cast<std::int64_t>(dtype_size(a_.src.dtype));
    prefetch(a_.src.data, offset * size, n * size);
  }
  void load_source(std::int64_t offset, std::int64_t step, std::int64_t n, float* values) const {
    load_run(a_.src.dtype, advance(a_.src.data, a_.src.dtype, offset), step, n, values);
  }

  const ScatterKernel::Args& a_;
  ScatterLines lines_;
};

}  // namespace tessera::cpu
