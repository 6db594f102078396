#pragma once

/// Rows in kernels: a row's threads, its elements 16 bytes at a time, and folds over it. For .cu
/// files; see row_plan.h.

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "tessera/tensor/cuda/block.h"
#include "tessera/tensor/cuda/start.h"
#include "tessera/tensor/kernels/cuda/reductions/row_plan.h"
#include "tessera/tensor/kernels/math/convert_element.h"
#include "tessera/tensor/kernels/types.h"

namespace tessera::cuda {

/// The compute type of T.
template <class T>
using ComputeOf = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// Packs of a row that a thread can keep, given the number of elements that a kernel keeps.
template <class T>
constexpr int held_packs(int elements) {
  return elements / Pack<T>::kCount;
}

template <class T>
RowPlan plan_rows_of(std::int64_t rows, std::int64_t length, int held_packs, int most_lanes) {
  return plan_rows(rows, length,
                   {.pack = Pack<T>::kCount,
                    .held_packs = held_packs,
                    .wanted_packs = held_packs > 1 ? held_packs / 2 : 1,
                    .most_lanes = most_lanes});
}

inline Grid row_grid(const RowPlan& plan) {
  return {.blocks = static_cast<unsigned>(plan.blocks()),
          .threads = static_cast<unsigned>(plan.threads())};
}

/// The running thread's row. Threads after the last row have an empty one, because folds need all
/// threads.
struct RowPlace {
  std::int64_t row;
  std::int64_t length;  ///< 0 after the last row
  int lane;
  bool exists;

  __device__ explicit RowPlace(const RowPlan& plan) {
    const unsigned thread = threadIdx.x, in_block = blockDim.x >> plan.lane_bits;
    row = std::int64_t{blockIdx.x} * in_block + (thread >> plan.lane_bits);
    lane = static_cast<int>(thread & static_cast<unsigned>(plan.lanes - 1));
    exists = row < plan.rows;
    length = exists ? plan.length : 0;
  }
  __device__ bool active() const { return length > 0; }
  __device__ bool leads() const { return lane == 0 && exists; }
};

/// fold(a, b) over the threads of each row; all of them get the result. All threads of the block
/// must call it.
template <class T, class Fold>
__device__ inline T row_fold(const RowPlan& plan, T value, T nothing, Fold fold) {
  if (plan.lanes > kWarpSize) return block_fold(value, nothing, fold);
  for (int distance = plan.lanes / 2; distance > 0; distance /= 2)
    value = fold(value, __shfl_xor_sync(kWholeWarp, value, distance));
  return value;
}

struct Add {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
/// The larger of two; ignores NaN.
struct Larger {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return b > a ? b : a;
  }
};

template <class T>
__device__ inline T row_sum(const RowPlan& plan, T value) {
  return row_fold(plan, value, T(0), Add());
}

/// A pack in registers: separate 16-bit elements would take a register each.
struct alignas(16) Words {
  std::uint32_t words[4];
};

/// A pack whose elements are all `value`.
template <class T>
__device__ inline Words words_of(T value) {
  Pack<T> pack;
#pragma unroll
  for (int j = 0; j < Pack<T>::kCount; ++j) pack.values[j] = value;
  return std::bit_cast<Words>(pack);
}

/// Element j of the pack, which is Words or another struct of `words`, in its compute type.
template <class T, class AnyWords>
__device__ inline ComputeOf<T> element(const AnyWords& pack, int j) {
  if constexpr (sizeof(T) == 2) {
    T value;
    value.bits = static_cast<std::uint16_t>(pack.words[j / 2] >> (j % 2 * 16));
    return static_cast<float>(value);
  } else if constexpr (sizeof(T) == 4) {
    return std::bit_cast<float>(pack.words[j]);
  } else {
    const std::uint64_t high = pack.words[2 * j + 1];
    return std::bit_cast<double>(high << 32 | pack.words[2 * j]);
  }
}

/// One row of T, a pack at a time.
template <class T>
class Row {
 public:
  static constexpr int kCount = Pack<T>::kCount;

  __device__ Row(const RowOperand& operand, const RowPlace& place)
      : data_(static_cast<T*>(operand.data) + row_offset(operand.walk, place.row)),
        step_(operand.step),
        length_(place.length),
        packed_(operand.packed) {}

