#pragma once

/// A pack: 16 bytes of adjacent elements, which a thread reads or writes in one access.

#include <cstdint>

#include "tessera/tensor/host_device.h"

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

}  // namespace tessera::cuda
