// Element by element, as on the CPU: the same bits, except for the table, which uses pow, cos and
// sin in f64 of the GPU's maths library.

#include "tessera/tensor/kernels/rotary.h"

#include <cmath>
#include <cstdint>

#include "tessera/tensor/kernels/cuda/elementwise/thread_place.h"
#include "tessera/tensor/kernels/cuda/reductions/rows.h"
#include "tessera/tensor/kernels/math/scalar_math.h"

namespace tessera {
namespace {

using cuda::ComputeOf;
using cuda::Pack;

template <class C>
__global__ void rotary_table_kernel(C* cos, C* sin, std::int64_t n, std::int64_t pairs, double base,
                                    std::int64_t offset) {
  cuda::share(cuda::thread_index(), cuda::thread_count(), n, [&](std::int64_t i) {
    const std::int64_t row = i / pairs, pair = i - row * pairs;
    const double turn = -static_cast<double>(pair) / static_cast<double>(pairs);
    // In f64: the f32 error of the angle of a late position would be far too large.
    const double angle = static_cast<double>(offset + row) * ::pow(base, turn);
    cos[i] = static_cast<C>(::cos(angle));
    sin[i] = static_cast<C>(::sin(angle));
  });
}

struct RotaryWork {
  cuda::RowOperand x;
  cuda::RowOperand y;
  const void* cos = nullptr;
  const void* sin = nullptr;
  std::int64_t cos_stride = 0;
  std::int64_t sin_stride = 0;
  std::int64_t features = 0;
  std::int64_t pairs = 0;
  std::int64_t heads = 1;
  std::int64_t positions = 1;
  std::int64_t items = 0;  // of all rows: pairs or packs of pairs, then the elements that are
                           // copied
  std::int64_t per_row = 1;
  bool interleaved = false;
  bool inverse = false;
};

// Item `item` of a row, for one thread.
template <class C>
struct RotaryPlace {
  std::int64_t row, item;
  const C* cos;
  const C* sin;

