#include "tessera/tensor/ops/norm.h"

#include <optional>

#include "tessera/autograd/function.h"
#include "tessera/autograd/ops/autocast_call.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/tensor/check.h"

namespace tessera {
namespace {

Tensor tensor_or_none(const Variable& x) { return x.defined() ? x.tensor() : Tensor(); }

// A norm seen as [samples, groups, channels, spatial], for a derivative in variables.
struct NormView {
  Shape shape;
  Shape affine;               // of weight, to broadcast
  bool over_samples = false;  // statistics over dims 0 and 3, else over 2 and 3
  bool centered = true;
  double eps = 0;

  Variable mean(const Variable& x) const {
    return over_samples ? tessera::mean(x, {0, 3}, true) : tessera::mean(x, {2, 3}, true);
  }
};

// What backward keeps. weight is undefined where there is none.
struct SavedNorm {
  const char* name;
  SavedVariable x;
  std::optional<SavedVariable> weight;
  std::optional<DType> weight_dtype, bias_dtype;
  NormStatistics statistics;
  NormView view;

  Tensor weight_tensor() const { return weight ? weight->unpack().tensor() : Tensor(); }

  // In the dtype that x is computed in; fixed: x / rstd is that of given statistics.
  Gradients differentiable(const Variable& dy, const BackwardContext& context, bool fixed) const {
    const DType dtype = statistics.rstd.dtype();
    const Variable x4 = reshape(cast(x.unpack(), dtype), view.shape);
    const Variable dy4 = reshape(cast(dy, dtype), view.shape);
    Variable normal, inverse;  // inverse: 1 / rstd
    if (fixed) {
      const Variable m(statistics.mean.view(view.affine)), r(statistics.rstd.view(view.affine));
      inverse = div(Variable(r), mul(r, r));
      normal = mul(sub(x4, m), r);
    } else {
      const Variable centered = view.centered ? sub(x4, view.mean(x4)) : x4;
      inverse = sqrt(add(view.mean(square(centered)), view.eps));
      normal = div(centered, inverse);
    }
    Gradients out(3);
    if (context.needs(0)) {
      const Variable g =
          weight ? mul(dy4, reshape(cast(weight->unpack(), dtype), view.affine)) : dy4;
      Variable dx = g;
      if (!fixed) {
        dx = sub(g, mul(normal, view.mean(mul(g, normal))));
        if (view.centered) dx = sub(dx, view.mean(g));
      }
      out[0] = cast(reshape(div(dx, inverse), dy.shape()), dy.dtype());
    }
    if (context.needs(1)) out[1] = parameter_gradient(mul(dy4, normal), *weight_dtype);
    if (context.needs(2)) out[2] = parameter_gradient(dy4, *bias_dtype);
    return out;
  }

