// Convolution on a GPU against the CPU's kernel, which is the specification.

#include <catch2/catch.hpp>
#include <cstdint>
#include <string>

#include "tessera/tensor/kernels/conv.h"
#include "tessera/tests/gpu/comparison.h"

namespace tessera {
namespace {

using testing::compare_devices;
using testing::HostTensor;
using testing::Tolerance;

struct Case {
  std::string what;
  DType dtype = DType::kF32;
  std::int64_t images = 1, groups = 1, in_channels = 1, out_channels = 1;
  std::int64_t height = 1, width = 1, kernel_h = 1, kernel_w = 1;
  std::int64_t stride = 1, padding = 0, dilation = 1;
  bool bias = false;
  double beta = 0;
  bool channels_last = false;
  std::int64_t first = 0;  // offset of the input, in elements

  ConvGeometry geometry() const {
    const auto axis = [this](std::int64_t in, std::int64_t kernel) {
      return ConvAxis{.in = in,
                      .out = (in + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1,
                      .kernel = kernel,
                      .stride = stride,
                      .padding = padding,
                      .dilation = dilation};
    };
    ConvGeometry g;
    g.images = images;
    g.groups = groups;
    g.in_channels = in_channels;
    g.out_channels = out_channels;
    g.h = axis(height, kernel_h);
    g.w = axis(width, kernel_w);
    g.compute = compute_dtype(dtype);
    return g;
  }
  HostTensor image(std::int64_t channels, std::int64_t h, std::int64_t w) const {
    const Shape shape{images, channels, h, w};
    const Shape strides = channels_last ? Shape{channels * h * w, 1, w * channels, channels}
                                        : contiguous_strides(shape);
    return HostTensor(dtype, shape, strides, first);
  }
  HostTensor input() const { return image(groups * in_channels, height, width); }
  HostTensor output() const {
    const ConvGeometry g = geometry();
    return image(groups * out_channels, g.h.out, g.w.out);
  }
  HostTensor weight() const {
    return HostTensor(dtype, {groups * out_channels, in_channels, kernel_h * kernel_w});
  }
};

Tolerance tolerance_of(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return {.rtol = 1e-11, .atol = 1e-11};
    case DType::kBF16:
      return {.rtol = 2e-2, .atol = 5e-2};
    case DType::kF16:
      return {.rtol = 3e-3, .atol = 1e-2};
    default:
      return {.rtol = 2e-5, .atol = 1e-4};
  }
}

void compare(const Case& c) {
  INFO(dtype_name(c.dtype));
  const Tolerance tolerance = tolerance_of(c.dtype);
  const ConvGeometry g = c.geometry();
  const HostTensor x = c.input().random(-1, 1, 1), w = c.weight().random(-1, 1, 2),
                   dy = c.output().random(-1, 1, 3),
                   bias = HostTensor(c.dtype, {c.groups * c.out_channels}).random(-1, 1, 4);
  const HostTensor y(c.dtype, dy.const_view().shape), dx(c.dtype, x.const_view().shape);
  ConvKernel::Args forward{.x = x, .weight = w, .bias = {}, .y = y, .g = g};
  if (c.bias) forward.bias = bias;
  compare_devices<ConvKernel>(c.what, forward, tolerance);
  compare_devices<ConvBackwardInputKernel>(c.what, {.dy = dy, .weight = w, .dx = dx, .g = g},
                                           tolerance);
  const HostTensor dweight = c.weight().random(-1, 1, 5);
  Tolerance weight_tolerance = tolerance;
  weight_tolerance.atol *= 4;
  compare_devices<ConvBackwardWeightKernel>(
      c.what, {.dy = dy, .x = x, .dweight = dweight, .beta = c.beta, .g = g}, weight_tolerance);
}

constexpr DType kDTypes[] = {DType::kF32, DType::kF64, DType::kBF16, DType::kF16};

}  // namespace

TEST_CASE("convolution on the GPU equals the CPU's in every dtype") {
  for (const DType dtype : kDTypes) {
    compare({.what = "one of everything", .dtype = dtype});
    compare({.what = "3 x 3",
             .dtype = dtype,
             .images = 2,
             .in_channels = 3,
             .out_channels = 5,
             .height = 9,
             .width = 7,
             .kernel_h = 3,
             .kernel_w = 3,
             .padding = 1,
             .bias = true});
    compare({.what = "added to the gradient before",
             .dtype = dtype,
             .images = 2,
             .in_channels = 2,
             .out_channels = 4,
             .height = 5,
             .width = 6,
             .kernel_h = 2,
             .kernel_w = 3,
             .beta = 1});
  }
}

TEST_CASE("strides, dilation and groups of convolution on the GPU") {
  compare({.what = "stride 2",
           .images = 3,
           .in_channels = 2,
           .out_channels = 3,
           .height = 11,
           .width = 8,
           .kernel_h = 3,
           .kernel_w = 2,
           .stride = 2,
           .padding = 1,
           .bias = true});
  compare({.what = "dilation 2, stride 3",
           .in_channels = 2,
           .out_channels = 3,
           .height = 12,
           .width = 13,
           .kernel_h = 3,
           .kernel_w = 3,
           .stride = 3,
           .padding = 2,
           .dilation = 2});
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    compare({.what = "groups",
             .dtype = dtype,
             .images = 2,
             .groups = 3,
             .in_channels = 2,
             .out_channels = 2,
             .height = 6,
             .width = 6,
             .kernel_h = 3,
             .kernel_w = 3,
             .padding = 1,
             .bias = true,
             .beta = 0.5});
  }
  compare({.what = "one channel a group",
           .groups = 5,
           .height = 6,
           .width = 4,
           .kernel_h = 3,
           .kernel_w = 1,
           .padding = 1});
  compare({.what = "sequences",
           .images = 2,
           .in_channels = 4,
           .out_channels = 6,
           .width = 33,
           .kernel_w = 5,
           .stride = 2});
}

