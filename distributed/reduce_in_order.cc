#include "tessera/distributed/reduce_in_order.h"

#include <algorithm>
#include <array>
#include <type_traits>

namespace tessera::distributed {
namespace {

// Elements summed at a time: stays in the nearest cache, and makes aliasing of `out` harmless.
constexpr std::int64_t kBlock = 1024;

template <class Total, class T>
void accumulate(ReduceOp op, Total* total, const T* from, std::int64_t count) {
  switch (op) {
    case ReduceOp::kSum:
      for (std::int64_t i = 0; i < count; ++i) total[i] += from[i];
      return;
    case ReduceOp::kMax:
      for (std::int64_t i = 0; i < count; ++i) {
        const Total value = from[i];
        const bool take = value > total[i] || value != value;
        total[i] = take ? value : total[i];
      }
      return;
  }
}

// 16-bit numbers are added in f32 and rounded once.
template <class T>
using Sum = std::conditional_t<std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>, float, T>;

template <class T>
void reduce(ReduceOp op, std::span<const void* const> sources, T* out, std::int64_t count) {
  std::array<Sum<T>, kBlock> total;
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    const std::int64_t length = std::min(kBlock, count - begin);
    std::copy_n(static_cast<const T*>(sources[0]) + begin, length, total.data());
    for (const void* source : sources.subspan(1))
      accumulate(op, total.data(), static_cast<const T*>(source) + begin, length);
    for (std::int64_t i = 0; i < length; ++i) out[begin + i] = static_cast<T>(total[i]);
  }
}

}  // namespace

void reduce_in_order(DType dtype, ReduceOp op, std::span<const void* const> sources, void* out,
                     std::int64_t count) {
  switch (dtype) {
    case DType::kF32:
      return reduce(op, sources, static_cast<float*>(out), count);
    case DType::kF64:
      return reduce(op, sources, static_cast<double*>(out), count);
    case DType::kI64:
      return reduce(op, sources, static_cast<std::int64_t*>(out), count);
    case DType::kI32:
      return reduce(op, sources, static_cast<std::int32_t*>(out), count);
    case DType::kBF16:
      return reduce(op, sources, static_cast<BFloat16*>(out), count);
    case DType::kF16:
      return reduce(op, sources, static_cast<Float16*>(out), count);
    case DType::kU8:
    case DType::kBool:
      break;
  }
  throw_unsupported_dtype(dtype, "reduce_in_order");
}

}  // namespace tessera::distributed
