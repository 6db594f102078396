#pragma once

/// Work on rows: rows of any dtype and layout as plain arrays, their distribution over threads, and
/// steps over one row that several kernels share.

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "tessera/tensor/kernels/cpu/convert.h"
#include "tessera/tensor/kernels/cpu/lanes.h"
#include "tessera/tensor/kernels/cpu/traversal.h"
#include "tessera/tensor/kernels/math/scalar_math.h"
#include "tessera/tensor/kernels/plans/row_scratch.h"
#include "tessera/tensor/kernels/types.h"
#include "tessera/tensor/kernels/view.h"

namespace tessera::cpu {

/// The offsets at which rows along the last dim begin, in row-major order of the other dims.
class RowOffsets {
 public:
  RowOffsets(const Shape& shape, const Shape& strides) {
    for (int d = 0; d + 1 < shape.ndim(); ++d) {
      if (shape[d] == 1) continue;
      const bool merges = count_ > 0 && strides_[count_ - 1] == shape[d] * strides[d];
      if (!merges) extents_[count_++] = 1;
      extents_[count_ - 1] *= shape[d];
      strides_[count_ - 1] = strides[d];
    }
  }
  /// The number of rows, from a multiple of it, that begin next to each other in memory; 1 if none
  /// do.
  std::int64_t beside() const {
    return count_ > 0 && strides_[count_ - 1] == 1 ? extents_[count_ - 1] : 1;
  }
  std::int64_t operator()(std::int64_t row) const {
    std::int64_t offset = 0;
    for (std::size_t d = count_; d-- > 1;) {
      offset += row % extents_[d] * strides_[d];
      row /= extents_[d];
    }
    return offset + row * strides_[0];
  }

 private:
  std::array<std::int64_t, kMaxDims> extents_{};
  std::array<std::int64_t, kMaxDims> strides_{};
  std::size_t count_ = 0;
};

inline std::int64_t last_or_one(const Shape& s) { return s.ndim() == 0 ? 1 : s.back(); }

/// What elements that are stored as T are computed with.
template <class T>
using ComputeType = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// True if the elements of a row follow each other in memory.
template <class AnyView>
bool has_plain_rows(const AnyView& view) {
  return last_or_one(view.shape) <= 1 || view.strides.back() == 1;
}

/// Calls `body.template operator()<T>()` with the type T of RowInput and RowOutput for floating rows of `dtype`, all of
/// them plain or not. Plain rows of bf16 are used where they are: loops convert each element as they read and write
/// it, which costs less than a pass of its own. Other rows that are not of a compute type are converted as a whole.
template <class Body>
void with_row_type(DType dtype, bool plain, const Body& body) {
  if (dtype == DType::kBF16 && plain) return body.template operator()<BFloat16>();
  with_floating_type(dtype, body);
}

/// Input rows, for T of with_row_type().
template <class T>
class RowInput {
 public:
  explicit RowInput(const ConstView& view)
      : data_(view.data),
        dtype_(view.dtype),
        in_place_(has_plain_rows(view) && view.dtype == dtype_of<T>),
        length_(last_or_one(view.shape)),
        stride_(last_or_one(view.strides)),
        offsets_(view.shape, view.strides) {}

  /// The elements of a row: in place, or converted into `buffer`.
  const T* read(std::int64_t row, T* buffer) const {
    const void* from = advance(data_, dtype_, offsets_(row));
    if (in_place_) return static_cast<const T*>(from);
    load(from, stride_, length_, buffer);
    return buffer;
  }
  std::int64_t beside() const { return offsets_.beside(); }
  /// Reads `count` rows that begin next to each other, element by element: row w goes to buffer + w
  /// * pitch.
  void read_tile(std::int64_t row, std::int64_t count, T* buffer, std::int64_t pitch) const {
    const void* from = advance(data_, dtype_, offsets_(row));
    T line[kRowTile];
    for (std::int64_t i = 0; i < length_; ++i) {
      load(advance(from, dtype_, i * stride_), 1, count, line);
      for (std::int64_t w = 0; w < count; ++w) buffer[w * pitch + i] = line[w];
    }
  }

 private:
  void load(const void* from, std::int64_t stride, std::int64_t n, T* to) const {
    if constexpr (std::is_same_v<T, ComputeType<T>>) {
      load_run(dtype_, from, stride, n, to);
    } else {
      for (std::int64_t i = 0; i < n; ++i) to[i] = static_cast<const T*>(from)[i * stride];
    }
  }

