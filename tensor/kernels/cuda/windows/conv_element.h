#pragma once

/// One element of a convolution or of its derivatives, as the sum of the elements that it gathers.
/// Also compiled for the CPU, for tests.

#include <cstdint>

#include "tessera/tensor/kernels/conv.h"
#include "tessera/tensor/kernels/cuda/elementwise/elements.h"
#include "tessera/tensor/kernels/math/scalar_math.h"

namespace tessera::cuda {

/// ConvAxis in the form that kernels need.
struct ConvAxisView {
  std::int64_t in = 1, out = 1, kernel = 1, stride = 1, padding = 0, dilation = 1;
};

/// [images, channels, h, w] of any strides.
struct ImageView {
  const void* data = nullptr;
  DType dtype = DType::kF32;
  std::int64_t image = 0, channel = 0, row = 0, column = 0;  ///< strides
};

inline ConvAxisView axis_view(const ConvAxis& a) {
  return {a.in, a.out, a.kernel, a.stride, a.padding, a.dilation};
}
template <class AnyView>
ImageView image_view(const AnyView& x) {
  return {x.data, x.dtype, x.strides[0], x.strides[1], x.strides[2], x.strides[3]};
}

/// The parameters of a launch. x, y and the weight are the operands or their gradients; the weight
/// is [out channels, in channels of a group, h taps, w taps], contiguous.
struct ConvWork {
  std::int64_t images = 0, groups = 1, in_channels = 0, out_channels = 0;  ///< of one group
  ConvAxisView h, w;
  ImageView x, y;
  const void* weight = nullptr;
  const void* bias = nullptr;
  DType dtype = DType::kF32;  ///< of weight and bias

  TESSERA_HD std::int64_t taps() const { return h.kernel * w.kernel; }
};

/// A position in [images, channels, h, w], from the row-major index.
struct ImagePlace {
  std::int64_t image, channel, row, column;
};
TESSERA_HD ImagePlace image_place(std::int64_t i, std::int64_t channels, std::int64_t rows,
                                  std::int64_t columns) {
  ImagePlace place;
  place.column = i % columns;
  i /= columns;
  place.row = i % rows;
  i /= rows;
  place.channel = i % channels;
  place.image = i / channels;
  return place;
}

template <class C>
TESSERA_HD C image_element(const ImageView& x, const ImagePlace& at) {
  return load_element<C>(
      x.data, x.dtype,
      at.image * x.image + at.channel * x.channel + at.row * x.row + at.column * x.column);
}

/// Output `i` of a convolution.
template <class C>
TESSERA_HD C conv_output(const ConvWork& work, std::int64_t i) {
  const ImagePlace to = image_place(i, work.groups * work.out_channels, work.h.out, work.w.out);
  const std::int64_t group = to.channel / work.out_channels;
  C sum = work.bias == nullptr ? C{0} : load_element<C>(work.bias, work.dtype, to.channel);
  std::int64_t tap = to.channel * work.in_channels * work.taps();
  for (std::int64_t c = 0; c < work.in_channels; ++c) {
    for (std::int64_t r = 0; r < work.h.kernel; ++r) {
      const std::int64_t row = to.row * work.h.stride - work.h.padding + r * work.h.dilation;
      for (std::int64_t s = 0; s < work.w.kernel; ++s, ++tap) {
        const std::int64_t column =
            to.column * work.w.stride - work.w.padding + s * work.w.dilation;
        if (row < 0 || row >= work.h.in || column < 0 || column >= work.w.in) continue;
        const C x = image_element<C>(work.x, {to.image, group * work.in_channels + c, row, column});
        sum = scalar::fma(x, load_element<C>(work.weight, work.dtype, tap), sum);
      }
    }
  }
  return sum;
}

/// The output index that reads input `at` with tap `tap`; -1 if there is none.
TESSERA_HD std::int64_t conv_output_index(const ConvAxisView& axis, std::int64_t at,
                                          std::int64_t tap) {
  const std::int64_t steps = at + axis.padding - tap * axis.dilation;
  if (steps < 0 || steps % axis.stride != 0) return -1;
  const std::int64_t out = steps / axis.stride;
  return out < axis.out ? out : -1;
}

/// The gradient of input `i`.
template <class C>
TESSERA_HD C conv_input_gradient(const ConvWork& work, std::int64_t i) {
  const ImagePlace to = image_place(i, work.groups * work.in_channels, work.h.in, work.w.in);
  const std::int64_t group = to.channel / work.in_channels, c = to.channel % work.in_channels;
  C sum{0};
  for (std::int64_t k = 0; k < work.out_channels; ++k) {
    const std::int64_t channel = group * work.out_channels + k;
    for (std::int64_t r = 0; r < work.h.kernel; ++r) {
      const std::int64_t row = conv_output_index(work.h, to.row, r);
      if (row < 0) continue;
      for (std::int64_t s = 0; s < work.w.kernel; ++s) {
        const std::int64_t column = conv_output_index(work.w, to.column, s);
        if (column < 0) continue;
        const std::int64_t tap =
            ((channel * work.in_channels + c) * work.h.kernel + r) * work.w.kernel + s;
        const C dy = image_element<C>(work.y, {to.image, channel, row, column});
        sum = scalar::fma(dy, load_element<C>(work.weight, work.dtype, tap), sum);
      }
    }
  }
  return sum;
}

/// The contribution of output position `p` (of all images) to the gradient of weight element `i`.
template <class C>
TESSERA_HD C conv_weight_term(const ConvWork& work, std::int64_t i, std::int64_t p, C sum) {
  const std::int64_t s = i % work.w.kernel, r = i / work.w.kernel % work.h.kernel,
                     c = i / work.taps() % work.in_channels,
                     channel = i / work.taps() / work.in_channels;
  const ImagePlace at = image_place(p, 1, work.h.out, work.w.out);
  const std::int64_t row = at.row * work.h.stride - work.h.padding + r * work.h.dilation,
                     column = at.column * work.w.stride - work.w.padding + s * work.w.dilation;
  if (row < 0 || row >= work.h.in || column < 0 || column >= work.w.in) return sum;
  const C dy = image_element<C>(work.y, {at.image, channel, at.row, at.column});
  const std::int64_t group = channel / work.out_channels;
  return scalar::fma(
      dy, image_element<C>(work.x, {at.image, group * work.in_channels + c, row, column}), sum);
}

}  // namespace tessera::cuda