  __device__ RotaryPlace(const RotaryWork& work, std::int64_t i) {
    row = i / work.per_row;
    item = i - row * work.per_row;
    const std::int64_t position = row / work.heads % work.positions;
    cos = static_cast<const C*>(work.cos) + position * work.cos_stride;
    sin = static_cast<const C*>(work.sin) + position * work.sin_stride;
  }
};

template <class C>
__device__ void turn(C& a, C& b, C cos, C sin, bool inverse) {
  const C s = sin * (inverse ? C(-1) : C(1)), first = a;
  a = scalar::fma(-b, s, scalar::mul(first, cos));
  b = scalar::fma(first, s, scalar::mul(b, cos));
}

// Any strides: one pair, or one copied element, at a time.
template <class T>
__global__ void rotary_any_kernel(const __grid_constant__ RotaryWork work) {
  using C = ComputeOf<T>;
  cuda::share(cuda::thread_index(), cuda::thread_count(), work.items, [&](std::int64_t i) {
    const RotaryPlace<C> place(work, i);
    const T* x = static_cast<const T*>(work.x.data) + cuda::row_offset(work.x.walk, place.row);
    T* y = static_cast<T*>(work.y.data) + cuda::row_offset(work.y.walk, place.row);
    if (place.item >= work.pairs) {
      const std::int64_t feature = work.pairs + place.item;
      y[feature * work.y.step] = x[feature * work.x.step];
      return;
    }
    const std::int64_t first = work.interleaved ? 2 * place.item : place.item;
    const std::int64_t second = work.interleaved ? first + 1 : work.pairs + first;
    C a = convert_element<C>(x[first * work.x.step]),
      b = convert_element<C>(x[second * work.x.step]);
    turn(a, b, place.cos[place.item], place.sin[place.item], work.inverse);
    y[first * work.y.step] = convert_element<T>(a);
    y[second * work.y.step] = convert_element<T>(b);
  });
}

// Aligned rows in which each pack consists of pairs only, or has none: two packs of x at a time,
// from both halves or adjacent. Features that are not rotated are copied in packs.
template <class T>
__global__ void __launch_bounds__(cuda::kThreads)
    rotary_packed_kernel(const __grid_constant__ RotaryWork work) {
  using C = ComputeOf<T>;
  constexpr int kCount = Pack<T>::kCount, kPack = Pack<C>::kCount;
  const std::int64_t turned = work.pairs / kCount;  // items that are two packs
  cuda::share(cuda::thread_index(), cuda::thread_count(), work.items, [&](std::int64_t i) {
    const RotaryPlace<C> place(work, i);
    const T* x = static_cast<const T*>(work.x.data) + cuda::row_offset(work.x.walk, place.row);
    T* y = static_cast<T*>(work.y.data) + cuda::row_offset(work.y.walk, place.row);
    if (place.item >= turned) {
      const std::int64_t pack = turned + place.item;
      return cuda::store_pack(y, pack, cuda::load_pack(x, pack));
    }
    const std::int64_t first = work.interleaved ? 2 * place.item : place.item;
    const std::int64_t second = work.interleaved ? first + 1 : turned + place.item;
    Pack<T> packs[2] = {cuda::load_pack(x, first), cuda::load_pack(x, second)};
    C cos[kCount], sin[kCount];
#pragma unroll
    for (int p = 0; p < kCount / kPack; ++p) {
      const Pack<C> c = cuda::load_pack(place.cos, place.item * (kCount / kPack) + p),
                    s = cuda::load_pack(place.sin, place.item * (kCount / kPack) + p);
#pragma unroll
      for (int j = 0; j < kPack; ++j) {
        cos[p * kPack + j] = c.values[j];
        sin[p * kPack + j] = s.values[j];
      }
    }
    const auto turn_pair = [&](T& a, T& b, int j) {
      C one = convert_element<C>(a), other = convert_element<C>(b);
      turn(one, other, cos[j], sin[j], work.inverse);
      a = convert_element<T>(one);
      b = convert_element<T>(other);
    };
    if (work.interleaved) {
#pragma unroll
      for (int j = 0; j < kCount; ++j) {
        Pack<T>& pack = packs[2 * j / kCount];
        turn_pair(pack.values[2 * j % kCount], pack.values[2 * j % kCount + 1], j);
      }
    } else {
#pragma unroll
      for (int j = 0; j < kCount; ++j) turn_pair(packs[0].values[j], packs[1].values[j], j);
    }
    cuda::store_pack(y, first, packs[0]);
    cuda::store_pack(y, second, packs[1]);
  });
}

bool takes_packs(const RotaryWork& work, int pack, int table_pack) {
  return work.x.packed && work.y.packed && work.pairs % pack == 0 && work.features % pack == 0 &&
         cuda::is_pack_aligned(work.cos) && cuda::is_pack_aligned(work.sin) &&
         work.cos_stride % table_pack == 0 && work.sin_stride % table_pack == 0;
}

}  // namespace

void RotaryTableKernel::cuda(CudaStream stream, const Args& a, Workspace) {
  const std::int64_t n = a.cos.numel();
  if (n == 0) return;
  with_floating_type(a.cos.dtype, [&]<class C>() {
    cuda::start(kName, rotary_table_kernel<C>, cuda::grid_for(n), stream, a.cos.as<C>(),
                a.sin.as<C>(), n, a.cos.shape[1], a.base, a.offset);
  });
}

void RotaryKernel::cuda(CudaStream stream, const Args& a, Workspace) {
  if (a.x.numel() == 0) return;
  RotaryWork work;
  work.x = cuda::row_operand(a.x);
  work.y = cuda::row_operand(a.y);
  work.cos = a.cos.data;
  work.sin = a.sin.data;
  work.cos_stride = a.cos.strides[0];
  work.sin_stride = a.sin.strides[0];
  work.features = a.x.shape.back();
  work.pairs = a.cos.shape[1];
  work.heads = a.x.shape[a.x.shape.ndim() - 2];
  work.positions = a.cos.shape[0];
  work.interleaved = a.interleaved;
  work.inverse = a.inverse;
  const std::int64_t rows = a.x.numel() / work.features;
  cuda::with_row_type(a.x.dtype, [&]<class T>() {
    constexpr int kCount = Pack<T>::kCount;
    const bool packed = takes_packs(work, kCount, Pack<ComputeOf<T>>::kCount);
    work.per_row = (work.features - work.pairs) / (packed ? kCount : 1);
    work.items = rows * work.per_row;
    cuda::start(kName, packed ? rotary_packed_kernel<T> : rotary_any_kernel<T>,
                cuda::grid_for(work.items), stream, work);
  });
}

}  // namespace tessera
