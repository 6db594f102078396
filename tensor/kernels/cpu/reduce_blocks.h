#pragma once

/// The loops that all reductions share: blocks, lanes and threads. See kernels/reduce.h for the
/// order.

#include <immintrin.h>

#include <algorithm>
#include <span>
#include <type_traits>

#include "tessera/tensor/kernels/cpu/convert.h"
#include "tessera/tensor/kernels/cpu/elements.h"
#include "tessera/tensor/kernels/cpu/lanes.h"
#include "tessera/tensor/kernels/cpu/traversal.h"
#include "tessera/tensor/kernels/math/convert_element.h"
#include "tessera/tensor/kernels/math/reduce_folds.h"

namespace tessera::cpu {

inline constexpr std::int64_t kReduceBlock = ReduceKernel::kBlock;
/// The number of results that are computed together if they are adjacent in memory and the elements
/// of one result are not.
inline constexpr std::int64_t kColumns = 64;

/// The number of blocks that a thread takes at a time: finding a block's elements costs as much as
/// folding some hundred of them.
inline constexpr std::int64_t kSpan = 8;

/// Where the elements lie.
struct ReduceGeometry {
  Traversal<1> kept;
  Traversal<1> reduced;
  std::int64_t outputs = 0;
  std::int64_t count = 0;
  std::int64_t blocks = 0;
  bool columns = false;
};

inline ReduceGeometry reduce_geometry(const ReduceKernel::Args& a) {
  const int kept = a.kept_dims, ndim = a.x.shape.ndim();
  ReduceGeometry g;
  const auto part = [](const Shape& s, int begin, int end) {
    return std::span(s.begin() + begin, static_cast<std::size_t>(end - begin));
  };
  g.kept = make_traversal(part(a.x.shape, 0, kept), part(a.x.strides, 0, kept));
  g.reduced = make_traversal(part(a.x.shape, kept, ndim), part(a.x.strides, kept, ndim));
  g.outputs = a.outputs();
  g.count = a.count();
  g.blocks = a.blocks();
  const auto inner = [](const Traversal<1>& t) { return t.strides[0][t.ndim - 1]; };
  g.columns = g.reduced.ndim == 1 && inner(g.kept) == 1 && inner(g.reduced) != 1;
  return g;
}

/// Reductions with terms in f64 of elements in f32, each one or two vector instructions.
template <class F>
inline constexpr bool kFoldsWide =
    std::is_same_v<F, folds::ProdFold<float>> || std::is_same_v<F, folds::SquaresFold<float>> ||
    std::is_same_v<F, folds::Norm2Fold<float>>;

inline __m256d load4_wide(const float* x) { return _mm256_cvtps_pd(_mm_loadu_ps(x)); }
inline __m256d load4_wide(const BFloat16* x) {
  const __m128i bits = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(x));
  return _mm256_cvtps_pd(_mm_castsi128_ps(_mm_slli_epi32(_mm_cvtepu16_epi32(bits), 16)));
}

/// lane_fold() of the terms of F: 16 lanes in four registers, where the compiler keeps them in memory.
template <class F, class T>
double fold_wide(const T* x, std::int64_t n) {
  static_assert(kLanes == 16);
  const auto fold = [](__m256d lanes, const T* from) {
    const __m256d values = load4_wide(from);
    if constexpr (std::is_same_v<F, folds::ProdFold<float>>)
      return _mm256_mul_pd(lanes, values);
    else
      return _mm256_add_pd(lanes, _mm256_mul_pd(values, values));
  };
  const __m256d none = _mm256_set1_pd(F::kNone);
  __m256d a = none, b = none, c = none, d = none;
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    a = fold(a, x + i);
    b = fold(b, x + i + 4);
    c = fold(c, x + i + 8);
    d = fold(d, x + i + 12);
  }
  double lanes[kLanes];
  _mm256_storeu_pd(lanes, a);
  _mm256_storeu_pd(lanes + 4, b);
  _mm256_storeu_pd(lanes + 8, c);
  _mm256_storeu_pd(lanes + 12, d);
  for (int lane = 0; i + lane < n; ++lane)
    lanes[lane] = F::fold(lanes[lane], F::term(convert_element<float>(x[i + lane]), 0, {}));
  return fold_lanes(lanes, [](double p, double q) { return F::fold(p, q); });
}

template <class F, class C>
class Reduction {
  using Acc = typename F::Acc;
  using Total = typename F::Total;
  static_assert(sizeof(Total) == 8);

 public:
  Reduction(const ReduceKernel::Args& a, Workspace scratch)
      : args_(a),
        g_(reduce_geometry(a)),
        x_(a.x),
        numbers_{static_cast<double>(g_.count), a.parameter},
        partial_(static_cast<Total*>(scratch.data)) {}

  void run() const {
    const std::int64_t groups = (g_.outputs + kColumns - 1) / kColumns;
    const std::int64_t spans = (g_.blocks + kSpan - 1) / kSpan;
    parallel_for(groups * spans, threads_for(g_.outputs * g_.count), [&](std::int64_t piece) {
      fold_piece(piece / groups * kSpan, piece % groups * kColumns);
    });
    parallel_for(groups, threads_for(g_.outputs * g_.blocks),
                 [&](std::int64_t group) { finish(group * kColumns); });
  }

 private:
  double shift(std::int64_t output) const {
    return args_.shift.defined() ? args_.shift.as<double>()[output] : 0;
  }

