#pragma once

/// Elements of any dtype, from and to the type they are computed in. All threads of a launch take
/// the same branches.

#include <cstdint>

#include "tessera/tensor/kernels/convert_element.h"
#include "tessera/tensor/kernels/types.h"

namespace tessera::cuda {

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

}  // namespace tessera::cuda
