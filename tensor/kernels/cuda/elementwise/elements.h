#pragma once

/// A pack: 16 bytes of adjacent elements, which a thread reads or writes in one access.

#include <bit>
#include <cstdint>

#include "tessera/tensor/host_device.h"
#include "tessera/tensor/kernels/math/convert_element.h"
#include "tessera/tensor/kernels/types.h"

namespace tessera::cuda {

template <class T>
struct alignas(16) Pack {
  static constexpr int kCount = 16 / static_cast<int>(sizeof(T));
  T values[kCount];
};

/// Whether packs can be read or written at this address.
inline bool is_pack_aligned(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address) % 16 == 0;
}

template <class T>
TESSERA_HD Pack<T> load_pack(const T* data, std::int64_t pack) {
  return reinterpret_cast<const Pack<T>*>(data)[pack];
}
template <class T>
TESSERA_HD void store_pack(T* data, std::int64_t pack, const Pack<T>& values) {
  reinterpret_cast<Pack<T>*>(data)[pack] = values;
}

/// Elements of any dtype, converted from and to their compute type. All threads of a launch take
/// the same branches.
template <class C>
TESSERA_HD C load_element(const void* data, DType dtype, std::int64_t at) {
  C value{};
  with_type(dtype, [&]<class T>() { value = convert_element<C>(static_cast<const T*>(data)[at]); });
  return value;
}

template <class C>
TESSERA_HD void store_element(void* data, DType dtype, std::int64_t at, C value) {
  with_type(dtype, [&]<class T>() { static_cast<T*>(data)[at] = convert_element<T>(value); });
}

/// Calls `body.template operator()<U>()` with an unsigned integer as wide as `dtype`: for elements
/// that are moved but not computed with.
template <class Body>
void with_width(DType dtype, Body&& body) {
  switch (dtype_size(dtype)) {
    case 1:
      return body.template operator()<std::uint8_t>();
    case 2:
      return body.template operator()<std::uint16_t>();
    case 4:
      return body.template operator()<std::uint32_t>();
    default:
      return body.template operator()<std::uint64_t>();
  }
}

/// The bits of a number as an element of `dtype`.
template <class U>
U element_bits(DType dtype, double number) {
  U bits{};
  with_type(dtype, [&]<class T>() {
    if constexpr (sizeof(T) == sizeof(U)) bits = std::bit_cast<U>(convert_element<T>(number));
  });
  return bits;
}

}  // namespace tessera::cuda
