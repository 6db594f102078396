#pragma once

/// How one element of several ranks becomes one, written once for CPU and GPU: the arithmetic of
/// reduce_in_order. Private to this folder.

#include <cstdint>
#include <type_traits>

#include "tessera/distributed/reduce_op.h"
#include "tessera/tensor/half.h"
#include "tessera/tensor/host_device.h"

namespace tessera::distributed {

/// What is added up in: 16-bit floats in f32, small integers in one that holds many of them.
template <class T>
using ReduceTotal = std::conditional_t<
    std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>, float,
    std::conditional_t<std::is_same_v<T, std::uint8_t> || std::is_same_v<T, bool>, std::uint32_t,
                       T>>;

/// a + b and a * b; integers wrap around where they overflow, on every transport alike.
template <class T>
TESSERA_HD T wrapping_add(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using Bits = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<Bits>(a) + static_cast<Bits>(b));
  } else {
    return a + b;
  }
}
template <class T>
TESSERA_HD T wrapping_multiply(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using Bits = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<Bits>(a) * static_cast<Bits>(b));
  } else {
    return a * b;
  }
}

/// The first rank's part.
template <ReduceOp::Kind kind, class T>
TESSERA_HD ReduceTotal<T> reduce_first(T value, [[maybe_unused]] ReduceTotal<T> factor) {
  auto total = static_cast<ReduceTotal<T>>(value);
  if constexpr (kind == ReduceOp::Kind::kPremulSum) total *= factor;
  return total;
}

/// total op value. Comparisons let a NaN win.
template <ReduceOp::Kind kind, class T>
TESSERA_HD ReduceTotal<T> reduce_next(ReduceTotal<T> total, T given,
                                      [[maybe_unused]] ReduceTotal<T> factor) {
  using Kind = ReduceOp::Kind;
  using Total = ReduceTotal<T>;
  const auto value = static_cast<Total>(given);
  if constexpr (kind == Kind::kSum || kind == Kind::kAverage) {
    return wrapping_add(total, value);
  } else if constexpr (kind == Kind::kPremulSum) {
    const Total product = factor * value;
    return total + product;
  } else if constexpr (kind == Kind::kProduct) {
    return wrapping_multiply(total, value);
  } else {
    const bool better = kind == Kind::kMax ? value > total : value < total;
    return better || value != value ? value : total;
  }
}

/// What is stored once all ranks' parts are in.
template <ReduceOp::Kind kind, class T>
TESSERA_HD T reduce_last(ReduceTotal<T> total, [[maybe_unused]] ReduceTotal<T> ranks) {
  if constexpr (kind == ReduceOp::Kind::kAverage) total /= ranks;
  if constexpr (std::is_same_v<T, bool>) {
    return total != 0;
  } else {
    return static_cast<T>(total);
  }
}

/// All of it for element i of `ranks` arrays, in rank order.
template <ReduceOp::Kind kind, class T>
TESSERA_HD T reduce_element(const void* const* sources, int ranks, ReduceTotal<T> factor,
                            std::int64_t i) {
  ReduceTotal<T> total = reduce_first<kind>(static_cast<const T*>(sources[0])[i], factor);
  for (int rank = 1; rank < ranks; ++rank)
    total = reduce_next<kind>(total, static_cast<const T*>(sources[rank])[i], factor);
  return reduce_last<kind, T>(total, static_cast<ReduceTotal<T>>(ranks));
}

/// Calls `body.template operator()<kind>()`. kAverage and kPremulSum only where T has fractions:
/// the caller has refused them elsewhere.
template <class T, class Body>
void with_reduce_kind(ReduceOp::Kind kind, Body&& body) {
  using Kind = ReduceOp::Kind;
  switch (kind) {
    case Kind::kSum:
      return body.template operator()<Kind::kSum>();
    case Kind::kMin:
      return body.template operator()<Kind::kMin>();
    case Kind::kMax:
      return body.template operator()<Kind::kMax>();
    case Kind::kProduct:
      return body.template operator()<Kind::kProduct>();
    case Kind::kAverage:
      if constexpr (std::is_floating_point_v<ReduceTotal<T>>)
        body.template operator()<Kind::kAverage>();
      return;
    case Kind::kPremulSum:
      if constexpr (std::is_floating_point_v<ReduceTotal<T>>)
        body.template operator()<Kind::kPremulSum>();
      return;
  }
}

}  // namespace tessera::distributed
