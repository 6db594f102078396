#include "tessera/distributed/reduce_in_order.h"

#include <algorithm>
#include <array>
#include <type_traits>

#include "tessera/tensor/check.h"

namespace tessera::distributed {
namespace {

using Kind = ReduceOp::Kind;

// Elements combined at a time: stays in the nearest cache, and makes aliasing of `out` harmless.
constexpr std::int64_t kBlock = 1024;

// total = total op from, for one block. Comparisons let a NaN win.
template <Kind kind, class Total, class T>
void combine(Total* total, const T* from, std::int64_t count, [[maybe_unused]] Total factor) {
  for (std::int64_t i = 0; i < count; ++i) {
    const Total value = static_cast<Total>(from[i]);
    if constexpr (kind == Kind::kSum) {
      total[i] = static_cast<Total>(total[i] + value);
    } else if constexpr (kind == Kind::kPremulSum) {
      total[i] += factor * value;
    } else if constexpr (kind == Kind::kProduct) {
      total[i] = static_cast<Total>(total[i] * value);
    } else {
      const bool better = kind == Kind::kMax ? value > total[i] : value < total[i];
      total[i] = better || value != value ? value : total[i];
    }
  }
}

// What is added up in: 16-bit floats in f32, small integers in one that holds many of them.
template <class T>
using Total = std::conditional_t<
    std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>, float,
    std::conditional_t<std::is_same_v<T, std::uint8_t> || std::is_same_v<T, bool>, std::uint32_t,
                       T>>;

template <class T>
T stored(Total<T> value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value != 0;
  } else {
    return static_cast<T>(value);
  }
}

template <Kind kind, class T>
void reduce(double given_factor, std::span<const void* const> sources, T* out, std::int64_t count) {
  std::array<Total<T>, kBlock> total;
  const auto factor = static_cast<Total<T>>(given_factor);
  const auto ranks = static_cast<Total<T>>(sources.size());
  constexpr Kind step = kind == Kind::kAverage ? Kind::kSum : kind;
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    const std::int64_t length = std::min(kBlock, count - begin);
    const T* first = static_cast<const T*>(sources[0]) + begin;
    for (std::int64_t i = 0; i < length; ++i) {
      total[i] = static_cast<Total<T>>(first[i]);
      if constexpr (kind == Kind::kPremulSum) total[i] *= factor;
    }
    for (const void* source : sources.subspan(1))
      combine<step>(total.data(), static_cast<const T*>(source) + begin, length, factor);
    for (std::int64_t i = 0; i < length; ++i) {
      if constexpr (kind == Kind::kAverage) total[i] /= ranks;
      out[begin + i] = stored<T>(total[i]);
    }
  }
}

template <class T>
void reduce_by(const ReduceOp& op, std::span<const void* const> sources, void* to,
               std::int64_t count) {
  T* out = static_cast<T*>(to);
  switch (op.kind) {
    case Kind::kSum:
      return reduce<Kind::kSum>(1, sources, out, count);
    case Kind::kMin:
      return reduce<Kind::kMin>(1, sources, out, count);
    case Kind::kMax:
      return reduce<Kind::kMax>(1, sources, out, count);
    case Kind::kProduct:
      return reduce<Kind::kProduct>(1, sources, out, count);
    case Kind::kAverage:
    case Kind::kPremulSum:
      break;
  }
  if constexpr (std::is_floating_point_v<Total<T>>) {
    if (op.kind == Kind::kAverage) return reduce<Kind::kAverage>(1, sources, out, count);
    return reduce<Kind::kPremulSum>(op.factor, sources, out, count);
  } else {
    throw_error<InvalidArgument>("reduce_in_order", "{} makes fractions, which {} does not hold",
                                 op.name(), dtype_name(dtype_of<T>));
  }
}

}  // namespace

void reduce_in_order(DType dtype, ReduceOp op, std::span<const void* const> sources, void* out,
                     std::int64_t count) {
  switch (dtype) {
    case DType::kF32:
      return reduce_by<float>(op, sources, out, count);
    case DType::kF64:
      return reduce_by<double>(op, sources, out, count);
    case DType::kI64:
      return reduce_by<std::int64_t>(op, sources, out, count);
    case DType::kI32:
      return reduce_by<std::int32_t>(op, sources, out, count);
    case DType::kU8:
      return reduce_by<std::uint8_t>(op, sources, out, count);
    case DType::kBool:
      return reduce_by<bool>(op, sources, out, count);
    case DType::kBF16:
      return reduce_by<BFloat16>(op, sources, out, count);
    case DType::kF16:
      return reduce_by<Float16>(op, sources, out, count);
  }
}

}  // namespace tessera::distributed