  // Summed down to the parameter.
  Variable parameter_gradient(const Variable& terms, DType dtype) const {
    return cast(sum_to_shape(terms, view.affine), dtype);
  }
};

Variable in_shape(const Variable& gradient, const Shape& shape) {
  return gradient.defined() ? reshape(gradient, shape) : gradient;
}

Variable in_dtype(const Tensor& gradient, std::optional<DType> dtype) {
  return gradient.defined() ? cast(Variable(gradient), *dtype) : Variable();
}

std::optional<DType> dtype_if(const Variable& x) {
  return x.defined() ? std::optional(x.dtype()) : std::nullopt;
}

struct RowNormCall {
  const char* name;
  NormBackwardOptions options;
  NormView view;
};

SavedNorm saved_norm(const char* name, const Variable& x, const Variable& weight,
                     const Variable& bias, const NormStatistics& statistics) {
  return {.name = name,
          .x = SavedVariable(x, name),
          .weight = weight.defined() ? std::optional(SavedVariable(weight, name)) : std::nullopt,
          .weight_dtype = dtype_if(weight),
          .bias_dtype = dtype_if(bias),
          .statistics = statistics,
          .view = {}};
}

Variable record_row_norm(const RowNormCall& call, NormResult result, const Variable& x,
                         const Variable& weight, const Variable& bias) {
  SavedNorm saved = saved_norm(call.name, x, weight, bias, result.statistics);
  saved.view = call.view;
  const Shape affine = weight.defined() ? weight.shape() : bias.defined() ? bias.shape() : Shape{};
  return record_twice(call.name, std::move(result.y), {x, weight, bias},
                      [saved = std::move(saved), options = call.options, affine](
                          const Variable& dy, const BackwardContext& context) {
                        if (context.create_graph()) {
                          Gradients out = saved.differentiable(dy, context, false);
                          out[1] = in_shape(out[1], affine);
                          out[2] = in_shape(out[2], affine);
                          return out;
                        }
                        NormBackwardOptions wanted = options;
                        wanted.needs_x = context.needs(0);
                        wanted.needs_weight = context.needs(1);
                        wanted.needs_bias = context.needs(2);
                        wanted.weight_dtype = saved.weight_dtype;
                        wanted.bias_dtype = saved.bias_dtype;
                        const NormGradients g = row_norm_backward(
                            dy.tensor(), saved.x.unpack().tensor(), saved.weight_tensor(),
                            saved.statistics, wanted, context.take_gradient(0, dy.dtype()));
                        return Gradients{g.x.defined() ? Variable(g.x) : Variable(),
                                         g.weight.defined() ? Variable(g.weight) : Variable(),
                                         g.bias.defined() ? Variable(g.bias) : Variable()};
                      });
}

// The last `dims` dims as channels, the others as samples.
NormView layer_view(const Variable& x, int dims, double eps) {
  std::int64_t samples = 1, channels = 1;
  for (int d = 0; d < x.ndim(); ++d) (d < x.ndim() - dims ? samples : channels) *= x.dim(d);
  return {.shape = {samples, 1, channels, 1}, .affine = {1, 1, channels, 1}, .eps = eps};
}

// y, and how to compute it again from x, as forward(x, weight, bias). It copies the parameters, because those of a sharded
// module may be gone when another module's derivative asks for y; if they are not small beside y, y is kept. So it is on a GPU,
// where all norms forward take about 1 % of a step (tests/gpu/STATUS.md): speed comes before this memory there.
template <class Forward>
Variable with_recipe(const char* name, Variable y, const Variable& x, const Variable& weight,
                     const Variable& bias, const Forward& forward) {
  if (!y.requires_grad() || y.device().is_cuda()) return y;
  constexpr std::int64_t kSmall = 8;
  const auto elements = [](const Variable& v) { return v.defined() ? v.tensor().numel() : 0; };
  if (kSmall * (elements(weight) + elements(bias)) > y.tensor().numel()) return y;
  const auto copied = [](const Variable& v) { return v.defined() ? clone(v.tensor()) : Tensor(); };
  set_recipe(y, [x = SavedVariable(x, name), weight = copied(weight), bias = copied(bias),
                 forward] { return forward(x.unpack().tensor(), weight, bias).y; });
  return y;
}

Variable record_layer_norm(NormResult result, const Variable& x, const Variable& weight,
                           const Variable& bias, const LayerNormOptions& options) {
  const RowNormCall call{.name = "layer_norm",
                         .options = {.dims = options.dims},
                         .view = layer_view(x, options.dims, options.eps)};
  return with_recipe(call.name, record_row_norm(call, std::move(result), x, weight, bias), x,
                     weight, bias,
                     [options](const Tensor& again, const Tensor& w, const Tensor& b) {
                       return layer_norm_forward(again, w, b, options);
                     });
}

Variable record_rms_norm(NormResult result, const Variable& x, const Variable& weight,
                         const RmsNormOptions& options) {
  RowNormCall call{.name = "rms_norm",
                   .options = {.dims = options.dims},
                   .view = layer_view(x, options.dims, options.eps)};
  call.view.centered = false;
  return with_recipe(call.name, record_row_norm(call, std::move(result), x, weight, Variable()), x,
                     weight, Variable(),
                     [options](const Tensor& again, const Tensor& w, const Tensor&) {
                       return rms_norm_forward(again, w, options);
                     });
}

// The sum that a norm of a sum found, as add() records it.
Variable record_sum(const Tensor& sum, const Variable& x, const Variable& residual) {
  return record_twice("add", sum, {x, residual}, [](const Variable& dy, const BackwardContext&) {
    return Gradients{dy, dy};
  });
}

// A sum and its norm may be computed in two dtypes, and x and residual be of two. Throws
// InvalidArgument for shapes that add() would broadcast.
bool adds_apart(const char* where, const Variable& x, const Variable& residual) {
  TESSERA_CHECK(x.shape() == residual.shape(), where, "shapes {} and {} differ; they must be equal",
                x.shape().str(), residual.shape().str());
  return detail::autocasting() || x.dtype() != residual.dtype();
}

std::int64_t spatial_of(const Variable& x) {
  std::int64_t spatial = 1;
  for (int d = 2; d < x.ndim(); ++d) spatial *= x.dim(d);
  return spatial;
}

}  // namespace

Variable layer_norm(const Variable& x, const Variable& weight, const Variable& bias,
                    const LayerNormOptions& options) {
  if (detail::autocasting())
    return detail::autocast(
        detail::autocast_of("layer_norm"), [&](auto&... v) { return layer_norm(v..., options); }, x,
        weight, bias);
  NormResult result =
      layer_norm_forward(x.tensor(), tensor_or_none(weight), tensor_or_none(bias), options);
  return record_layer_norm(std::move(result), x, weight, bias, options);
}

Variable rms_norm(const Variable& x, const Variable& weight, const RmsNormOptions& options) {
  if (detail::autocasting())
    return detail::autocast(
        detail::autocast_of("rms_norm"), [&](auto&... v) { return rms_norm(v..., options); }, x,
        weight);
  NormResult result = rms_norm_forward(x.tensor(), tensor_or_none(weight), options);
  return record_rms_norm(std::move(result), x, weight, options);
}

AddNorm add_layer_norm(const Variable& x, const Variable& residual, const Variable& weight,
                       const Variable& bias, const LayerNormOptions& options) {
  if (adds_apart("add_layer_norm", x, residual)) {
    const Variable sum = add(x, residual);
    return {.y = layer_norm(sum, weight, bias, options), .sum = sum};
  }
  const AddNormResult result = add_layer_norm_forward(
      x.tensor(), residual.tensor(), tensor_or_none(weight), tensor_or_none(bias), options);
  const Variable sum = record_sum(result.sum, x, residual);
  return {.y = record_layer_norm({result.y, result.statistics}, sum, weight, bias, options),
          .sum = sum};
}

AddNorm add_rms_norm(const Variable& x, const Variable& residual, const Variable& weight,
                     const RmsNormOptions& options) {
  if (adds_apart("add_rms_norm", x, residual)) {
    const Variable sum = add(x, residual);
    return {.y = rms_norm(sum, weight, options), .sum = sum};
  }
  const AddNormResult result =
      add_rms_norm_forward(x.tensor(), residual.tensor(), tensor_or_none(weight), options);
  const Variable sum = record_sum(result.sum, x, residual);
  return {.y = record_rms_norm({result.y, result.statistics}, sum, weight, options), .sum = sum};
}

Variable group_norm(const Variable& x, const Variable& weight, const Variable& bias,
                    const GroupNormOptions& options) {
  if (detail::autocasting())
    return detail::autocast(
        detail::autocast_of("group_norm"), [&](auto&... v) { return group_norm(v..., options); }, x,
        weight, bias);
  NormResult result =
      group_norm_forward(x.tensor(), tensor_or_none(weight), tensor_or_none(bias), options);
  const std::int64_t groups = options.groups, channels = x.dim(1) / groups;
  const NormView view{.shape = {x.dim(0), groups, channels, spatial_of(x)},
                      .affine = {1, groups, channels, 1},
                      .eps = options.eps};
  return record_row_norm({.name = "group_norm", .options = {.groups = groups}, .view = view},
                         std::move(result), x, weight, bias);
}

namespace {

// The fused derivative; count is undefined where the statistics were given.
Gradients batch_norm_gradients(const SavedNorm& saved, const Tensor& count, const Tensor& dy,
                               const BackwardContext& context) {
  const Tensor& x = saved.x.unpack().tensor();
  BatchNormSums sums;
  if (count.defined() || context.needs(1) || context.needs(2))
    sums = batch_norm_sums(dy, x, saved.statistics);
  sums.count = count;
  Gradients out(3);
  if (context.needs(0))
    out[0] =
        Variable(batch_norm_input_gradient(dy, x, saved.weight_tensor(), saved.statistics, sums));
  if (context.needs(1)) out[1] = in_dtype(sums.dy_normal, saved.weight_dtype);
  if (context.needs(2)) out[2] = in_dtype(sums.dy, saved.bias_dtype);
  return out;
}

}  // namespace

Variable batch_norm(const Variable& x, const Variable& weight, const Variable& bias,
                    const BatchNormOptions& options) {
  if (detail::autocasting())
    return detail::autocast(
        detail::autocast_of("batch_norm"), [&](auto&... v) { return batch_norm(v..., options); }, x,
        weight, bias);
  BatchNormResult result =
      batch_norm_forward(x.tensor(), tensor_or_none(weight), tensor_or_none(bias), options);
  SavedNorm saved = saved_norm("batch_norm", x, weight, bias, result.statistics);
  const std::int64_t channels = x.dim(1);
  saved.view = {.shape = {x.dim(0), channels, 1, spatial_of(x)},
                .affine = {1, channels, 1, 1},
                .over_samples = true,
                .eps = options.eps};
  return record_twice("batch_norm", std::move(result.y), {x, weight, bias},
                      [saved = std::move(saved), count = result.count](
                          const Variable& dy, const BackwardContext& context) {
                        if (!context.create_graph())
                          return batch_norm_gradients(saved, count, dy.tensor(), context);
                        Gradients out = saved.differentiable(dy, context, !count.defined());
                        const Shape affine{saved.statistics.rstd.numel()};
                        out[1] = in_shape(out[1], affine);
                        out[2] = in_shape(out[2], affine);
                        return out;
                      });
}

}  // namespace tessera
