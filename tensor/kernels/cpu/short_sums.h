#pragma once

/// Sums of few elements, as in the gradients of repeated ones: blocks, lanes and partial sums of
/// Reduction would cost more than the additions. The order, and so the bits, are the same.

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "tessera/tensor/kernels/cpu/convert.h"
#include "tessera/tensor/kernels/cpu/lanes.h"
#include "tessera/tensor/kernels/cpu/traversal.h"
#include "tessera/tensor/kernels/math/reduce_folds.h"

namespace tessera::cpu {

template <class C>
class ShortSums {
 public:
  static bool fits(const ReduceKernel::Args& a) {
    return a.op == ReduceOp::kSum && a.count() > 0 && a.count() <= kLanes;
  }
  explicit ShortSums(const ReduceKernel::Args& a) : a_(a), count_(a.count()) {
    const auto part = [](const Shape& s, int begin, int end) {
      return std::span(s.begin() + begin, static_cast<std::size_t>(end - begin));
    };
    const int ndim = a.x.shape.ndim();
    kept_ = make_traversal(part(a.x.shape, 0, a.kept_dims), part(a.x.strides, 0, a.kept_dims));
    const auto reduced =
        make_traversal(part(a.x.shape, a.kept_dims, ndim), part(a.x.strides, a.kept_dims, ndim));
    std::size_t next = 0;
    walk_lines(reduced, 0, count_, [&](const auto& offsets) { terms_at_[next++] = offsets[0]; });
  }

  void run() const {
    parallel_pieces(a_.outputs(), [&](std::int64_t begin, std::int64_t end) {
      std::int64_t output = begin;
      walk(kept_, begin, end, [&](const auto& offsets, const auto& steps, std::int64_t n) {
        for (std::int64_t at = 0; at < n; at += kRun) {
          const std::int64_t width = std::min(kRun, n - at);
          sum_run(offsets[0] + at * steps[0], steps[0], width, output);
          output += width;
        }
      });
    });
  }

 private:
  static constexpr std::int64_t kRun = 256;
  using Fold = folds::SumFold<C>;

  // Results [output, output + width): element j of each goes to lane j, lanes are added pairwise.
  void sum_run(std::int64_t offset, std::int64_t step, std::int64_t width,
               std::int64_t output) const {
    C lanes[kLanes][kRun];
    for (std::int64_t j = 0; j < count_; ++j) {
      const std::int64_t from = offset + terms_at_[static_cast<std::size_t>(j)];
      C* lane = lanes[j];
      load_run(a_.x.dtype, advance(a_.x.data, a_.x.dtype, from), step, width, lane);
      for (std::int64_t c = 0; c < width; ++c) lane[c] = Fold::fold(C{Fold::kNone}, lane[c]);
    }
    for (std::int64_t half = kLanes / 2; half > 0; half /= 2) {
      for (std::int64_t j = 0; j < half && j + half < count_; ++j) {
        for (std::int64_t c = 0; c < width; ++c)
          lanes[j][c] = Fold::fold(lanes[j][c], lanes[j + half][c]);
      }
    }
    store_run(a_.y.dtype, advance(a_.y.data, a_.y.dtype, output), 1, width, lanes[0]);
  }

  const ReduceKernel::Args& a_;
  std::int64_t count_;
  Traversal<1> kept_;
  std::array<std::int64_t, kLanes> terms_at_{};
};

}  // namespace tessera::cpu
