#include "tessera/autograd/ops/conv.h"

#include <optional>
#include <utility>

#include "tessera/autograd/function.h"
#include "tessera/autograd/ops/autocast_call.h"
#include "tessera/autograd/ops/internal.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/tensor/ops/composed/conv_transpose.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/reduce.h"

namespace tessera {
namespace {

using detail::save_if;

// The derivatives of a convolution are convolutions' derivatives again: with dx and dw those of
// y = conv(x, w),
//     conv is linear in x and w          d conv / dx = dx(dy, w)       d conv / dw = dw(dy, x)
//     dx(dy, w) is linear in both        d / d dy = conv(., w)         d / dw = dw(dy, .)
//     dw(dy, x) is linear in both        d / d dy = conv(x, .)         d / dx = dx(dy, .)
Variable convolve(const Variable& x, const Variable& weight, const Conv2dOptions& options) {
  if (x.ndim() == 4) return conv2d(x, weight, {}, options);
  return conv1d(x, weight, {},
                {.stride = options.stride.width,
                 .padding = options.padding.width,
                 .dilation = options.dilation.width,
                 .groups = options.groups});
}

Variable input_gradient(const Variable& dy, const Variable& weight, const Shape& x_shape,
                        const Conv2dOptions& options);

Variable weight_gradient(const Variable& dy, const Variable& x, const Shape& weight_shape,
                         const Conv2dOptions& options) {
  constexpr const char* kName = "conv_backward_weight";
  return record_twice(
      kName, conv_backward_weight(dy.tensor(), x.tensor(), weight_shape, options), {dy, x},
      [dy = save_if(x.requires_grad(), dy, kName), x = save_if(dy.requires_grad(), x, kName),
       x_shape = x.shape(), options](const Variable& dweight, const BackwardContext& context) {
        Gradients gradients(2);
        if (context.needs(0)) gradients[0] = convolve(x.unpack(), dweight, options);
        if (context.needs(1)) gradients[1] = input_gradient(dy.unpack(), dweight, x_shape, options);
        return gradients;
      });
}

Variable input_gradient(const Variable& dy, const Variable& weight, const Shape& x_shape,
                        const Conv2dOptions& options) {
  constexpr const char* kName = "conv_backward_input";
  return record_twice(
      kName, conv_backward_input(dy.tensor(), weight.tensor(), x_shape, options), {dy, weight},
      [dy = save_if(weight.requires_grad(), dy, kName),
       weight = save_if(dy.requires_grad(), weight, kName), weight_shape = weight.shape(),
       options](const Variable& dx, const BackwardContext& context) {
        Gradients gradients(2);
        if (context.needs(0)) gradients[0] = convolve(dx, weight.unpack(), options);
        if (context.needs(1))
          gradients[1] = weight_gradient(dy.unpack(), dx, weight_shape, options);
        return gradients;
      });
}

Tensor tensor_or_none(const Variable& x) { return x.defined() ? x.tensor() : Tensor(); }

// The gradient of a bias: dy summed over all but its channels.
Variable bias_gradient(const Variable& dy, const BackwardContext& context) {
  const bool line = dy.ndim() == 3;
  if (context.create_graph()) return line ? sum(dy, {0, 2}) : sum(dy, {0, 2, 3});
  Tensor total = line ? sum(dy.tensor(), {0, 2}) : sum(dy.tensor(), {0, 2, 3});
  if (const std::optional<GradientSlot> slot = context.slot(2, dy.dtype())) {
    axpby_(slot->tensor, total, {.alpha = 1, .beta = slot->beta});
    return {};
  }
  return Variable(std::move(total));
}

Variable record_conv(const char* name, Tensor y, const Variable& x, const Variable& weight,
                     const Variable& bias, const Conv2dOptions& options) {
  return record_twice(
      name, std::move(y), {x, weight, bias},
      [x = save_if(weight.requires_grad(), x, name),
       weight = save_if(x.requires_grad(), weight, name), x_shape = x.shape(),
       weight_shape = weight.shape(), options](const Variable& dy, const BackwardContext& context) {
        Gradients gradients(3);
        if (context.needs(0)) gradients[0] = input_gradient(dy, weight.unpack(), x_shape, options);
        if (context.needs(1)) {
          if (const std::optional<GradientSlot> slot = context.slot(1, dy.dtype())) {
            conv_backward_weight_into(slot->tensor, slot->beta, dy.tensor(), x.unpack().tensor(),
                                      options);
          } else {
            gradients[1] = weight_gradient(dy, x.unpack(), weight_shape, options);
          }
        }
        if (context.needs(2)) gradients[2] = bias_gradient(dy, context);
        return gradients;
      });
}

}  // namespace

Variable conv1d(const Variable& x, const Variable& weight, const Variable& bias,
                const Conv1dOptions& options) {
  if (x.ndim() == 2) return select(conv1d(unsqueeze(x, 0), weight, bias, options), 0, 0);
  if (detail::autocasting())
    return detail::autocast(
        detail::autocast_of("conv1d"), [&](auto&... v) { return conv1d(v..., options); }, x, weight,
        bias);
  Tensor y = conv1d(x.tensor(), weight.tensor(), tensor_or_none(bias), options);
  return record_conv("conv1d", std::move(y), x, weight, bias, options.as_2d());
}

Variable conv2d(const Variable& x, const Variable& weight, const Variable& bias,
                const Conv2dOptions& options) {
  if (x.ndim() == 3) return select(conv2d(unsqueeze(x, 0), weight, bias, options), 0, 0);
  if (detail::autocasting())
    return detail::autocast(
        detail::autocast_of("conv2d"), [&](auto&... v) { return conv2d(v..., options); }, x, weight,
        bias);
  Tensor y = conv2d(x.tensor(), weight.tensor(), tensor_or_none(bias), options);
  return record_conv("conv2d", std::move(y), x, weight, bias, options);
}

Variable conv_transpose1d(const Variable& x, const Variable& weight, const Variable& bias,
                          const ConvTranspose1dOptions& options) {
  if (x.ndim() == 2) return select(conv_transpose1d(unsqueeze(x, 0), weight, bias, options), 0, 0);
  if (detail::autocasting())
    return detail::autocast(
        detail::autocast_of("conv_transpose1d"),
        [&](auto&... v) { return conv_transpose1d(v..., options); }, x, weight, bias);
  return composed::conv_transpose("conv_transpose1d", 3, x, weight, bias, options.as_2d(),
                                  input_gradient);
}

Variable conv_transpose2d(const Variable& x, const Variable& weight, const Variable& bias,
                          const ConvTranspose2dOptions& options) {
  if (x.ndim() == 3) return select(conv_transpose2d(unsqueeze(x, 0), weight, bias, options), 0, 0);
  if (detail::autocasting())
    return detail::autocast(
        detail::autocast_of("conv_transpose2d"),
        [&](auto&... v) { return conv_transpose2d(v..., options); }, x, weight, bias);
  return composed::conv_transpose("conv_transpose2d", 4, x, weight, bias, options, input_gradient);
}

}  // namespace tessera
