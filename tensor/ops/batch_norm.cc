#include "tessera/tensor/kernels/channel_norm.h"
#include "tessera/tensor/kernels/launch.h"
#include "tessera/tensor/kernels/resolve.h"
#include "tessera/tensor/ops/internal/norm_checks.h"
#include "tessera/tensor/ops/norm.h"

namespace tessera {
namespace {

constexpr const char* kWhere = "batch_norm";

ChannelShape channel_shape(const Tensor& x) {
  ops::check_defined(kWhere, "the tensor", x);
  ops::check_floating(kWhere, x);
  TESSERA_CHECK(x.ndim() >= 2, kWhere, "needs an input [samples, channels, ...], got shape {}",
                x.shape().str());
  ChannelShape shape{.samples = x.dim(0), .channels = x.dim(1)};
  for (int d = 2; d < x.ndim(); ++d) shape.spatial *= x.dim(d);
  return shape;
}

Tensor as_rows(const Tensor& x, const ChannelShape& shape) {
  return contiguous(x).view({shape.rows(), shape.row_length()});
}

void check_running(const char* name, const Tensor& running, const Tensor& like) {
  ops::check_floating(kWhere, running);
  ops::check_same_device(kWhere, like, running);
  TESSERA_CHECK(running.shape() == like.shape() && running.is_contiguous(), kWhere,
                "{} has shape {} and strides {}; it must be contiguous, of shape {}", name,
                running.shape().str(), running.strides().str(), like.shape().str());
}

// The statistics of a channel in the form that kernels take.
NormStatistics checked(const NormStatistics& statistics, const Tensor& x) {
  const Shape channels{x.dim(1)};
  return {.mean = ops::norm_statistic(kWhere, "the mean", statistics.mean, x, channels),
          .rstd = ops::norm_statistic(kWhere, "rstd", statistics.rstd, x, channels)};
}

void check_count(const Tensor& count, const Tensor& like) {
  ops::check_defined(kWhere, "count", count);
  ops::check_same_device(kWhere, like, count);
  TESSERA_CHECK(count.dtype() == DType::kF64 && count.numel() == 1, kWhere,
                "count is {} of shape {}; it must be one f64", dtype_name(count.dtype()),
                count.shape().str());
}

void check_slope(const Tensor& dy, const Tensor& x) {
  ops::check_operands(kWhere, dy, x);
  ops::check_same_shape(kWhere, dy, x);
}

ConstView read_if(const Tensor& x) { return x.defined() ? read(x) : ConstView{}; }
View write_if(const Tensor& x) { return x.defined() ? write(x) : View{}; }

// The running statistics in the form used for normalisation.
NormStatistics running_statistics(const Tensor& x, const BatchNormOptions& options) {
  TESSERA_CHECK(options.running_mean.defined() && options.running_var.defined(), kWhere,
                "{} is undefined; not training, it needs running_mean and running_var; pass them",
                options.running_mean.defined() ? "running_var" : "running_mean");
  const TensorOptions kind{.dtype = compute_dtype(x.dtype()), .device = x.device()};
  const Tensor rstd = Tensor::empty({x.dim(1)}, kind);
  check_running("running_mean", options.running_mean, rstd);
  check_running("running_var", options.running_var, rstd);
  const auto converted = [&](const Tensor& running) {
    return running.dtype() == kind.dtype ? running : cast(running, kind.dtype);
  };
  const Tensor variance = converted(options.running_var);
  launch<ChannelFinishKernel>(x.device(),
                              {.m2 = read(variance), .rstd = write(rstd), .eps = options.eps});
  return {.mean = converted(options.running_mean), .rstd = rstd};
}

}  // namespace

BatchStatistics batch_norm_statistics(const Tensor& x) {
  const ChannelShape shape = channel_shape(x);
  const TensorOptions kind{.dtype = compute_dtype(x.dtype()), .device = x.device()};
  const BatchStatistics out{
      .mean = Tensor::empty({shape.channels}, kind),
      .m2 = Tensor::empty({shape.channels}, kind),
      .count = Tensor::empty({}, {.dtype = DType::kF64, .device = x.device()})};
  const Tensor input = as_rows(x, shape);
  launch<ChannelStatisticsKernel>(x.device(), {.x = read(input),
                                               .mean = write(out.mean),
                                               .m2 = write(out.m2),
                                               .count = write(out.count),
                                               .shape = shape});
  return out;
}

Tensor batch_norm_rstd(const BatchStatistics& statistics, const BatchNormOptions& options) {
  ops::check_eps(kWhere, options.eps);
  ops::check_operands(kWhere, statistics.mean, statistics.m2);
  ops::check_floating(kWhere, statistics.mean);
  ops::check_same_shape(kWhere, statistics.mean, statistics.m2);
  check_count(statistics.count, statistics.mean);
  for (const auto& [name, running] : {std::pair("running_mean", options.running_mean),
                                      std::pair("running_var", options.running_var)}) {
    if (running.defined()) check_running(name, running, statistics.mean);
  }
  const Tensor mean = contiguous(statistics.mean), m2 = contiguous(statistics.m2);
  const Tensor rstd = Tensor::empty(m2.shape(), m2.options());
  launch<ChannelFinishKernel>(m2.device(), {.mean = read(mean),
                                            .m2 = read(m2),
                                            .count = read(statistics.count),
                                            .rstd = write(rstd),
                                            .running_mean = write_if(options.running_mean),
                                            .running_var = write_if(options.running_var),
                                            .momentum = options.momentum,
                                            .eps = options.eps});
  return rstd;
}

Tensor batch_norm_apply(const Tensor& x, const Tensor& weight, const Tensor& bias,
                        const NormStatistics& statistics) {
  const ChannelShape shape = channel_shape(x);
  const Tensor w = ops::norm_parameter(kWhere, "weight", weight, x, {shape.channels});
  const Tensor b = ops::norm_parameter(kWhere, "bias", bias, x, {shape.channels});
  const NormStatistics s = checked(statistics, x);
  const Tensor out = Tensor::empty(x.shape(), x.options());
  const Tensor input = as_rows(x, shape);
  launch<ChannelNormKernel>(x.device(), {.x = read(input),
                                         .mean = read(s.mean),
                                         .rstd = read(s.rstd),
                                         .weight = read_if(w),
                                         .bias = read_if(b),
                                         .y = write(out.view({shape.rows(), shape.row_length()})),
                                         .shape = shape});
  return out;
}

BatchNormSums batch_norm_sums(const Tensor& dy, const Tensor& x, const NormStatistics& statistics) {
  const ChannelShape shape = channel_shape(x);
  check_slope(dy, x);
  const NormStatistics s = checked(statistics, x);
  const BatchNormSums out{.dy = Tensor::empty(s.rstd.shape(), s.rstd.options()),
                          .dy_normal = Tensor::empty(s.rstd.shape(), s.rstd.options()),
                          .count = {}};
  const Tensor slope = as_rows(dy, shape), input = as_rows(x, shape);
  launch<ChannelSumsKernel>(x.device(), {.dy = read(slope),
                                         .x = read(input),
                                         .mean = read(s.mean),
                                         .rstd = read(s.rstd),
                                         .sum_dy = write(out.dy),
                                         .sum_dy_normal = write(out.dy_normal),
                                         .shape = shape});
  return out;
}

Tensor batch_norm_input_gradient(const Tensor& dy, const Tensor& x, const Tensor& weight,
                                 const NormStatistics& statistics, const BatchNormSums& sums) {
  const ChannelShape shape = channel_shape(x);
  check_slope(dy, x);
  const NormStatistics s = checked(statistics, x);
  const Tensor w = ops::norm_parameter(kWhere, "weight", weight, x, {shape.channels});
  Tensor sum_dy, sum_dy_normal;
  if (sums.count.defined()) {
    sum_dy = ops::norm_statistic(kWhere, "the sum of dy", sums.dy, x, {shape.channels});
    sum_dy_normal =
        ops::norm_statistic(kWhere, "the sum of dy_normal", sums.dy_normal, x, {shape.channels});
    check_count(sums.count, x);
  }
  const Tensor out = Tensor::empty(x.shape(), x.options());
  const Tensor slope = as_rows(dy, shape), input = as_rows(x, shape);
  launch<ChannelNormBackwardKernel>(x.device(),
                                    {.dy = read(slope),
                                     .x = read(input),
                                     .mean = read(s.mean),
                                     .rstd = read(s.rstd),
                                     .weight = read_if(w),
                                     .sum_dy = read_if(sum_dy),
                                     .sum_dy_normal = read_if(sum_dy_normal),
                                     .count = read_if(sums.count),
                                     .dx = write(out.view({shape.rows(), shape.row_length()})),
                                     .shape = shape});
  return out;
}

BatchNormResult batch_norm_forward(const Tensor& x, const Tensor& weight, const Tensor& bias,
                                   const BatchNormOptions& options) {
  const ChannelShape shape = channel_shape(x);
  ops::check_eps(kWhere, options.eps);
  if (!options.training) {
    const NormStatistics statistics = running_statistics(x, options);
    return {
        .y = batch_norm_apply(x, weight, bias, statistics), .statistics = statistics, .count = {}};
  }
  TESSERA_CHECK(
      shape.count() >= 2, kWhere,
      "training needs at least 2 elements in a channel, shape {} has {}; give more samples",
      x.shape().str(), shape.count());
  const BatchStatistics own = batch_norm_statistics(x);
  const NormStatistics statistics{.mean = own.mean, .rstd = batch_norm_rstd(own, options)};
  return {.y = batch_norm_apply(x, weight, bias, statistics),
          .statistics = statistics,
          .count = own.count};
}

}  // namespace tessera
