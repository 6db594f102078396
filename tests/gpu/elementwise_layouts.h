// Layouts of three operands with one shape, and numbers that include special values: inputs for
// elementwise kernels.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "tessera/tests/gpu/comparison.h"

namespace tessera::testing {

struct Layouts {
  const char* name;
  Shape shape;
  Shape a, b, y;           // strides
  std::int64_t first = 0;  // offset of each, in elements
};

inline Layouts in_order(std::int64_t n, std::int64_t first = 0) {
  return {first == 0 ? "in order" : "misaligned", {n}, {1}, {1}, {1}, first};
}

// Lengths around those of runs, tiles and their tails.
inline constexpr std::int64_t kLengths[] = {0,   1,   3,    4,    7,    8,    31,  33,
                                            255, 256, 1023, 1025, 2047, 2048, 2061};

inline const std::vector<Layouts>& strided_layouts() {
  static const std::vector<Layouts> layouts = {
      {"a 0-d tensor", {}, {}, {}, {}},
      {"an empty matrix", {3, 0, 2}, {0, 2, 1}, {1, 1, 1}, {0, 2, 1}},
      {"a row repeated, runs of 8", {33, 64}, {64, 1}, {0, 1}, {64, 1}},
      {"a row repeated, runs of 4", {33, 12}, {12, 1}, {0, 1}, {12, 1}},
      {"a row repeated, no runs", {33, 7}, {7, 1}, {0, 1}, {7, 1}},
      {"a column repeated", {33, 64}, {64, 1}, {1, 0}, {64, 1}},
      {"one element repeated", {3, 41}, {0, 0}, {41, 1}, {41, 1}},
      {"rows with gaps", {17, 24}, {32, 1}, {24, 1}, {48, 1}},
      {"rows with odd gaps", {17, 24}, {33, 1}, {24, 1}, {25, 1}},
      {"a transpose", {33, 65}, {1, 33}, {65, 1}, {65, 1}},
      {"every second element", {5, 40}, {80, 2}, {40, 1}, {80, 2}},
      {"dims in another order", {5, 7, 12}, {12, 60, 1}, {84, 12, 1}, {84, 1, 7}},
      {"a middle dim repeated", {4, 3, 16}, {48, 16, 1}, {16, 0, 1}, {48, 16, 1}},
      {"five dims", {2, 3, 2, 3, 4}, {1, 2, 6, 12, 36}, {72, 24, 0, 4, 1}, {72, 24, 12, 4, 1}},
  };
  return layouts;
}

inline HostTensor tensor_of(DType dtype, const Layouts& layouts, const Shape& strides) {
  return HostTensor(dtype, layouts.shape, strides, layouts.first);
}

// Numbers in [-8, 8), integers for integer dtypes, with special values if the dtype has them.
inline HostTensor&& with_numbers(HostTensor&& tensor, DType dtype, int seed) {
  const double infinity = std::numeric_limits<double>::infinity();
  const double special[] = {0.0, -0.0, infinity, -infinity, std::nan(""), 1.0, -1.0, 1e30, 1e-40};
  std::uint64_t state = static_cast<std::uint64_t>(seed) * 977 + 5;
  return std::move(tensor).filled([&, n = 0](std::int64_t) mutable {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const double number = static_cast<double>(state >> 11) * 0x1p-49 - 8;
    if (!is_floating(dtype)) return static_cast<double>(static_cast<int>(number));
    ++n;
    return n % 5 == 0 ? special[(state >> 33) % std::size(special)] : number;
  });
}

inline HostTensor numbers_of(DType dtype, const Layouts& layouts, const Shape& strides, int seed) {
  return with_numbers(tensor_of(dtype, layouts, strides), dtype, seed);
}

inline DType compute_of(DType dtype) {
  return is_floating(dtype) ? compute_dtype(dtype) : DType::kI64;
}

// The tolerance for a result of this dtype if a maths function in f64, whose last bit may differ
// between CPU and GPU, was used.
inline Tolerance last_bit(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return {.rtol = 1e-14, .atol = 0};
    case DType::kF32:
      return {.rtol = 0x1p-23, .atol = 0x1p-149};
    case DType::kBF16:
      return {.rtol = 0x1p-7, .atol = 0};
    default:
      return {.rtol = 0x1p-10, .atol = 0x1p-24};
  }
}

}  // namespace tessera::testing
