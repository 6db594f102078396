#pragma once

/// Elements of any dtype as their compute type, in place where a loop can read them.

#include <cstdint>
#include <type_traits>

#include "tessera/tensor/half.h"
#include "tessera/tensor/kernels/cpu/bits.h"
#include "tessera/tensor/kernels/cpu/convert.h"
#include "tessera/tensor/kernels/types.h"
#include "tessera/tensor/kernels/view.h"

namespace tessera::cpu {

/// Elements of any dtype, as C.
template <class C>
class Elements {
 public:
  explicit Elements(const ConstView& x) : data_(x.data), dtype_(x.dtype) {}
  void load(std::int64_t offset, std::int64_t stride, std::int64_t n, C* out) const {
    load_run(dtype_, advance(data_, dtype_, offset), stride, n, out);
  }
  /// Asks the CPU to fetch `n` adjacent elements, which it may not foresee. They need not exist.
  void prefetch(std::int64_t offset, std::int64_t n) const {
    const auto size = static_cast<std::int64_t>(dtype_size(dtype_));
    cpu::prefetch(data_, offset * size, n * size);
  }
  /// body(elements), which begin at `offset`: in place if they are adjacent and of type C, or of
  /// bf16, which a loop converts as it reads; else in `buffer`.
  template <class Body>
  auto with_run(std::int64_t offset, std::int64_t stride, std::int64_t n, C* buffer,
                const Body& body) const {
    if (stride == 1 && dtype_ == dtype_of<C>) return body(static_cast<const C*>(data_) + offset);
    if constexpr (std::is_same_v<C, float>) {
      if (stride == 1 && dtype_ == DType::kBF16)
        return body(static_cast<const BFloat16*>(data_) + offset);
    }
    load(offset, stride, n, buffer);
    return body(static_cast<const C*>(buffer));
  }

 private:
  const void* data_;
  DType dtype_;
};

}  // namespace tessera::cpu
