// Values that depend on rank, member and index, and what collectives should make of them, by
// formula.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "tessera/distributed/process_group.h"
#include "tessera/tensor/tensor.h"

namespace tessera::testing {

// Uneven numbers, so that sums depend on their order.
template <class T>
T rank_value(int rank, std::size_t member, std::int64_t index) {
  const double x = std::sin(1.0 + rank * 1.7 + static_cast<double>(member) * 0.3 +
                            static_cast<double>(index) * 0.11);
  return static_cast<T>(x * 1000);
}

template <class T>
Tensor rank_tensor(int rank, std::size_t member, std::int64_t count) {
  std::vector<T> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(rank_value<T>(rank, member, i));
  return Tensor::from_vector<T>(values, {count});
}

// Integers wrap around.
template <class T>
T product_of(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
  } else {
    return static_cast<T>(a * b);
  }
}

// In rank order, each step in T.
template <class T>
T reduced_value(int size, const distributed::ReduceOp& op, std::size_t member, std::int64_t index) {
  using Kind = distributed::ReduceOp::Kind;
  T total = rank_value<T>(0, member, index);
  if (op.kind == Kind::kPremulSum) total = static_cast<T>(total * static_cast<T>(op.factor));
  for (int rank = 1; rank < size; ++rank) {
    const T next = rank_value<T>(rank, member, index);
    switch (op.kind) {
      case Kind::kSum:
      case Kind::kAverage:
        total = static_cast<T>(total + next);
        break;
      case Kind::kPremulSum:
        total = static_cast<T>(total + static_cast<T>(static_cast<T>(op.factor) * next));
        break;
      case Kind::kProduct:
        total = product_of(total, next);
        break;
      case Kind::kMin:
        total = next < total ? next : total;
        break;
      case Kind::kMax:
        total = next > total ? next : total;
        break;
    }
  }
  if (op.kind == Kind::kAverage) total = static_cast<T>(total / static_cast<T>(size));
  return total;
}

}  // namespace tessera::testing
