// The CUDA kernels of pooling against the CPU's.

#include "tessera/tensor/kernels/pool.h"
#include "tessera/tests/gpu/comparison.h"

namespace tessera {
namespace {

using testing::compare_devices;
using testing::HostTensor;
using testing::Tolerance;

constexpr DType kDtypes[] = {DType::kF32, DType::kBF16, DType::kF16, DType::kF64};

PoolAxis axis_of(PoolAxis axis) {
  if (!axis.adaptive)
    axis.out =
        (axis.in + 2 * axis.padding - (axis.kernel - 1) * axis.dilation - 1) / axis.stride + 1;
  return axis;
}

struct Named {
  const char* name;
  PoolAxis h, w;
};
const Named kWindows[] = {
    {"2x2", {.in = 6, .kernel = 2, .stride = 2}, {.in = 9, .kernel = 2, .stride = 2}},
    {"3x3 padded",
     {.in = 7, .kernel = 3, .stride = 2, .padding = 1},
     {.in = 5, .kernel = 3, .stride = 1, .padding = 1}},
    {"gaps", {.in = 9, .kernel = 1, .stride = 3}, {.in = 9, .kernel = 2, .stride = 4}},
    {"a line", {}, {.in = 33, .kernel = 4, .stride = 3, .padding = 2}},
    {"large", {.in = 12, .kernel = 9, .stride = 1}, {.in = 11, .kernel = 8, .stride = 3}},
    {"adaptive", {.in = 7, .out = 3, .adaptive = true}, {.in = 5, .out = 7, .adaptive = true}},
    {"whole", {.in = 13, .out = 1, .adaptive = true}, {.in = 11, .out = 1, .adaptive = true}},
};

PoolGeometry geometry_of(const Named& windows, DType dtype) {
  return {.planes = 6,
          .h = axis_of(windows.h),
          .w = axis_of(windows.w),
          .compute = compute_dtype(dtype)};
}

// [2, 3, h, w]; `layout` 0: contiguous, 1: channels last, 2: from an odd element of a larger one.
HostTensor operand(DType dtype, std::int64_t h, std::int64_t w, int layout) {
  const Shape shape{2, 3, h, w};
  Shape strides = contiguous_strides(shape);
  if (layout == 1) strides = {3 * h * w, 1, 3 * w, 3};
  if (layout == 2) strides = {4 * h * w + 7, h * w, w, 1};
  // Few different values, so that some are equal.
  HostTensor coarse = HostTensor(dtype, shape, strides, layout).filled([](std::int64_t i) {
    return i % 41 == 17 ? std::numeric_limits<double>::quiet_NaN()
                        : static_cast<double>(i * 7919 % 23) - 11;
  });
  return coarse;
}
HostTensor slopes(DType dtype, std::int64_t h, std::int64_t w, int layout) {
  const Shape shape{2, 3, h, w};
  Shape strides = contiguous_strides(shape);
  if (layout == 1) strides = {3 * h * w, 1, 3 * w, 3};
  return HostTensor(dtype, shape, strides, layout).random(-1, 1, 3);
}
HostTensor result(DType dtype, std::int64_t h, std::int64_t w) {
  return HostTensor(dtype, {2, 3, h, w});
}

std::string text(const Named& windows, DType dtype, int layout) {
  return std::string(windows.name) + ", " + dtype_name(dtype) + ", layout " +
         std::to_string(layout);
}

}  // namespace

TEST_CASE("max_pool on the GPU: values, and which elements they are") {
  for (const Named& windows : kWindows) {
    for (DType dtype : kDtypes) {
      for (int layout = 0; layout < 3; ++layout) {
        PoolGeometry g = geometry_of(windows, dtype);
        if (layout == 2 && !g.w.adaptive && g.w.in > 4) {  // gaps between a window's elements
          g.w.dilation = 2;
          g.w.kernel = 2;
          g.w = axis_of(g.w);
        }
        const HostTensor x = operand(dtype, g.h.in, g.w.in, layout),
                         y = result(dtype, g.h.out, g.w.out),
                         indices = result(DType::kI64, g.h.out, g.w.out);
        compare_devices<MaxPoolKernel>(text(windows, dtype, layout),
                                       {.x = x, .y = y, .indices = indices, .g = g});
        // The CPU's run has written the indices.
        const HostTensor dy = slopes(dtype, g.h.out, g.w.out, layout),
                         dx = result(dtype, g.h.in, g.w.in);
        compare_devices<MaxPoolBackwardKernel>(text(windows, dtype, layout),
                                               {.dy = dy, .indices = indices, .dx = dx, .g = g});
      }
    }
  }
}

TEST_CASE("avg_pool on the GPU, with the padding counted and without") {
  for (const Named& windows : kWindows) {
    for (DType dtype : kDtypes) {
      // A warp sums a large window in another order.
      const Tolerance tolerance = dtype == DType::kF64   ? Tolerance{1e-14, 1e-14}
                                  : dtype == DType::kF32 ? Tolerance{1e-6, 1e-6}
                                                         : Tolerance{0.01, 1e-4};
      for (int layout = 0; layout < 2; ++layout) {
        PoolGeometry g = geometry_of(windows, dtype);
        g.count_include_pad = layout == 0;
        const HostTensor x = slopes(dtype, g.h.in, g.w.in, layout),
                         y = result(dtype, g.h.out, g.w.out);
        compare_devices<AvgPoolKernel>(text(windows, dtype, layout), {.x = x, .y = y, .g = g},
                                       tolerance);
        const HostTensor dy = slopes(dtype, g.h.out, g.w.out, layout),
                         dx = result(dtype, g.h.in, g.w.in);
        compare_devices<AvgPoolBackwardKernel>(text(windows, dtype, layout),
                                               {.dy = dy, .dx = dx, .g = g});
      }
    }
  }
}

TEST_CASE("pooling on the GPU: no planes") {
  PoolGeometry g = geometry_of(kWindows[0], DType::kF32);
  g.planes = 0;
  const HostTensor x(DType::kF32, {0, 3, g.h.in, g.w.in}), y(DType::kF32, {0, 3, g.h.out, g.w.out}),
      indices(DType::kI64, {0, 3, g.h.out, g.w.out});
  compare_devices<MaxPoolKernel>("none", {.x = x, .y = y, .indices = indices, .g = g});
  compare_devices<AvgPoolKernel>("none", {.x = x, .y = y, .g = g});
  compare_devices<MaxPoolBackwardKernel>("none", {.dy = y, .indices = indices, .dx = x, .g = g});
  compare_devices<AvgPoolBackwardKernel>("none", {.dy = y, .dx = x, .g = g});
}

}  // namespace tessera
