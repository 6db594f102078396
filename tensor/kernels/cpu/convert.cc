#include "tessera/tensor/kernels/cpu/convert.h"

#include <cstring>

#ifdef __F16C__
#include <immintrin.h>

#include "tessera/tensor/kernels/cpu/load8.h"
#endif

#include "tessera/tensor/kernels/math/convert_element.h"
#include "tessera/tensor/kernels/types.h"

namespace tessera::cpu {
namespace {

template <class To, class From>
void convert_run(const From* from, std::int64_t from_stride, To* to, std::int64_t to_stride,
                 std::int64_t n) {
  if (from_stride == 1 && to_stride == 1) {
    for (std::int64_t i = 0; i < n; ++i) to[i] = convert_element<To>(from[i]);
  } else if (from_stride == 0 && to_stride == 1) {
    const To value = convert_element<To>(*from);
    for (std::int64_t i = 0; i < n; ++i) to[i] = value;
  } else {
    for (std::int64_t i = 0; i < n; ++i)
      to[i * to_stride] = convert_element<To>(from[i * from_stride]);
  }
}

#ifdef __F16C__
// F16C by hand: the compiler does not generate these instructions from the portable conversion,
// which has the same results.
void convert_run(const Float16* from, std::int64_t from_stride, float* to, std::int64_t,
                 std::int64_t n) {
  std::int64_t i = 0;
  if (from_stride == 1) {
    for (; i + 8 <= n; i += 8) _mm256_storeu_ps(to + i, load8(from + i));
  }
  for (; i < n; ++i) to[i] = static_cast<float>(from[i * from_stride]);
}

void convert_run(const float* from, std::int64_t, Float16* to, std::int64_t to_stride,
                 std::int64_t n) {
  std::int64_t i = 0;
  if (to_stride == 1) {
    for (; i + 8 <= n; i += 8) {
      const __m128i half = _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT);
      std::memcpy(to + i, &half, sizeof(half));
    }
  }
  for (; i < n; ++i) to[i * to_stride] = static_cast<Float16>(from[i]);
}
#endif

}  // namespace

template <class C>
void load_run(DType dtype, const void* from, std::int64_t stride, std::int64_t n, C* out) {
  with_type(dtype, [&]<class T>() { convert_run(static_cast<const T*>(from), stride, out, 1, n); });
}

template <class C>
void store_run(DType dtype, void* to, std::int64_t stride, std::int64_t n, const C* values) {
  with_type(dtype, [&]<class T>() { convert_run(values, 1, static_cast<T*>(to), stride, n); });
}

template void load_run(DType, const void*, std::int64_t, std::int64_t, float*);
template void load_run(DType, const void*, std::int64_t, std::int64_t, double*);
template void load_run(DType, const void*, std::int64_t, std::int64_t, std::int64_t*);
template void store_run(DType, void*, std::int64_t, std::int64_t, const float*);
template void store_run(DType, void*, std::int64_t, std::int64_t, const double*);
template void store_run(DType, void*, std::int64_t, std::int64_t, const std::int64_t*);

}  // namespace tessera::cpu
