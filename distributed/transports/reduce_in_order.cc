#include "tessera/distributed/transports/reduce_in_order.h"

#include <algorithm>
#include <array>

#include "tessera/distributed/transports/reduce_element.h"
#include "tessera/tensor/check.h"

namespace tessera::distributed {
namespace {

using Kind = ReduceOp::Kind;

void check_fractions(DType dtype, const ReduceOp& op) {
  TESSERA_CHECK(!op.needs_floating() || is_floating(dtype), "reduce_in_order",
                "{} makes fractions, which {} does not hold", op.name(), dtype_name(dtype));
}

// Elements combined at a time: stays in the nearest cache, and makes aliasing of `out` harmless.
constexpr std::int64_t kBlock = 1024;

// Rank by rank over a block, so that each loop is vector code.
template <Kind kind, class T>
void reduce(double given_factor, std::span<const void* const> sources, T* out, std::int64_t count) {
  using Total = ReduceTotal<T>;
  std::array<Total, kBlock> total;
  const auto factor = static_cast<Total>(given_factor);
  const auto ranks = static_cast<Total>(sources.size());
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    const std::int64_t length = std::min(kBlock, count - begin);
    const T* first = static_cast<const T*>(sources[0]) + begin;
    for (std::int64_t i = 0; i < length; ++i) total[i] = reduce_first<kind>(first[i], factor);
    for (const void* source : sources.subspan(1)) {
      const T* from = static_cast<const T*>(source) + begin;
      for (std::int64_t i = 0; i < length; ++i)
        total[i] = reduce_next<kind>(total[i], from[i], factor);
    }
    for (std::int64_t i = 0; i < length; ++i)
      out[begin + i] = reduce_last<kind, T>(total[i], ranks);
  }
}

template <class T>
void reduce_by(const ReduceOp& op, std::span<const void* const> sources, void* to,
               std::int64_t count) {
  with_reduce_kind<T>(
      op.kind, [&]<Kind kind>() { reduce<kind>(op.factor, sources, static_cast<T*>(to), count); });
}

}  // namespace

void reduce_in_order(DType dtype, ReduceOp op, std::span<const void* const> sources, void* out,
                     std::int64_t count) {
  check_fractions(dtype, op);
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
