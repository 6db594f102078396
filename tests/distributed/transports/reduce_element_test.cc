// The arithmetic of one element, as a GPU's thread runs it, against reduce_in_order: the same bits.
#include "tessera/distributed/transports/reduce_element.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <limits>
#include <vector>

#include "tessera/distributed/transports/reduce_in_order.h"

namespace tessera::distributed {
namespace {

template <class T>
std::vector<T> values(int rank, std::int64_t count) {
  std::vector<T> out;
  for (std::int64_t i = 0; i < count; ++i) {
    const double x =
        static_cast<double>((i * 31 + rank * 17) % 199) * 0.37 - (rank % 2 == 0 ? 20 : 0);
    out.push_back(
        static_cast<T>(std::is_unsigned_v<T> ? static_cast<double>((i * 31 + rank) % 250) : x));
  }
  if constexpr (std::numeric_limits<T>::has_quiet_NaN) {
    if (rank == 1) out[5] = std::numeric_limits<T>::quiet_NaN();
    if (rank == 2) out[6] = std::numeric_limits<T>::infinity();
  }
  return out;
}

template <class T>
void compare(const ReduceOp& op, int ranks) {
  constexpr std::int64_t kCount = 2500;  // several blocks of the CPU's
  std::vector<std::vector<T>> inputs;
  std::vector<const void*> sources;
  for (int rank = 0; rank < ranks; ++rank) inputs.push_back(values<T>(rank, kCount));
  for (const std::vector<T>& input : inputs) sources.push_back(input.data());
  std::vector<T> expected(kCount), actual(kCount);
  reduce_in_order(dtype_of<T>, op, sources, expected.data(), kCount);
  const auto factor = static_cast<ReduceTotal<T>>(op.factor);
  with_reduce_kind<T>(op.kind, [&]<ReduceOp::Kind kind>() {
    for (std::int64_t i = 0; i < kCount; ++i)
      actual[static_cast<std::size_t>(i)] =
          reduce_element<kind, T>(sources.data(), ranks, factor, i);
  });
  INFO(op.name() << " of " << dtype_name(dtype_of<T>) << " over " << ranks << " ranks");
  CHECK(std::memcmp(expected.data(), actual.data(), kCount * sizeof(T)) == 0);
}

}  // namespace

TEMPLATE_TEST_CASE("one element is reduced as whole arrays are", "[reduce]", float, double,
                   BFloat16, Float16, std::int64_t, std::int32_t, std::uint8_t) {
  const ReduceOp ops[] = {ReduceOp::kSum,     ReduceOp::kMin,     ReduceOp::kMax,
                          ReduceOp::kProduct, ReduceOp::kAverage, ReduceOp::premul_sum(0.3)};
  for (const ReduceOp& op : ops) {
    if (op.needs_floating() && !is_floating(dtype_of<TestType>)) continue;
    for (int ranks : {1, 2, 3, 5}) compare<TestType>(op, ranks);
  }
}

TEST_CASE("16-bit floats are added in f32 and rounded once", "[reduce]") {
  // 256 + 1 + 1: in bf16 each 1 would be lost.
  const std::vector<BFloat16> a = {BFloat16(256.0f)}, b = {BFloat16(1.0f)};
  const void* sources[] = {a.data(), b.data(), b.data()};
  CHECK(float(reduce_element<ReduceOp::Kind::kSum, BFloat16>(sources, 3, 1, 0)) == 258.0f);
}

}  // namespace tessera::distributed
