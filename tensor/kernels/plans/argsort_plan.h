#pragma once

/// How a GPU sorts lines, from shapes and the dtype alone: short lines within blocks, long ones by
/// radix sort, a limited number at a time so that scratch is bounded.

#include <algorithm>
#include <cstdint>

#include "tessera/tensor/kernels/argsort.h"
#include "tessera/tensor/kernels/plans/radix_plan.h"

namespace tessera {

struct ArgsortPlan {
  /// Elements that a block sorts, of one or several lines.
  static constexpr std::int64_t kBlockElements = 2048;
  /// Elements in one round of radix sort, unless a line has more.
  static constexpr std::int64_t kRoundElements = std::int64_t{1} << 24;

  std::int64_t lines = 0;
  std::int64_t length = 0;
  bool wide_keys = false;  ///< keys of 64 bits, else of 32
  bool in_blocks = true;

  /// The number of lines in one round, and their scratch.
  std::int64_t round_lines() const {
    return std::clamp<std::int64_t>(kRoundElements / std::max<std::int64_t>(1, length), 1,
                                    std::max<std::int64_t>(1, lines));
  }
  RadixPlan radix(std::int64_t round) const {
    return {.lines = round,
            .length = length,
            .record_bytes = wide_keys ? std::size_t{16} : std::size_t{8},
            .passes = radix_passes(wide_keys ? 64 : 32)};
  }
  RadixPlan radix() const { return radix(round_lines()); }
};

inline ArgsortPlan argsort_plan(const ArgsortKernel::Args& a) {
  return {.lines = a.lines(),
          .length = a.extent(),
          .wide_keys = a.x.dtype == DType::kF64 || a.x.dtype == DType::kI64,
          .in_blocks = a.extent() <= ArgsortPlan::kBlockElements};
}

}  // namespace tessera
