// Operands of the tests of row kernels: one shape in several layouts.
#pragma once

#include <string>
#include <vector>

#include "tessera/tests/gpu/comparison.h"

namespace tessera::testing {

// The tolerance for sums in an order other than the CPU's: a few ulp of the stored dtype.
inline Tolerance close_in(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return {.rtol = 1e-13, .atol = 1e-14};
    case DType::kBF16:
      return {.rtol = 0.01, .atol = 1e-5};
    case DType::kF16:
      return {.rtol = 2e-3, .atol = 1e-6};
    default:
      return {.rtol = 4e-6, .atol = 2e-7};
  }
}

inline constexpr DType kFloating[] = {DType::kF32, DType::kBF16, DType::kF16, DType::kF64};

// Extents around a pack, a warp, a block of threads and a batch of packs.
inline constexpr std::int64_t kLengths[] = {1, 3, 8, 31, 33, 64, 255, 1025, 2048};

enum class RowLayout {
  kContiguous,
  kMisaligned,  // begins at the second element
  kPadded,      // rows at multiples of 16 bytes, with gaps
  kTransposed,  // rows adjacent, elements of a row not
  kEverySecond,
};
inline constexpr RowLayout kRowLayouts[] = {RowLayout::kContiguous, RowLayout::kMisaligned,
                                            RowLayout::kPadded, RowLayout::kTransposed,
                                            RowLayout::kEverySecond};

inline HostTensor rows_tensor(DType dtype, std::int64_t rows, std::int64_t n, RowLayout layout) {
  switch (layout) {
    case RowLayout::kContiguous:
      return {dtype, {rows, n}};
    case RowLayout::kMisaligned:
      return {dtype, {rows, n}, {n, 1}, 1};
    case RowLayout::kPadded:
      return {dtype, {rows, n}, {(n + 15) / 16 * 16 + 16, 1}};
    case RowLayout::kTransposed:
      return {dtype, {rows, n}, {1, rows}};
    case RowLayout::kEverySecond:
      return {dtype, {rows, n}, {2 * n + 3, 2}};
  }
  return {dtype, {rows, n}};
}

inline std::string row_case(DType dtype, std::int64_t rows, std::int64_t n, RowLayout layout) {
  return std::string(dtype_name(dtype)) + ", " + std::to_string(rows) + " rows of " +
         std::to_string(n) + ", layout " + std::to_string(static_cast<int>(layout));
}

}  // namespace tessera::testing
