#pragma once

/// Elements that are moved but not computed with: only their width matters.

#include <cstddef>
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

/// Asks the CPU to fetch `bytes` bytes, which begin `offset` bytes after `from`, before they are needed. They need not exist.
inline void prefetch(const void* from, std::int64_t offset, std::int64_t bytes) {
  constexpr std::int64_t kLine = 64;
  const auto first = reinterpret_cast<std::intptr_t>(from) + offset;
  for (std::int64_t at = 0; at < bytes; at += kLine)
    __builtin_prefetch(reinterpret_cast<const void*>(first + at));
}

/// As std::memcpy. The library's function copies runs of some kilobytes with `rep movsb`, which takes
/// five times as long where the two addresses are a few bytes apart modulo 4,096, as in rolled rows.
inline void copy_bytes(const void* from, void* to, std::size_t n) {
  using Vector [[gnu::vector_size(32), gnu::aligned(1), gnu::may_alias]] = std::int64_t;
  constexpr std::size_t kBytes = sizeof(Vector), kStep = 4 * kBytes, kLeast = 512;
  if (n < kLeast) {
    std::memcpy(to, from, n);
    return;
  }
  const char* x = static_cast<const char*>(from);
  char* y = static_cast<char*>(to);
  const auto load = [x](std::size_t at) { return *reinterpret_cast<const Vector*>(x + at); };
  const auto store = [y](std::size_t at, const Vector& value) {
    *reinterpret_cast<Vector*>(y + at) = value;
  };
  store(0, load(0));
  // Stores in the loop are aligned.
  std::size_t at = kBytes - reinterpret_cast<std::uintptr_t>(to) % kBytes;
  for (; at + kStep <= n; at += kStep) {
    const Vector a = load(at), b = load(at + kBytes), c = load(at + 2 * kBytes),
                 d = load(at + 3 * kBytes);
    store(at, a);
    store(at + kBytes, b);
    store(at + 2 * kBytes, c);
    store(at + 3 * kBytes, d);
  }
  for (; at + kBytes <= n; at += kBytes) store(at, load(at));
  store(n - kBytes, load(n - kBytes));
}

/// to[i] = from[-i], i < n.
template <class U>
void copy_reversed(const Bits<U>* from, Bits<U>* to, std::int64_t n) {
  using Vector [[gnu::vector_size(32), gnu::aligned(1), gnu::may_alias]] = U;
  using Order [[gnu::vector_size(32)]] = U;
  constexpr std::int64_t kLanes = 32 / sizeof(U);
  Order backwards;
  for (std::int64_t i = 0; i < kLanes; ++i) backwards[i] = static_cast<U>(kLanes - 1 - i);
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Order values = *reinterpret_cast<const Vector*>(from - i - (kLanes - 1));
    *reinterpret_cast<Vector*>(to + i) = __builtin_shuffle(values, backwards);
  }
  for (; i < n; ++i) to[i] = from[-i];
}

/// to[i * to_step] = from[i * from_step], i < n; the two do not overlap.
template <class B>
void copy_run(const B* from, std::int64_t from_step, B* to, std::int64_t to_step, std::int64_t n) {
  if (to_step == 1 && from_step == 1)
    return copy_bytes(from, to, static_cast<std::size_t>(n) * sizeof(B));
  if (to_step == 1 && from_step == -1) return copy_reversed(from, to, n);
  if (to_step == 1 && from_step == 0) {
    const B value = *from;
    for (std::int64_t i = 0; i < n; ++i) to[i] = value;
    return;
  }
  for (std::int64_t i = 0; i < n; ++i) to[i * to_step] = from[i * from_step];
}

}  // namespace tessera::cpu