  const void* data_;
  DType dtype_;
  bool in_place_;
  std::int64_t length_, stride_;
  RowOffsets offsets_;
};

/// Output rows.
template <class T>
class RowOutput {
 public:
  explicit RowOutput(const View& view)
      : data_(view.data),
        dtype_(view.dtype),
        in_place_(has_plain_rows(view) && view.dtype == dtype_of<T>),
        length_(last_or_one(view.shape)),
        stride_(last_or_one(view.strides)),
        offsets_(view.shape, view.strides) {}

  /// Where to write the elements of a row before commit().
  T* place(std::int64_t row, T* buffer) const {
    return in_place_ ? static_cast<T*>(advance(data_, dtype_, offsets_(row))) : buffer;
  }
  void commit(std::int64_t row, const T* values) const {
    if (in_place_) return;
    store(advance(data_, dtype_, offsets_(row)), stride_, length_, values);
  }
  std::int64_t beside() const { return offsets_.beside(); }
  void commit_tile(std::int64_t row, std::int64_t count, const T* buffer,
                   std::int64_t pitch) const {
    void* to = advance(data_, dtype_, offsets_(row));
    T line[kRowTile];
    for (std::int64_t i = 0; i < length_; ++i) {
      for (std::int64_t w = 0; w < count; ++w) line[w] = buffer[w * pitch + i];
      store(advance(to, dtype_, i * stride_), 1, count, line);
    }
  }

 private:
  void store(void* to, std::int64_t stride, std::int64_t n, const T* values) const {
    if constexpr (std::is_same_v<T, ComputeType<T>>) {
      store_run(dtype_, to, stride, n, values);
    } else {
      for (std::int64_t i = 0; i < n; ++i) static_cast<T*>(to)[i * stride] = values[i];
    }
  }

  void* data_;
  DType dtype_;
  bool in_place_;
  std::int64_t length_, stride_;
  RowOffsets offsets_;
};

/// body(row, buffer) for rows of `length` elements, distributed over threads. Each thread has a
/// buffer of `bytes` from the workspace of row_scratch(rows, length, bytes); without a workspace
/// the buffer is null.
template <class C, class Body>
void parallel_buffered_rows(std::int64_t rows, std::int64_t length, Workspace scratch,
                            std::size_t bytes, const Body& body) {
  if (scratch.bytes == 0) {
    return parallel_rows(rows, length,
                         [&](std::int64_t row) { body(row, static_cast<C*>(nullptr)); });
  }
  const std::size_t share = row_scratch_share(bytes);
  const auto threads = static_cast<int>(std::max<std::size_t>(1, scratch.bytes / share));
  const std::int64_t turn = rows_per_turn(length);
  parallel_for((rows + turn - 1) / turn, threads, [&](std::int64_t piece, int thread) {
    char* mine = static_cast<char*>(scratch.data) + share * static_cast<std::size_t>(thread);
    for (std::int64_t row = piece * turn; row < std::min(rows, (piece + 1) * turn); ++row)
      body(row, reinterpret_cast<C*>(mine));
  });
}

/// The `index`-th row of `length` in a buffer that may be null.
template <class C>
C* buffer_row(C* buffer, int index, std::int64_t length) {
  return buffer == nullptr ? nullptr : buffer + index * length;
}

/// The largest element; -inf for none. NaN is ignored here: the exponentials restore it.
template <class T>
ComputeType<T> row_max(const T* x, std::int64_t n) {
  using C = ComputeType<T>;
  return lane_fold<C>(
      n, -std::numeric_limits<C>::infinity(), [=](std::int64_t i) { return static_cast<C>(x[i]); },
      [](C most, C value) { return value > most ? value : most; });
}

/// The sum of term(0) ... term(n - 1): blocks in C, added in f64, as in ReduceKernel.
template <class C, class Term>
double row_sum(std::int64_t n, const Term& term) {
  double total = 0;
  for (std::int64_t begin = 0; begin < n; begin += ReduceKernel::kBlock) {
    total += lane_sum<C>(std::min(ReduceKernel::kBlock, n - begin),
                         [&](std::int64_t i) { return term(begin + i); });
  }
  return total;
}

/// Two of them in one pass; terms(i) is an array of two.
template <class C, class Terms>
std::array<double, 2> row_sums(std::int64_t n, const Terms& terms) {
  std::array<double, 2> totals{};
  for (std::int64_t begin = 0; begin < n; begin += ReduceKernel::kBlock) {
    const auto block = lane_sums<C>(std::min(ReduceKernel::kBlock, n - begin),
                                    [&](std::int64_t i) { return terms(begin + i); });
    totals[0] += block[0];
    totals[1] += block[1];
  }
  return totals;
}

}  // namespace tessera::cpu
