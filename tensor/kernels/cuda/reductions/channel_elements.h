#pragma once

/// Elements of channels for the .cu files of channel_norm.h: of one floating dtype, contiguous
/// [samples, channels, spatial], in packs if rows are aligned.

#include <type_traits>

#include "tessera/tensor/kernels/channel_norm.h"
#include "tessera/tensor/kernels/cuda/elementwise/elements.h"
#include "tessera/tensor/kernels/cuda/elementwise/thread_place.h"
#include "tessera/tensor/kernels/math/convert_element.h"
#include "tessera/tensor/kernels/types.h"

namespace tessera::cuda {

/// The compute type of T.
template <class T>
using ChannelComputed = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// K elements that are loaded at once.
template <class T, int K>
struct alignas(K * sizeof(T)) ChannelPack {
  T values[K];
};

/// body.template operator()<T, K>() with the element type, and K > 1 if rows of `row_length`
/// elements of all `views` can be read in packs of 16 bytes.
template <class Body, class... Views>
void with_channel_elements(DType dtype, std::int64_t row_length, const Body& body,
                           const Views&... views) {
  const auto pack = static_cast<std::int64_t>(16 / dtype_size(dtype));
  const bool packs = row_length % pack == 0 && (is_pack_aligned(views.data) && ...);
  with_type(dtype, [&]<class T>() {
    if constexpr (is_floating(dtype_of<T>)) {
      if constexpr (!std::is_same_v<T, double>) {  // f64 is rare: no separate kernels
        if (packs) return body.template operator()<T, 16 / static_cast<int>(sizeof(T))>();
      }
      body.template operator()<T, 1>();
    }
  });
}

}  // namespace tessera::cuda
