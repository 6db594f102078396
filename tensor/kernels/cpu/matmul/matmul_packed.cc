// Products of f32, bf16 and f16 in kernels without AVX-512.
//
// c is computed in parts of 6 x 16 elements, whose sums stay in registers. A part reads one panel of a (6 rows) and one of b (16
// columns): copies as f32 that lie in the order in which they are read. For each chunk of the inner dim, all panels of a are packed
// at once, for the second cache, and those of b one after another, for the first.
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "tessera/tensor/dtype.h"
#include "tessera/tensor/kernels/cpu/load8.h"
#include "tessera/tensor/kernels/cpu/matmul/matmul_tile.h"
#include "tessera/tensor/kernels/matmul.h"

namespace tessera::cpu {
namespace {

constexpr std::int64_t kRows = MatmulKernel::kPanelRows, kColumns = MatmulKernel::kPanelColumns;

// out[i * step + row] = from[row * stride + i], 8 x 8; rows from `last` on repeat it. Written in the order of i: with a step
// below 8, the next line overwrites what is too much.
template <class T>
void transpose8(const T* from, std::int64_t stride, std::int64_t last, float* out,
                std::int64_t step) {
  __m256 x[8];
#pragma GCC unroll 8
  for (std::int64_t row = 0; row < 8; ++row) x[row] = load8(from + std::min(row, last) * stride);
  const __m256 a0 = _mm256_unpacklo_ps(x[0], x[1]), a1 = _mm256_unpackhi_ps(x[0], x[1]),
               a2 = _mm256_unpacklo_ps(x[2], x[3]), a3 = _mm256_unpackhi_ps(x[2], x[3]),
               a4 = _mm256_unpacklo_ps(x[4], x[5]), a5 = _mm256_unpackhi_ps(x[4], x[5]),
               a6 = _mm256_unpacklo_ps(x[6], x[7]), a7 = _mm256_unpackhi_ps(x[6], x[7]);
  const __m256 b0 = _mm256_shuffle_ps(a0, a2, 0x44), b1 = _mm256_shuffle_ps(a0, a2, 0xEE),
               b2 = _mm256_shuffle_ps(a1, a3, 0x44), b3 = _mm256_shuffle_ps(a1, a3, 0xEE),
               b4 = _mm256_shuffle_ps(a4, a6, 0x44), b5 = _mm256_shuffle_ps(a4, a6, 0xEE),
               b6 = _mm256_shuffle_ps(a5, a7, 0x44), b7 = _mm256_shuffle_ps(a5, a7, 0xEE);
  _mm256_storeu_ps(out, _mm256_permute2f128_ps(b0, b4, 0x20));
  _mm256_storeu_ps(out + step, _mm256_permute2f128_ps(b1, b5, 0x20));
  _mm256_storeu_ps(out + 2 * step, _mm256_permute2f128_ps(b2, b6, 0x20));
  _mm256_storeu_ps(out + 3 * step, _mm256_permute2f128_ps(b3, b7, 0x20));
  _mm256_storeu_ps(out + 4 * step, _mm256_permute2f128_ps(b0, b4, 0x31));
  _mm256_storeu_ps(out + 5 * step, _mm256_permute2f128_ps(b1, b5, 0x31));
  _mm256_storeu_ps(out + 6 * step, _mm256_permute2f128_ps(b2, b6, 0x31));
  _mm256_storeu_ps(out + 7 * step, _mm256_permute2f128_ps(b3, b7, 0x31));
}

// A panel of an operand: up to `width` lines (rows of a, columns of b), side by side for each element of the inner dim.
// out[p * width + line] = from[line * line_stride + p * step], where one of the strides is 1. `room` lines can be read.
template <class T>
void pack(const T* from, std::int64_t line_stride, std::int64_t step, std::int64_t lines,
          std::int64_t room, std::int64_t k, std::int64_t width, float* out) {
  std::int64_t p = 0;
  if (step == 1 && lines > 2) {
    for (; p + 8 <= k; p += 8) {
      for (std::int64_t line = 0; line < width; line += 8) {
        const std::int64_t first = std::min(line, lines - 1);
        transpose8(from + first * line_stride + p, line_stride, lines - 1 - first,
                   out + p * width + line, width);
      }
    }
  } else if (line_stride == 1 && room >= (width + 7) / 8 * 8) {
    for (; p < k; ++p) {
      for (std::int64_t line = 0; line < width; line += 8)
        _mm256_storeu_ps(out + p * width + line, load8(from + p * step + line));
    }
  }
  for (; p < k; ++p) {
    for (std::int64_t line = 0; line < width; ++line)
      out[p * width + line] =
          line < lines ? static_cast<float>(from[line * line_stride + p * step]) : 0;
  }
}

// All panels of an a of m rows, `depth` steps apart. Where its columns are contiguous, several panels at a time: a line of
// the cache holds elements of two or three of them, and of more it would be gone when the next one asks for it.
template <class T>
void pack_rows(const T* from, const ConstMatrix& a, std::int64_t m, std::int64_t k,
               std::int64_t depth, float* out) {
  constexpr std::int64_t kTogether = 8;
  std::int64_t row = 0;
  for (; a.row_stride == 1 && m - row >= kTogether * kRows + 2; row += kTogether * kRows) {
    const T* line = from + row;
    float* const panels = out + row * depth;
    for (std::int64_t p = 0; p < k - 1; ++p, line += a.column_stride) {
#pragma GCC unroll 8
      for (std::int64_t i = 0; i < kTogether; ++i)
        _mm256_storeu_ps(panels + i * kRows * depth + p * kRows, load8(line + i * kRows));
    }
    // Whole vectors would overwrite the next panel.
    for (std::int64_t i = 0; i < kTogether * kRows; ++i)
      panels[i / kRows * kRows * depth + (k - 1) * kRows + i % kRows] = static_cast<float>(line[i]);
  }
  for (; row < m; row += kRows)
    pack(from + row * a.row_stride, a.row_stride, a.column_stride, std::min(kRows, m - row),
         m - row, k, kRows, out + row * depth);
}

// A part of c of up to kRows x kColumns elements, and what it is computed from.
struct Part {
  std::int64_t k = 0;
  const float* a = nullptr;  // element (row, p) is at row * a_row + p * a_step; one of them is 1
  std::int64_t a_row = 1;
  std::int64_t a_step = kRows;
  const float* b = nullptr;  // element (p, column) is at p * b_step + column
  std::int64_t b_step = kColumns;
  const float* before = nullptr;  // what the product is added to: c itself, a bias, or nothing
  std::int64_t before_row = 0;
  float* c = nullptr;
  std::int64_t c_row = 0;
};

// c = before + the sum over p of a[p][row] b[p][column], in the order of p, of Rows x 8 or 16 elements. Unrolled: it makes
// no difference alone, and 12 % where another thread shares the core.
template <bool kAdjacent, int kWidth, int... Row>
void multiply_whole(const Part& part, std::integer_sequence<int, Row...>) {
  constexpr int kLast = kWidth - 8;
  __m256 left[] = {((void)Row, _mm256_setzero_ps())...};
  __m256 right[] = {((void)Row, _mm256_setzero_ps())...};
  const std::int64_t k = part.k, a_row = kAdjacent ? 1 : part.a_row,
                     a_step = kAdjacent ? part.a_step : 1, b_step = part.b_step;
  const float *a = part.a, *b = part.b;
  float* const c = part.c;
  const std::int64_t c_row = part.c_row;
  (_mm_prefetch(c + Row * c_row, _MM_HINT_T0), ...);
#pragma GCC unroll 4
  for (std::int64_t p = 0; p < k; ++p, a += a_step, b += b_step) {
    const __m256 b0 = _mm256_loadu_ps(b), b1 = _mm256_loadu_ps(b + kLast);
    const auto factor = [&](int row) { return _mm256_broadcast_ss(a + row * a_row); };
    ((left[Row] = _mm256_fmadd_ps(factor(Row), b0, left[Row]),
      right[Row] = kLast > 0 ? _mm256_fmadd_ps(factor(Row), b1, right[Row]) : right[Row]),
     ...);
  }
  if (part.before != nullptr) {
    const auto before = [&](int row, int at) {
      return _mm256_loadu_ps(part.before + row * part.before_row + at);
    };
    ((left[Row] = _mm256_add_ps(before(Row, 0), left[Row])), ...);
    if constexpr (kLast > 0) ((right[Row] = _mm256_add_ps(before(Row, kLast), right[Row])), ...);
  }
  (_mm256_storeu_ps(c + Row * c_row, left[Row]), ...);
  if constexpr (kLast > 0) (_mm256_storeu_ps(c + Row * c_row + kLast, right[Row]), ...);
}

// The first `columns` of a part.
template <bool kAdjacent, int kCount>
void multiply_part(const Part& part, std::int64_t columns) {
  constexpr std::make_integer_sequence<int, kCount> kEach;
  if (columns == kColumns) return multiply_whole<kAdjacent, kColumns>(part, kEach);
  std::array<float, static_cast<std::size_t>(kCount * kColumns)> all = {};
  Part whole = part;
  whole.c = all.data();
  whole.c_row = kColumns;
  if (part.before != nullptr) {
    for (int row = 0; row < kCount; ++row)
      std::copy_n(part.before + row * part.before_row, columns, all.data() + row * kColumns);
    whole.before = all.data();
    whole.before_row = kColumns;
  }
  columns <= 8 ? multiply_whole<kAdjacent, 8>(whole, kEach)
               : multiply_whole<kAdjacent, kColumns>(whole, kEach);
  for (int row = 0; row < kCount; ++row)
    std::copy_n(all.data() + row * kColumns, columns, part.c + row * part.c_row);
}

template <bool kAdjacent, int... Row>
constexpr std::array<void (*)(const Part&, std::int64_t), kRows> parts_of(
    std::integer_sequence<int, Row...>) {
  return {multiply_part<kAdjacent, Row + 1>...};
}
// By number of rows, from 1 on.
template <bool kAdjacent>
constexpr auto kParts = parts_of<kAdjacent>(std::make_integer_sequence<int, kRows>());

// Fetches a panel to the second cache, a piece at each call, before it is packed.
template <class T>
class Prefetch {
 public:
  // The columns from `from` on, k x kColumns, in `pieces` pieces.
  Prefetch(const T* from, const ConstMatrix& b, std::int64_t k, std::int64_t pieces)
      : from_(from), row_(b.row_stride), column_(b.column_stride) {
    lines_ = column_ == 1 ? k : kColumns * (k / kLine);
    piece_ = (lines_ + pieces - 1) / pieces;
  }
  void operator()() {
    for (const std::int64_t end = std::min(lines_, next_ + piece_); next_ < end; ++next_) {
      const std::int64_t at = column_ == 1
                                  ? next_ * row_
                                  : next_ % kColumns * column_ + next_ / kColumns * kLine * row_;
      _mm_prefetch(from_ + at, _MM_HINT_T1);
    }
  }