  // partial_[block * outputs + output] for up to kColumns results of up to kSpan blocks.
  void fold_piece(std::int64_t first_block, std::int64_t first) const {
    const std::int64_t last_block = std::min(g_.blocks, first_block + kSpan);
    const std::int64_t last = std::min(g_.outputs, first + kColumns);
    std::int64_t o = first;
    walk(g_.kept, first, last, [&](const auto& offsets, const auto& steps, std::int64_t width) {
      for (std::int64_t block = first_block; block < last_block; ++block) {
        if (g_.columns) {
          fold_columns(offsets[0], o, width, block);
        } else {
          for (std::int64_t i = 0; i < width; ++i) {
            partial_[block * g_.outputs + o + i] =
                static_cast<Total>(fold_block(offsets[0] + i * steps[0], block, shift(o + i)));
          }
        }
      }
      o += width;
    });
  }

  std::int64_t end_of(std::int64_t block) const {
    return std::min(g_.count, (block + 1) * kReduceBlock);
  }

  // A block of the result that starts at `offset`.
  Acc fold_block(std::int64_t offset, std::int64_t block, double shift) const {
    const std::int64_t begin = block * kReduceBlock, end = end_of(block), n = end - begin;
    C buffer[kReduceBlock];
    const auto fold_run = [&]<class T>(const T* values) {
      if constexpr (kFoldsWide<F>) return fold_wide<F>(values, n);
      return lane_fold<Acc>(
          n, Acc(F::kNone), [&](std::int64_t i) { return term(values[i], shift); },
          [](Acc a, Acc b) { return F::fold(a, b); });
    };
    if (g_.reduced.ndim == 1) {
      const std::int64_t stride = g_.reduced.strides[0][0];
      return x_.with_run(offset + begin * stride, stride, n, buffer, fold_run);
    }
    C* next = buffer;
    walk(g_.reduced, begin, end, [&](const auto& offsets, const auto& steps, std::int64_t count) {
      x_.load(offset + offsets[0], steps[0], count, next);
      next += count;
    });
    return fold_run(static_cast<const C*>(buffer));
  }

  template <class T>
  Acc term(T element, double shift) const {
    return static_cast<Acc>(F::term(convert_element<C>(element), shift, numbers_));
  }

  // The same for `width` adjacent results: rows of them are folded, lane by lane as above.
  void fold_columns(std::int64_t offset, std::int64_t output, std::int64_t width,
                    std::int64_t block) const {
    const std::int64_t begin = block * kReduceBlock, end = end_of(block);
    Acc lanes[kLanes][kColumns];
    std::fill_n(&lanes[0][0], kLanes * kColumns, Acc(F::kNone));
    double shifts[kColumns];
    for (std::int64_t c = 0; c < width; ++c) shifts[c] = shift(output + c);
    C buffer[kColumns];
    const std::int64_t stride = g_.reduced.strides[0][0];
    constexpr std::int64_t kAhead = 8;
    for (std::int64_t row = begin; row < end; ++row) {
      Acc* lane = lanes[(row - begin) % kLanes];
      x_.prefetch(offset + (row + kAhead) * stride, width);
      x_.with_run(offset + row * stride, 1, width, buffer, [&](const auto* from) {
        for (std::int64_t c = 0; c < width; ++c)
          lane[c] = F::fold(lane[c], term(from[c], shifts[c]));
      });
    }
    for (int half = kLanes / 2; half > 0; half /= 2) {
      for (int lane = 0; lane < half; ++lane) {
        for (std::int64_t c = 0; c < width; ++c)
          lanes[lane][c] = F::fold(lanes[lane][c], lanes[lane + half][c]);
      }
    }
    Total* out = partial_ + block * g_.outputs + output;
    for (std::int64_t c = 0; c < width; ++c) out[c] = static_cast<Total>(lanes[0][c]);
  }

  // Computes results [first, first + kColumns) from their blocks.
  void finish(std::int64_t first) const {
    folds::Wide<Total> results[kColumns];
    const std::int64_t n = std::min(g_.outputs - first, kColumns);
    for (std::int64_t c = 0; c < n; ++c)
      results[c] = F::finish(total(first + c), shift(first + c), numbers_);
    store_run(args_.y.dtype, advance(args_.y.data, args_.y.dtype, first), 1, n, results);
  }

  // Folds the totals of one result's blocks in groups, and groups in groups, in place.
  Total total(std::int64_t output) const {
    constexpr std::int64_t kGroup = ReduceKernel::kGroup;
    const auto at = [&](std::int64_t b) -> Total& { return partial_[b * g_.outputs + output]; };
    if (g_.blocks == 0) return static_cast<Total>(F::kNone);
    std::int64_t left = g_.blocks;
    do {
      const std::int64_t groups = (left + kGroup - 1) / kGroup;
      for (std::int64_t g = 0; g < groups; ++g) {
        Total total = static_cast<Total>(F::kNone);
        for (std::int64_t b = g * kGroup; b < std::min(left, (g + 1) * kGroup); ++b)
          total = F::fold(total, at(b));
        at(g) = total;
      }
      left = groups;
    } while (left > 1);
    return at(0);
  }

  const ReduceKernel::Args& args_;
  ReduceGeometry g_;
  Elements<C> x_;
  folds::ReduceNumbers numbers_;
  Total* partial_;
};

}  // namespace tessera::cpu
