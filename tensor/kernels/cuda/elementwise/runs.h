#pragma once

/// How elementwise kernels split their work: the elements of each thread, and whether it can read
/// and write runs of them in one access. Pure functions, tested on the CPU.
///
/// Operands are walked with one shape in row-major order. If each operand is contiguous along the
/// last dim, or repeats one element there, and addresses are aligned, the pieces of work are runs
/// of 4 or 8 elements; else single elements. A tile is the work that the threads of a block take at
/// a time: for each thread a group of G elements in runs, or 4 single ones. The pieces of a thread
/// are kThreads apart, so that adjacent threads access adjacent memory.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "tessera/tensor/host_device.h"
#include "tessera/tensor/kernels/cuda/elementwise/walk.h"
#include "tessera/tensor/shape.h"

namespace tessera::cuda {

/// Single elements per thread and tile: more would need more registers for their addresses than the
/// overlapping of loads is worth.
inline constexpr int kSingles = 4;

/// One operand, for planning runs.
struct RunOperand {
  std::uintptr_t address = 0;  ///< in memory; in units if `bytes` is 1
  std::size_t bytes = 0;       ///< of an element; 0 for a number, which is not in memory
  Shape strides;               ///< in elements
  bool in_a_row = false;       ///< runs may not repeat an element: for outputs
};

/// The work of a launch with N operands.
template <int N>
struct Runs {
  Walk<N> walk;             ///< of pieces; offsets in elements
  int run = 1;              ///< elements of a piece: 1, 4 or 8
  int pieces_each = 1;      ///< of a thread in a tile
  int steps[N] = {};        ///< from one element of a run to the next: 0 or 1
  std::int64_t pieces = 0;  ///< total number
  std::int64_t tail = 0;    ///< elements [tail, end) of a single row that fill no run
  std::int64_t end = 0;
  std::int64_t tiles = 0;
};

namespace detail {

inline bool allows_runs(const Shape& shape, const RunOperand& operand, int run) {
  if (operand.bytes == 0) return true;
  const Shape& strides = operand.strides;
  if (strides.back() != 1) return strides.back() == 0 && !operand.in_a_row;
  const std::size_t access = std::min<std::size_t>(16, operand.bytes * static_cast<unsigned>(run));
  bool aligned = operand.address % access == 0;
  for (int d = 0; d + 1 < shape.ndim(); ++d) aligned = aligned && strides[d] % run == 0;
  return aligned && (run == 4 || operand.bytes <= 2);
}

template <int N>
int run_length(const Shape& shape, const std::array<RunOperand, N>& operands, int group) {
  if (shape.ndim() == 0) return 1;
  for (int run : {8, 4}) {
    const bool fits = run <= group && shape.back() >= run &&
                      (shape.ndim() == 1 || shape.back() % run == 0) &&
                      std::all_of(operands.begin(), operands.end(),
                                  [&](const RunOperand& o) { return allows_runs(shape, o, run); });
    if (fits) return run;
  }
  return 1;
}

}  // namespace detail

/// Plans the runs of a shape without extents of 0. `group` is G, the elements of a thread in a
/// tile: 4, or 8, which allows runs of 8 if all elements have at most 2 bytes.
template <std::size_t N>
Runs<static_cast<int>(N)> plan_runs(Shape shape, std::array<RunOperand, N> operands, int group) {
  constexpr int kCount = static_cast<int>(N);
  std::array<Shape, N> strides;
  for (std::size_t o = 0; o < N; ++o) {
    if (operands[o].bytes == 0) operands[o].strides = Shape::filled(shape.ndim(), 0);
    strides[o] = operands[o].strides;
  }
  merge_dims_of(shape, strides);
  for (std::size_t o = 0; o < N; ++o) operands[o].strides = strides[o];

  Runs<kCount> runs;
  runs.end = runs.tail = shape.numel();
  runs.run = detail::run_length<kCount>(shape, operands, group);
  if (runs.run > 1) {
    const int last = shape.ndim() - 1;
    runs.tail = runs.end / runs.run * runs.run;
    shape[last] /= runs.run;
    for (std::size_t o = 0; o < N; ++o) {
      runs.steps[o] = static_cast<int>(strides[o][last]);
      strides[o][last] *= runs.run;
    }
  }
  runs.pieces = shape.numel();
  runs.pieces_each = runs.run == 1 ? kSingles : group / runs.run;
  // The tail has a tile of its own: it has fewer elements than a block has threads.
  runs.tiles = pieces_of(runs.pieces, std::int64_t{kThreads} * runs.pieces_each) +
               (runs.tail < runs.end ? 1 : 0);
  runs.walk = make_walk(shape, strides);
  return runs;
}

/// A thread's part of a tile: the pieces first, first + kThreads, ... below `end`, at most
/// pieces_each.
struct Part {
  std::int64_t first = 0;
  std::int64_t end = 0;
  int run = 1;
  bool is_tail = false;  ///< `first` counts elements of the only row

  TESSERA_HD bool empty() const { return first >= end; }
  TESSERA_HD bool has(int piece) const { return first + std::int64_t{piece} * kThreads < end; }
};

template <int N>
TESSERA_HD Part part_of(const Runs<N>& runs, std::int64_t tile, int thread) {
  const std::int64_t first = tile * kThreads * runs.pieces_each;
  if (first >= runs.pieces)
    return {.first = runs.tail + thread, .end = runs.end, .run = 1, .is_tail = true};
  return {.first = first + thread, .end = runs.pieces, .run = runs.run};
}

/// The row-major number of the k-th element of a part.
TESSERA_HD std::int64_t element_of(const Part& part, int k) {
  if (part.run == 1) return part.first + std::int64_t{k} * kThreads;
  if (part.run == 8) return part.first * 8 + k;
  return (part.first + std::int64_t{k / 4} * kThreads) * 4 + k % 4;
}

/// The offsets of K pieces of a part. A missing piece gets the offset of the first, which may be
/// read.
template <int N, int K>
TESSERA_HD void find_pieces(const Runs<N>& runs, int operand, const Part& part,
                            std::int64_t (&at)[K]) {
  std::int64_t pieces[K];
  for (int k = 0; k < K; ++k)
    pieces[k] = part.has(k) ? part.first + std::int64_t{k} * kThreads : part.first;
  if (!part.is_tail) return find_offsets(runs.walk, operand, pieces, at);
  for (int k = 0; k < K; ++k) at[k] = pieces[k] * runs.steps[operand];
}

/// The offsets of a part: at[k] of its k-th single element; for runs at[0] and at[1], of each 4
/// elements; the others are not set.
using Places = std::int64_t[kSingles];

template <int G, int N>
TESSERA_HD void find_part(const Runs<N>& runs, int operand, const Part& part, Places& at) {
  if (part.run == 1) return find_pieces(runs, operand, part, at);
  std::int64_t fours[G / 4];
  find_pieces(runs, operand, part, fours);
  for (int k = 0; k < G / 4; ++k) at[k] = fours[k];
  if (part.run == 8) at[1] = at[0] + 4 * std::int64_t{runs.steps[operand]};
}

}  // namespace tessera::cuda
