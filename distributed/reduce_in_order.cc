#include "tessera/distributed/reduce_in_order.h"

#include <algorithm>
#include <array>

namespace tessera::distributed {
namespace {

// Elements summed at a time: stays in the nearest cache, and makes aliasing of `out` harmless.
constexpr std::int64_t kBlock = 1024;

template <class T>
void accumulate(ReduceOp op, T* total, const T* from, std::int64_t count) {
  switch (op) {
    case ReduceOp::kSum:
      for (std::int64_t i = 0; i < count; ++i) total[i] += from[i];
      return;
    case ReduceOp::kMax:
      for (std::int64_t i = 0; i < count; ++i) {
        const bool take = from[i] > total[i] || from[i] != from[i];
        total[i] = take ? from[i] : total[i];
      }
      return;
  }
}

template <class T>
void reduce(ReduceOp op, std::span<const void* const> sources, T* out, std::int64_t count) {
  std::array<T, kBlock> total;
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    const std::int64_t length = std::min(kBlock, count - begin);
    std::copy_n(static_cast<const T*>(sources[0]) + begin, length, total.data());
    for (const void* source : sources.subspan(1))
      accumulate(op, total.data(), static_cast<const T*>(source) + begin, length);
    std::copy_n(total.data(), length, out + begin);
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
    case DType::kU8:
      break;
  }
  throw_unsupported_dtype(dtype, "reduce_in_order");
}

}  // namespace tessera::distributed
