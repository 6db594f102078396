#include "tessera/tensor/ops/norm.h"

#include <optional>

#include "tessera/tensor/kernels/launch.h"
#include "tessera/tensor/kernels/resolve.h"
#include "tessera/tensor/kernels/row_norm.h"
#include "tessera/tensor/ops/internal/norm_checks.h"

namespace tessera {
namespace {

// How the normalised rows lie in x.
struct Rows {
  RowNormShape shape;
  Shape statistics;  // of mean and rstd
  Shape affine;      // of weight and bias

  Shape matrix() const { return {shape.rows(), shape.length()}; }
};

Rows layer_rows(const char* where, const Tensor& x, int dims) {
  ops::check_defined(where, "the tensor", x);
  ops::check_floating(where, x);
  TESSERA_CHECK(dims >= 1 && dims <= x.ndim(), where,
                "cannot normalise the last {} dims of shape {}; give 1 to {}", dims,
                x.shape().str(), x.ndim());
  Rows rows;
  for (int d = 0; d < x.ndim(); ++d)
    (d < x.ndim() - dims ? rows.statistics : rows.affine).push_back(x.dim(d));
  rows.shape = {.samples = rows.statistics.numel(), .channels = rows.affine.numel()};
  return rows;
}

Rows group_rows(const char* where, const Tensor& x, std::int64_t groups) {
  ops::check_defined(where, "the tensor", x);
  ops::check_floating(where, x);
  TESSERA_CHECK(x.ndim() >= 2, where, "needs an input [samples, channels, ...], got shape {}",
                x.shape().str());
  TESSERA_CHECK(
      groups >= 1 && x.dim(1) % groups == 0, where,
      "{} channels do not split into {} groups; give a number of groups that divides them",
      x.dim(1), groups);
  std::int64_t spatial = 1;
  for (int d = 2; d < x.ndim(); ++d) spatial *= x.dim(d);
  return {.shape = {.samples = x.dim(0),
                    .groups = groups,
                    .channels = x.dim(1) / groups,
                    .spatial = spatial},
          .statistics = {x.dim(0), groups},
          .affine = {x.dim(1)}};
}

struct Forward {
  const char* where;
  bool centered;
  double eps;
};

// `residual` may be undefined; then the result's sum is too.
AddNormResult launch_forward(const Forward& norm, const Rows& rows, const Tensor& x,
                             const Tensor& residual, const Tensor& weight, const Tensor& bias) {
  ops::check_eps(norm.where, norm.eps);
  const bool adds = residual.defined();
  const Tensor w = ops::stored_norm_parameter(norm.where, "weight", weight, x, rows.affine);
  const Tensor b = ops::stored_norm_parameter(norm.where, "bias", bias, x, rows.affine);
  const TensorOptions kind{.dtype = compute_dtype(x.dtype()), .device = x.device()};
  const Tensor mean = norm.centered ? Tensor::empty(rows.statistics, kind) : Tensor();
  const AddNormResult out{
      .y = Tensor::empty(x.shape(), x.options()),
      .sum = adds ? Tensor::empty(x.shape(), x.options()) : Tensor(),
      .statistics = {.mean = mean, .rstd = Tensor::empty(rows.statistics, kind)}};
  const Tensor input = contiguous(x).view(rows.matrix());
  const Tensor other = adds ? contiguous(residual).view(rows.matrix()) : Tensor();
  launch<RowNormKernel>(x.device(), {.x = read(input),
                                     .weight = w.defined() ? read(w) : ConstView{},
                                     .bias = b.defined() ? read(b) : ConstView{},
                                     .y = write(out.y.view(rows.matrix())),
                                     .mean = mean.defined() ? write(mean) : View{},
                                     .rstd = write(out.statistics.rstd),
                                     .shape = rows.shape,
                                     .centered = norm.centered,
                                     .eps = norm.eps,
                                     .residual = adds ? read(other) : ConstView{},
                                     .sum = adds ? write(out.sum.view(rows.matrix())) : View{}});
  return out;
}

NormResult launch_plain(const Forward& norm, const Rows& rows, const Tensor& x,
                        const Tensor& weight, const Tensor& bias) {
  const AddNormResult out = launch_forward(norm, rows, x, Tensor(), weight, bias);
  return {.y = out.y, .statistics = out.statistics};
}

void check_residual(const char* where, const Tensor& x, const Tensor& residual) {
  ops::check_operands(where, x, residual);
  ops::check_same_shape(where, x, residual);
}

}  // namespace

NormResult layer_norm_forward(const Tensor& x, const Tensor& weight, const Tensor& bias,
                              const LayerNormOptions& options) {
  constexpr const char* kWhere = "layer_norm";
  return launch_plain({kWhere, true, options.eps}, layer_rows(kWhere, x, options.dims), x, weight,
                      bias);
}

NormResult rms_norm_forward(const Tensor& x, const Tensor& weight, const RmsNormOptions& options) {
  constexpr const char* kWhere = "rms_norm";
  return launch_plain({kWhere, false, options.eps}, layer_rows(kWhere, x, options.dims), x, weight,
                      Tensor());
}

NormResult group_norm_forward(const Tensor& x, const Tensor& weight, const Tensor& bias,
                              const GroupNormOptions& options) {
  constexpr const char* kWhere = "group_norm";
  return launch_plain({kWhere, true, options.eps}, group_rows(kWhere, x, options.groups), x, weight,
                      bias);
}

AddNormResult add_layer_norm_forward(const Tensor& x, const Tensor& residual, const Tensor& weight,
                                     const Tensor& bias, const LayerNormOptions& options) {
  constexpr const char* kWhere = "add_layer_norm";
  check_residual(kWhere, x, residual);
  return launch_forward({kWhere, true, options.eps}, layer_rows(kWhere, x, options.dims), x,
                        residual, weight, bias);
}

AddNormResult add_rms_norm_forward(const Tensor& x, const Tensor& residual, const Tensor& weight,
                                   const RmsNormOptions& options) {
  constexpr const char* kWhere = "add_rms_norm";
  check_residual(kWhere, x, residual);
  return launch_forward({kWhere, false, options.eps}, layer_rows(kWhere, x, options.dims), x,
                        residual, weight, Tensor());
}

NormGradients row_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& weight,
                                const NormStatistics& statistics,
                                const NormBackwardOptions& options, const Tensor& added) {
  constexpr const char* kWhere = "row_norm_backward";
  const Rows rows = options.groups > 0 ? group_rows(kWhere, x, options.groups)
                                       : layer_rows(kWhere, x, options.dims);
  ops::check_operands(kWhere, dy, x);
  ops::check_same_shape(kWhere, dy, x);
  const bool adds = options.needs_x && added.defined();
  if (adds) check_residual(kWhere, x, added);
  const Tensor w = ops::stored_norm_parameter(kWhere, "weight", weight, x, rows.affine);
  const Tensor rstd = ops::norm_statistic(kWhere, "rstd", statistics.rstd, x, rows.statistics);
  const Tensor mean = statistics.mean.defined()
                          ? ops::norm_statistic(kWhere, "mean", statistics.mean, x, rows.statistics)
                          : Tensor();
  const auto parameter = [&](bool wanted, std::optional<DType> dtype) {
    const DType made = dtype.value_or(rstd.dtype());
    TESSERA_CHECK(made == rstd.dtype() || made == x.dtype(), kWhere,
                  "the gradient of a parameter was asked for in {}; it is {} or {}",
                  dtype_name(made), dtype_name(rstd.dtype()), dtype_name(x.dtype()));
    return wanted ? Tensor::empty(rows.affine, {.dtype = made, .device = x.device()}) : Tensor();
  };
  const NormGradients out{.x = options.needs_x ? Tensor::empty(x.shape(), x.options()) : Tensor(),
                          .weight = parameter(options.needs_weight, options.weight_dtype),
                          .bias = parameter(options.needs_bias, options.bias_dtype)};
  const Tensor slope = contiguous(dy).view(rows.matrix()),
               input = contiguous(x).view(rows.matrix()),
               other = adds ? contiguous(added).view(rows.matrix()) : Tensor();
  launch<RowNormBackwardKernel>(x.device(),
                                {.dy = read(slope),
                                 .x = read(input),
                                 .mean = mean.defined() ? read(mean) : ConstView{},
                                 .rstd = read(rstd),
                                 .weight = w.defined() ? read(w) : ConstView{},
                                 .dx = options.needs_x ? write(out.x.view(rows.matrix())) : View{},
                                 .dweight = options.needs_weight ? write(out.weight) : View{},
                                 .dbias = options.needs_bias ? write(out.bias) : View{},
                                 .shape = rows.shape,
                                 .added = adds ? read(other) : ConstView{}});
  return out;
}

}  // namespace tessera