 private:
  static constexpr std::int64_t kLine = 64 / sizeof(T);
  const T* from_;
  std::int64_t row_, column_, lines_, piece_, next_ = 0;
};

// One product of a tile, in panels of a and b. An operand whose elements are used a few times is read where it is.
template <class T>
void multiply(const TileProduct& t, const T* a, const T* b, float* c, Workspace scratch) {
  constexpr bool kReads = std::is_same_v<T, float>;
  const bool reads_a = kReads && t.n <= (t.a.column_stride == 1 ? 8 : 2) * kColumns;
  const bool reads_b = kReads && t.b.column_stride == 1 && t.m <= 2 * kRows;
  const bool adjacent = !reads_a || t.a.row_stride == 1;
  const auto& parts = adjacent ? kParts<true> : kParts<false>;
  const std::int64_t depth = MatmulKernel::panel_depth(t.k), pieces = (t.m + kRows - 1) / kRows;
  auto* const b_panel = static_cast<float*>(scratch.data);
  float* const a_panels = b_panel + kColumns * depth;
  for (std::int64_t p = 0; p < t.k; p += depth) {
    const std::int64_t k = std::min(depth, t.k - p);
    const T* const a_from = a + p * t.a.column_stride;
    if (!reads_a) pack_rows(a_from, t.a, t.m, k, depth, a_panels);
    Part part = {.k = k, .a = a_panels, .c_row = t.c.row_stride};
    if constexpr (kReads) {
      if (reads_a)
        part = {.k = k,
                .a = a_from,
                .a_row = t.a.row_stride,
                .a_step = t.a.column_stride,
                .c_row = t.c.row_stride};
    }
    const std::int64_t a_next = reads_a ? kRows * t.a.row_stride : kRows * depth;
    for (std::int64_t column = 0; column < t.n; column += kColumns) {
      const std::int64_t columns = std::min(kColumns, t.n - column);
      const T* const b_from = b + p * t.b.row_stride + column * t.b.column_stride;
      part.b = b_panel;
      part.b_step = kColumns;
      if (!reads_b || columns < kColumns) {
        pack(b_from, t.b.column_stride, t.b.row_stride, columns, columns, k, kColumns, b_panel);
      } else if constexpr (kReads) {
        part.b = b_from;
        part.b_step = t.b.row_stride;
      }
      const bool another = !reads_b && column + 2 * kColumns <= t.n;
      Prefetch<T> prefetch(b_from + kColumns * t.b.column_stride, t.b, another ? k : 0, pieces);
      Part here = part;
      here.c = c + column;
      const bool adds = p > 0 || t.beta != 0;
      if (!adds && t.bias != nullptr) here.before = static_cast<const float*>(t.bias) + column;
      here.before_row = adds ? t.c.row_stride : 0;
      for (std::int64_t row = 0; row < t.m; row += kRows) {
        prefetch();
        if (adds) here.before = here.c;
        parts[static_cast<std::size_t>(std::min(kRows, t.m - row) - 1)](here, columns);
        here.a += a_next;
        here.c += kRows * t.c.row_stride;
      }
    }
  }
}

}  // namespace

void multiply_floats(const TileProduct& t, Workspace scratch) {
  const auto run = [&]<class T>() {
    for (std::int64_t i = 0; i < t.count; ++i)
      multiply(t, static_cast<const T*>(t.a.data) + i * t.m * t.k,
               static_cast<const T*>(t.b.data) + i * t.k * t.n,
               static_cast<float*>(t.c.data) + i * t.m * t.n, scratch);
  };
  if (t.a.dtype == DType::kF32) return run.template operator()<float>();
  if (t.a.dtype == DType::kBF16) return run.template operator()<BFloat16>();
  run.template operator()<Float16>();
}

}  // namespace tessera::cpu
