#include "tessera/tensor/ops/pool.h"

#include <cstdint>
#include <limits>

#include "tessera/tensor/kernels/launch.h"
#include "tessera/tensor/kernels/pool.h"
#include "tessera/tensor/kernels/resolve.h"
#include "tessera/tensor/ops/internal/op_checks.h"

namespace tessera {
namespace {

// One spatial dim as two, with height 1.
Shape with_height(const Shape& shape) { return shape.ndim() == 3 ? shape.inserted(2, 1) : shape; }
Tensor with_height(const Tensor& x) { return x.ndim() == 3 ? x.unsqueeze(2) : x; }

// Whether x lacks N, which the operation for `ndim` dims then adds.
bool lacks_batch(const Tensor& x, int ndim) { return x.defined() && x.ndim() == ndim - 1; }

Tensor only_sample(const Tensor& y) { return y.select(0, 0); }
MaxPoolResult only_sample(const MaxPoolResult& y) {
  return {.output = y.output.select(0, 0), .indices = y.indices.select(0, 0)};
}

// The windows of max and average pooling.
struct Windows {
  Size2d kernel = 1;
  Size2d stride = 1;
  Size2d padding = 0;
  Size2d dilation = 1;
  bool ceil_mode = false;
};

Windows windows_of(const MaxPool2dOptions& o) {
  return {o.kernel, o.stride, o.padding, o.dilation, o.ceil_mode};
}
Windows windows_of(const AvgPool2dOptions& o) {
  return {o.kernel, o.stride, o.padding, 1, o.ceil_mode};
}

PoolAxis axis_of(const char* where, std::int64_t in, const PoolAxis& asked, bool ceil_mode) {
  PoolAxis axis = asked;
  if (axis.stride == 0) axis.stride = axis.kernel;
  TESSERA_CHECK(axis.kernel >= 1 && axis.stride >= 1 && axis.dilation >= 1, where,
                "kernel {}, stride {} and dilation {} must be at least 1", axis.kernel, axis.stride,
                axis.dilation);
  TESSERA_CHECK(axis.padding >= 0 && axis.padding <= axis.kernel / 2, where,
                "padding {} must lie between 0 and half the kernel of {}", axis.padding,
                axis.kernel);
  const std::int64_t span = axis.dilation * (axis.kernel - 1) + 1,
                     room = in + 2 * axis.padding - span;
  TESSERA_CHECK(room >= 0, where,
                "a window of {} with dilation {} spans {}, the input of {} padded by {} only {}",
                axis.kernel, axis.dilation, span, in, axis.padding, in + 2 * axis.padding);
  axis.in = in;
  axis.out = (room + (ceil_mode ? axis.stride - 1 : 0)) / axis.stride + 1;
  if ((axis.out - 1) * axis.stride >= in + axis.padding) --axis.out;
  return axis;
}

void check_input(const char* where, const Shape& x, int ndim) {
  TESSERA_CHECK(x.ndim() == ndim, where, "needs x {}, got {}",
                ndim == 3 ? "[N, C, L] or [C, L]" : "[N, C, H, W] or [C, H, W]", x.str());
  TESSERA_CHECK(x[ndim - 1] > 0 && x[ndim - 2] > 0, where,
                "x {} has no elements in a channel; it needs some", x.str());
}

PoolGeometry geometry_of(const char* where, const Shape& x, DType dtype, const Windows& windows) {
  check_input(where, x, x.ndim() == 3 ? 3 : 4);
  const Shape in = with_height(x);
  return {.planes = in[0] * in[1],
          .h = axis_of(where, in[2],
                       {.kernel = windows.kernel.height,
                        .stride = windows.stride.height,
                        .padding = windows.padding.height,
                        .dilation = windows.dilation.height},
                       windows.ceil_mode),
          .w = axis_of(where, in[3],
                       {.kernel = windows.kernel.width,
                        .stride = windows.stride.width,
                        .padding = windows.padding.width,
                        .dilation = windows.dilation.width},
                       windows.ceil_mode),
          .compute = compute_dtype(dtype)};
}

PoolGeometry adaptive_geometry(const char* where, const Shape& x, DType dtype, Size2d output) {
  check_input(where, x, x.ndim() == 3 ? 3 : 4);
  TESSERA_CHECK(output.height >= 1 && output.width >= 1, where,
                "the output size is {} x {}; it must be at least 1", output.height, output.width);
  const Shape in = with_height(x);
  return {.planes = in[0] * in[1],
          .h = {.in = in[2], .out = output.height, .adaptive = true},
          .w = {.in = in[3], .out = output.width, .adaptive = true},
          .count_include_pad = false,
          .compute = compute_dtype(dtype)};
}

// The output's shape for an input of shape x.
Shape output_shape(const Shape& x, const PoolGeometry& g) {
  return x.ndim() == 3 ? Shape{x[0], x[1], g.w.out} : Shape{x[0], x[1], g.h.out, g.w.out};
}

void check_operand(const char* where, const Tensor& x, int ndim) {
  ops::check_defined(where, "the tensor", x);
  ops::check_floating(where, x);
  check_input(where, x.shape(), ndim);
}

MaxPoolResult max_pool(const Tensor& x, PoolGeometry g) {
  // The kernel counts the elements of a plane in integers as wide as the compute type.
  if (g.inputs() >= std::numeric_limits<std::uint32_t>::max()) g.compute = DType::kF64;
  const Shape shape = output_shape(x.shape(), g);
  const MaxPoolResult result{
      .output = Tensor::empty(shape, x.options()),
      .indices = Tensor::empty(shape, {.dtype = DType::kI64, .device = x.device()})};
  launch<MaxPoolKernel>(x.device(), {.x = read(with_height(x)),
                                     .y = write(with_height(result.output)),
                                     .indices = write(with_height(result.indices)),
                                     .g = g});
  return result;
}

Tensor avg_pool(const Tensor& x, const PoolGeometry& g) {
  const Tensor y = Tensor::empty(output_shape(x.shape(), g), x.options());
  launch<AvgPoolKernel>(x.device(),
                        {.x = read(with_height(x)), .y = write(with_height(y)), .g = g});
  return y;
}

void check_dy(const char* where, const Tensor& dy, const Shape& x_shape, const PoolGeometry& g) {
  const Shape expected = output_shape(x_shape, g);
  TESSERA_CHECK(dy.shape() == expected, where, "dy has shape {}, the output {}; they must be equal",
                dy.shape().str(), expected.str());
}

void check_gradient(const char* where, const Tensor& dy) {
  ops::check_defined(where, "dy", dy);
  ops::check_floating(where, dy);
}

Tensor max_pool_gradient(const char* where, const Tensor& dy, const Tensor& indices,
                         const Shape& x_shape, const PoolGeometry& g) {
  check_dy(where, dy, x_shape, g);
  ops::check_defined(where, "indices", indices);
  ops::check_same_device(where, dy, indices);
  TESSERA_CHECK(
      indices.dtype() == DType::kI64 && indices.shape() == dy.shape() && indices.is_contiguous(),
      where, "indices are {} {}, expected the forward's: contiguous i64 {}",
      dtype_name(indices.dtype()), indices.shape().str(), dy.shape().str());
  const Tensor dx = Tensor::empty(x_shape, dy.options());
  launch<MaxPoolBackwardKernel>(dy.device(), {.dy = read(with_height(dy)),
                                              .indices = read(with_height(indices)),
                                              .dx = write(with_height(dx)),
                                              .g = g});
  return dx;
}

Tensor avg_pool_gradient(const char* where, const Tensor& dy, const Shape& x_shape,
                         const PoolGeometry& g) {
  check_dy(where, dy, x_shape, g);
  const Tensor dx = Tensor::empty(x_shape, dy.options());
  launch<AvgPoolBackwardKernel>(
      dy.device(), {.dy = read(with_height(dy)), .dx = write(with_height(dx)), .g = g});
  return dx;
}

PoolGeometry avg_geometry(const char* where, const Shape& x, DType dtype,
                          const AvgPool2dOptions& options) {
  PoolGeometry g = geometry_of(where, x, dtype, windows_of(options));
  g.count_include_pad = options.count_include_pad;
  return g;
}

// The number of windows of an adaptive pool, from the shape of its output.
Size2d output_size(const char* where, const Tensor& dy, const Shape& x_shape) {
  check_gradient(where, dy);
  TESSERA_CHECK(dy.ndim() == x_shape.ndim() && (dy.ndim() == 3 || dy.ndim() == 4), where,
                "needs dy and x of 3 or of 4 dims, got {} and {}", dy.shape().str(), x_shape.str());
  const Shape out = with_height(dy.shape());
  return {out[2], out[3]};
}

}  // namespace

MaxPoolResult max_pool2d(const Tensor& x, const MaxPool2dOptions& options) {
  if (lacks_batch(x, 4)) return only_sample(max_pool2d(x.unsqueeze(0), options));
  check_operand("max_pool2d", x, 4);
  return max_pool(x, geometry_of("max_pool2d", x.shape(), x.dtype(), windows_of(options)));
}

MaxPoolResult max_pool1d(const Tensor& x, const MaxPool1dOptions& options) {
  if (lacks_batch(x, 3)) return only_sample(max_pool1d(x.unsqueeze(0), options));
  check_operand("max_pool1d", x, 3);
  return max_pool(x, geometry_of("max_pool1d", x.shape(), x.dtype(), windows_of(options.as_2d())));
}

Tensor max_pool_backward(const Tensor& dy, const Tensor& indices, const Shape& x_shape,
                         const MaxPool2dOptions& options) {
  constexpr const char* kWhere = "max_pool_backward";
  check_gradient(kWhere, dy);
  return max_pool_gradient(kWhere, dy, indices, x_shape,
                           geometry_of(kWhere, x_shape, dy.dtype(), windows_of(options)));
}

Tensor avg_pool2d(const Tensor& x, const AvgPool2dOptions& options) {
  if (lacks_batch(x, 4)) return only_sample(avg_pool2d(x.unsqueeze(0), options));
  check_operand("avg_pool2d", x, 4);
  return avg_pool(x, avg_geometry("avg_pool2d", x.shape(), x.dtype(), options));
}

Tensor avg_pool1d(const Tensor& x, const AvgPool1dOptions& options) {
  if (lacks_batch(x, 3)) return only_sample(avg_pool1d(x.unsqueeze(0), options));
  check_operand("avg_pool1d", x, 3);
  return avg_pool(x, avg_geometry("avg_pool1d", x.shape(), x.dtype(), options.as_2d()));
}

Tensor avg_pool_backward(const Tensor& dy, const Shape& x_shape, const AvgPool2dOptions& options) {
  constexpr const char* kWhere = "avg_pool_backward";
  check_gradient(kWhere, dy);
  return avg_pool_gradient(kWhere, dy, x_shape, avg_geometry(kWhere, x_shape, dy.dtype(), options));
}

MaxPoolResult adaptive_max_pool2d(const Tensor& x, Size2d output) {
  if (lacks_batch(x, 4)) return only_sample(adaptive_max_pool2d(x.unsqueeze(0), output));
  check_operand("adaptive_max_pool2d", x, 4);
  return max_pool(x, adaptive_geometry("adaptive_max_pool2d", x.shape(), x.dtype(), output));
}

MaxPoolResult adaptive_max_pool1d(const Tensor& x, std::int64_t output) {
  if (lacks_batch(x, 3)) return only_sample(adaptive_max_pool1d(x.unsqueeze(0), output));
  check_operand("adaptive_max_pool1d", x, 3);
  return max_pool(x, adaptive_geometry("adaptive_max_pool1d", x.shape(), x.dtype(), {1, output}));
}

Tensor adaptive_avg_pool2d(const Tensor& x, Size2d output) {
  if (lacks_batch(x, 4)) return only_sample(adaptive_avg_pool2d(x.unsqueeze(0), output));
  check_operand("adaptive_avg_pool2d", x, 4);
  return avg_pool(x, adaptive_geometry("adaptive_avg_pool2d", x.shape(), x.dtype(), output));
}

Tensor adaptive_avg_pool1d(const Tensor& x, std::int64_t output) {
  if (lacks_batch(x, 3)) return only_sample(adaptive_avg_pool1d(x.unsqueeze(0), output));
  check_operand("adaptive_avg_pool1d", x, 3);
  return avg_pool(x, adaptive_geometry("adaptive_avg_pool1d", x.shape(), x.dtype(), {1, output}));
}

Tensor adaptive_max_pool_backward(const Tensor& dy, const Tensor& indices, const Shape& x_shape) {
  constexpr const char* kWhere = "adaptive_max_pool_backward";
  const Size2d output = output_size(kWhere, dy, x_shape);
  return max_pool_gradient(kWhere, dy, indices, x_shape,
                           adaptive_geometry(kWhere, x_shape, dy.dtype(), output));
}

Tensor adaptive_avg_pool_backward(const Tensor& dy, const Shape& x_shape) {
  constexpr const char* kWhere = "adaptive_avg_pool_backward";
  const Size2d output = output_size(kWhere, dy, x_shape);
  return avg_pool_gradient(kWhere, dy, x_shape,
                           adaptive_geometry(kWhere, x_shape, dy.dtype(), output));
}

}  // namespace tessera