TEST_CASE("convolution of any layout on the GPU") {
  for (const DType dtype : kDTypes) {
    const Case c{.what = "channels last",
                 .dtype = dtype,
                 .images = 2,
                 .in_channels = 4,
                 .out_channels = 8,
                 .height = 6,
                 .width = 5,
                 .kernel_h = 3,
                 .kernel_w = 3,
                 .padding = 1,
                 .bias = true,
                 .channels_last = true};
    compare(c);
    Case moved = c;
    moved.what = "misaligned";
    moved.channels_last = false;
    moved.first = 1;
    compare(moved);
  }
}

TEST_CASE("convolution of one image that stands for several") {
  const ConvGeometry g = Case{.what = "",
                              .images = 3,
                              .in_channels = 4,
                              .out_channels = 2,
                              .height = 5,
                              .width = 5,
                              .kernel_h = 3,
                              .kernel_w = 3}
                             .geometry();
  const HostTensor x = HostTensor(DType::kF32, {3, 4, 5, 5}, {0, 25, 5, 1}).random(-1, 1, 1),
                   w = HostTensor(DType::kF32, {2, 4, 9}).random(-1, 1, 2),
                   dy = HostTensor(DType::kF32, {3, 2, 3, 3}, {0, 0, 0, 0}).random(-1, 1, 3);
  const HostTensor y(DType::kF32, {3, 2, 3, 3}), dx(DType::kF32, {3, 4, 5, 5}),
      dweight(DType::kF32, {2, 4, 9});
  const Tolerance tolerance = tolerance_of(DType::kF32);
  compare_devices<ConvKernel>("x", {.x = x, .weight = w, .bias = {}, .y = y, .g = g}, tolerance);
  compare_devices<ConvBackwardInputKernel>("dy", {.dy = dy, .weight = w, .dx = dx, .g = g},
                                           tolerance);
  compare_devices<ConvBackwardWeightKernel>("both", {.dy = dy, .x = x, .dweight = dweight, .g = g},
                                            tolerance);
}

TEST_CASE("convolution of no images on the GPU") {
  compare({.what = "no images",
           .images = 0,
           .in_channels = 2,
           .out_channels = 3,
           .height = 4,
           .width = 4,
           .kernel_h = 2,
           .kernel_w = 2,
           .beta = 1});
}

TEST_CASE("more positions than a block has threads") {
  compare({.what = "many positions",
           .images = 3,
           .in_channels = 1,
           .out_channels = 2,
           .height = 20,
           .width = 21,
           .kernel_h = 3,
           .kernel_w = 3});
}

}  // namespace tessera
