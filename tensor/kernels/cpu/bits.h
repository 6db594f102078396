#pragma once

/// Elements that are moved but not computed with: only their width matters.

#include <cstdint>
#include <cstring>

#include "tessera/tensor/dtype.h"

namespace tessera::cpu {

/// An element of any dtype with the width of U. May alias any type, which a plain integer may not.
template <class U>
struct Bits {
  using Any [[gnu::may_alias]] = U;
  Any value;
};

/// Calls `body.template operator()<Bits<U>>()` for the width of `dtype`.
template <class Body>
void with_bits(DType dtype, Body&& body) {
  switch (dtype_size(dtype)) {
    case 1:
      return body.template operator()<Bits<std::uint8_t>>();
    case 2:
      return body.template operator()<Bits<std::uint16_t>>();
    case 4:
      return body.template operator()<Bits<std::uint32_t>>();
    default:
      return body.template operator()<Bits<std::uint64_t>>();
  }
}

/// to[i * to_step] = value, i < n. By value: a reference to an element that may alias any other
/// would be read again for each one.
template <class B>
void fill_run(B* to, std::int64_t to_step, std::int64_t n, B value) {
  const auto bits = value.value;
  if (to_step == 1) {
    for (std::int64_t i = 0; i < n; ++i) to[i].value = bits;
    return;
  }
  for (std::int64_t i = 0; i < n; ++i) to[i * to_step].value = bits;
}

/// to[i * to_step] = from[i * from_step], i < n; the two do not overlap.
template <class B>
void copy_run(const B* from, std::int64_t from_step, B* to, std::int64_t to_step, std::int64_t n) {
  if (from_step == 1 && to_step == 1) {
    std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(B));
    return;
  }
  for (std::int64_t i = 0; i < n; ++i) to[i * to_step] = from[i * from_step];
}

}  // namespace tessera::cpu