  /// `nothing` is the value of elements after the row's end.
  __device__ Pack<T> load(std::int64_t pack, T nothing) const {
    const std::int64_t first = pack * kCount;
    if (packed_ && first + kCount <= length_) return load_pack(data_, pack);
    Pack<T> out;
#pragma unroll
    for (int j = 0; j < kCount; ++j)
      out.values[j] = first + j < length_ ? data_[(first + j) * step_] : nothing;
    return out;
  }
  /// How many packs can be read by words().
  __device__ std::int64_t full_packs() const { return packed_ ? length_ / kCount : 0; }
  __device__ Words words(std::int64_t pack) const {
    return reinterpret_cast<const Words*>(data_)[pack];
  }
  __device__ void store(std::int64_t pack, const Pack<T>& values) const {
    const std::int64_t first = pack * kCount;
    if (packed_ && first + kCount <= length_) return store_pack(data_, pack, values);
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      if (first + j < length_) data_[(first + j) * step_] = values.values[j];
    }
  }
  /// Number of elements of the pack that lie in the row.
  __device__ int valid(std::int64_t pack) const {
    const std::int64_t left = length_ - pack * kCount;
    return left >= kCount ? kCount : left > 0 ? static_cast<int>(left) : 0;
  }
  __device__ T at(std::int64_t i) const { return data_[i * step_]; }

 private:
  T* data_;
  std::int64_t step_, length_;
  bool packed_;
};

/// A row that begins at a multiple of 16 bytes and consists of full packs; needs fewer registers.
template <class T>
class PackedRow {
 public:
  __device__ PackedRow(const RowOperand& operand, const RowPlace& place, const RowPlan& plan)
      : data_(static_cast<T*>(operand.data) + row_offset(operand.walk, place.row)),
        packs_(place.active() ? static_cast<int>(plan.packs) : 0) {}

  __device__ bool has(int pack) const { return pack < packs_; }
  /// `nothing` is the value of elements after the row's end.
  __device__ Words load(int pack, T nothing) const {
    Words out = words_of(nothing);
    if (pack < packs_) out = reinterpret_cast<const Words*>(data_)[pack];
    return out;
  }
  __device__ void store(int pack, const Pack<T>& values) const {
    if (pack < packs_) store_pack(data_, pack, values);
  }

 private:
  T* data_;
  int packs_;
};

/// Whether PackedRow can be used for all operands of a plan that reads each element once.
template <class... Operands>
bool takes_packed_rows(const RowPlan& plan, int pack, const Operands&... operands) {
  return plan.held && plan.length % pack == 0 && (operands.packed && ...);
}

/// Calls body(packs, first) for the packs of one thread, kBatch of them loaded before any is used;
/// packs after the row's end are `nothing`. Pack k of a batch is pack first + k * lanes.
template <int kBatch, class T, class Body>
__device__ inline void for_batches(const RowPlan& plan, const RowPlace& place, const Row<T>& row,
                                   T nothing, Body body) {
  if (!place.active()) return;
  for (std::int64_t first = place.lane; first < plan.packs;
       first += std::int64_t{kBatch} * plan.lanes) {
    Pack<T> packs[kBatch];
#pragma unroll
    for (int k = 0; k < kBatch; ++k)
      packs[k] = row.load(first + std::int64_t{k} * plan.lanes, nothing);
    body(packs, first);
  }
}

/// As for_batches, but the packs are words, and all loads of a batch are in flight together if the
/// row consists of full, aligned packs. The elements of a thread, and their order, do not depend on
/// that.
template <int kBatch, class T, class Body>
__device__ inline void for_word_batches(const RowPlan& plan, const RowPlace& place,
                                        const Row<T>& row, T nothing, Body body) {
  if (!place.active()) return;
  const std::int64_t full = row.full_packs();
  for (std::int64_t first = place.lane; first < plan.packs;
       first += std::int64_t{kBatch} * plan.lanes) {
    Words packs[kBatch];
    if (first + std::int64_t{kBatch - 1} * plan.lanes < full) {
#pragma unroll
      for (int k = 0; k < kBatch; ++k) packs[k] = row.words(first + std::int64_t{k} * plan.lanes);
    } else if (full == plan.packs) {
#pragma unroll
      for (int k = 0; k < kBatch; ++k) {
        const std::int64_t pack = first + std::int64_t{k} * plan.lanes;
        packs[k] = words_of(nothing);
        if (pack < full) packs[k] = row.words(pack);
      }
    } else {
#pragma unroll
      for (int k = 0; k < kBatch; ++k)
        packs[k] = std::bit_cast<Words>(row.load(first + std::int64_t{k} * plan.lanes, nothing));
    }
    body(packs, first);
  }
}

/// Calls body.operator()<T>() for a dtype with compute type C: float, double or std::int64_t.
template <class C, class Body>
__device__ inline void with_stored_type(DType dtype, Body&& body) {
  with_type(dtype, [&]<class T>() {
    constexpr bool kFloating = is_floating(dtype_of<T>);
    using Computed = std::conditional_t<kFloating, ComputeOf<T>, std::int64_t>;
    if constexpr (std::is_same_v<Computed, C>) body.template operator()<T>();
  });
}

/// Calls body.operator()<T>() for a floating dtype.
template <class Body>
void with_row_type(DType dtype, Body&& body) {
  with_type(dtype, [&]<class T>() {
    if constexpr (is_floating(dtype_of<T>)) body.template operator()<T>();
  });
}

}  // namespace tessera::cuda
