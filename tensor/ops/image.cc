#include "tessera/tensor/ops/image.h"

#include "tessera/tensor/ops/composed/image.h"
#include "tessera/tensor/ops/index.h"
#include "tessera/tensor/ops/pool.h"
#include "tessera/tensor/ops/shape.h"

namespace tessera {
namespace {

// The windows of an image.
struct Windows {
  std::int64_t rows = 0;
  std::int64_t columns = 0;

  std::int64_t count() const { return rows * columns; }
};

std::int64_t count_along(const char* where, std::int64_t in, std::int64_t kernel,
                         std::int64_t dilation, std::int64_t padding, std::int64_t stride) {
  const std::int64_t span = dilation * (kernel - 1) + 1, room = in + 2 * padding;
  TESSERA_CHECK(span <= room, where,
                "a window of {} with dilation {} spans {}, the image of {} padded by {} only {}",
                kernel, dilation, span, in, padding, room);
  return (room - span) / stride + 1;
}

Windows windows_of(const char* where, Size2d image, const UnfoldOptions& o) {
  const auto least = [](Size2d size) { return std::min(size.height, size.width); };
  TESSERA_CHECK(least(o.kernel) >= 1 && least(o.dilation) >= 1 && least(o.stride) >= 1 &&
                    least(o.padding) >= 0,
                where,
                "kernel {} x {}, dilation {} x {} and stride {} x {} must be at least 1, padding "
                "{} x {} at least 0",
                o.kernel.height, o.kernel.width, o.dilation.height, o.dilation.width,
                o.stride.height, o.stride.width, o.padding.height, o.padding.width);
  return {.rows = count_along(where, image.height, o.kernel.height, o.dilation.height,
                              o.padding.height, o.stride.height),
          .columns = count_along(where, image.width, o.kernel.width, o.dilation.width,
                                 o.padding.width, o.stride.width)};
}

// body(i, j, the elements of the padded image that windows have at place (i, j) of the kernel).
template <class Body>
void for_each_place(const Tensor& padded, const Windows& windows, const UnfoldOptions& o,
                    const Body& body) {
  const auto along = [](const Tensor& x, int dim, std::int64_t first, std::int64_t stride,
                        std::int64_t count) {
    return x.slice(dim, first, first + (count - 1) * stride + 1, stride);
  };
  for (std::int64_t i = 0; i < o.kernel.height; ++i) {
    const Tensor rows = along(padded, 2, i * o.dilation.height, o.stride.height, windows.rows);
    for (std::int64_t j = 0; j < o.kernel.width; ++j)
      body(i, j, along(rows, 3, j * o.dilation.width, o.stride.width, windows.columns));
  }
}

}  // namespace

Tensor unfold(const Tensor& x, const UnfoldOptions& options) {
  constexpr const char* kWhere = "unfold";
  composed::floating(kWhere, x);
  if (x.ndim() == 3) return composed::only_sample(unfold(x.unsqueeze(0), options));
  TESSERA_CHECK(x.ndim() == 4, kWhere, "needs x [N, C, H, W] or [C, H, W], got {}",
                x.shape().str());
  const Windows windows = windows_of(kWhere, {x.dim(2), x.dim(3)}, options);
  const Size2d zeros = options.padding, kernel = options.kernel;
  const Tensor padded =
      zeros == Size2d(0) ? x : pad(x, {{zeros.height, zeros.height}, {zeros.width, zeros.width}});
  const Tensor out = Tensor::empty(
      {x.dim(0), x.dim(1), kernel.height, kernel.width, windows.rows, windows.columns},
      x.options());
  for_each_place(padded, windows, options,
                 [&](std::int64_t i, std::int64_t j, const Tensor& elements) {
                   copy_(out.select(2, i).select(2, j), elements);
                 });
  return out.view({x.dim(0), x.dim(1) * kernel.height * kernel.width, windows.count()});
}

Tensor fold(const Tensor& x, Size2d output, const UnfoldOptions& options) {
  constexpr const char* kWhere = "fold";
  composed::floating(kWhere, x);
  if (x.ndim() == 2) return composed::only_sample(fold(x.unsqueeze(0), output, options));
  const Windows windows = windows_of(kWhere, output, options);
  const Size2d zeros_around = options.padding, kernel = options.kernel;
  const std::int64_t places = kernel.height * kernel.width;
  TESSERA_CHECK(x.ndim() == 3 && x.dim(1) % places == 0 && x.dim(2) == windows.count(), kWhere,
                "an output of {} x {} has {} windows of {} elements; needs x [N, C {}, {}] or [C "
                "{}, {}], got {}",
                output.height, output.width, windows.count(), places, places, windows.count(),
                places, windows.count(), x.shape().str());
  const std::int64_t channels = x.dim(1) / places;
  const Tensor columns =
      reshape(x, {x.dim(0), channels, kernel.height, kernel.width, windows.rows, windows.columns});
  const Tensor sums = zeros({x.dim(0), channels, output.height + 2 * zeros_around.height,
                             output.width + 2 * zeros_around.width},
                            {.dtype = compute_dtype(x.dtype()), .device = x.device()});
  for_each_place(sums, windows, options,
                 [&](std::int64_t i, std::int64_t j, const Tensor& elements) {
                   add_(elements, columns.select(2, i).select(2, j));
                 });
  const Tensor inside = sums.narrow(2, zeros_around.height, output.height)
                            .narrow(3, zeros_around.width, output.width);
  return contiguous(composed::in_dtype(inside, x.dtype()));
}

Tensor pixel_shuffle(const Tensor& x, std::int64_t upscale_factor) {
  return composed::pixel_shuffle(x, upscale_factor);
}
Tensor pixel_unshuffle(const Tensor& x, std::int64_t downscale_factor) {
  return composed::pixel_unshuffle(x, downscale_factor);
}
Tensor channel_shuffle(const Tensor& x, std::int64_t groups) {
  return composed::channel_shuffle(x, groups);
}
Tensor interpolate(const Tensor& x, const InterpolateOptions& options) {
  return composed::interpolate(x, options);
}

}  // namespace tessera
