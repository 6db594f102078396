#pragma once

/// Applies the functors of functors*.h to a thread's elements. A run-time branch, the same for all
/// threads of a launch, selects the functor. For .cu files.

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include "tessera/tensor/kernels/cuda/elementwise/map.h"
#include "tessera/tensor/kernels/math/functors.h"
#include "tessera/tensor/kernels/math/functors_binary.h"

namespace tessera::cuda {

namespace detail {

template <class F, class... Listed>
inline constexpr bool kIsOneOf = (std::is_same_v<F, Listed> || ...);

/// Long functors, which are compiled once for a group of elements, not once for each element of it.
template <class F>
inline constexpr bool kIsLong =
    kIsOneOf<F, functors::Log2, functors::Log10, functors::Exp2, functors::Sin, functors::Cos,
             functors::Tan, functors::Asin, functors::Acos, functors::Atan, functors::Sinh,
             functors::Cosh, functors::Asinh, functors::Acosh, functors::Atanh, functors::Sinc,
             functors::Erf, functors::Erfc, functors::Erfinv, functors::Lgamma, functors::Digamma,
             functors::Softplus, functors::Log1p, functors::Expm1, functors::FloorDivide,
             functors::Remainder, functors::Fmod, functors::Pow, functors::Atan2,
             functors::LogAddExp, functors::LogAddExp2, functors::Polygamma>;

template <class C, int N, int G, class F, std::size_t... I, class... More>
__device__ __forceinline__ void apply_each(C (&in)[N][G], F f, std::index_sequence<I...>,
                                           More... more) {
  if constexpr (sizeof(C) <= 4 && !kIsLong<F>) {
#pragma unroll
    for (int k = 0; k < G; ++k) in[0][k] = f(in[I][k]..., more...);
  } else {
#pragma unroll 1
    for (int k = 0; k < G; ++k) {
      const C result = f(in[I][0]..., more...);
      (rotate(in[I], I == 0 ? result : in[I][0]), ...);
    }
  }
}

}  // namespace detail

namespace detail {

/// body.template operator()<F>() with the element F of the tuple at index `op`, which lies in
/// [kFirst, kFirst + kCount). By halves: a test for each element would be up to fifty branches for
/// a thread's few elements, spread over all of the kernel's code.
template <class Functors, std::size_t kFirst, std::size_t kCount, class Body>
__device__ __forceinline__ void choose(unsigned op, const Body& body) {
  if constexpr (kCount == 1) {
    body.template operator()<std::tuple_element_t<kFirst, Functors>>();
  } else if (op < kFirst + kCount / 2) {
    choose<Functors, kFirst, kCount / 2>(op, body);
  } else {
    choose<Functors, kFirst + kCount / 2, kCount - kCount / 2>(op, body);
  }
}

}  // namespace detail

/// in[0][k] = f(in[0][k], ..., in[N-1][k], more...), where f is the functor at index `op` of the
/// tuple type Functors.
template <class Functors, class Op, class C, int N, int G, class... More>
__device__ __forceinline__ void apply_op(Op op, C (&in)[N][G], More... more) {
  constexpr std::size_t kCount = std::tuple_size_v<Functors>;
  detail::choose<Functors, 0, kCount>(static_cast<unsigned>(op), [&]<class F>() {
    // The operation chose a compute type that the functor accepts.
    if constexpr (kTakes<F, C, N + static_cast<int>(sizeof...(More))>)
      detail::apply_each(in, F{}, std::make_index_sequence<N>(), more...);
  });
}

}  // namespace tessera::cuda
