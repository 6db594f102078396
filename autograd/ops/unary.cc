#include "tessera/autograd/function.h"
#include "tessera/autograd/ops/autocast_call.h"
#include "tessera/autograd/ops/elementwise.h"
#include "tessera/autograd/ops/internal.h"
#include "tessera/tensor/check.h"

namespace tessera {

using detail::autocast;
using detail::autocast_of;
using detail::autocasting;

namespace {

// Derivatives as functions of the operand x or of the result y. `quick` returns tensors from one
// kernel; `composed` is its differentiable form, used with create_graph.
template <class Composed>
Variable of_operand(const char* name, Tensor y, const Variable& x, Composed composed) {
  return record_twice(
      name, std::move(y), {x},
      [x = SavedVariable(x, name), composed](const Variable& dy, const BackwardContext&) {
        return Gradients{composed(dy, x.unpack())};
      });
}

template <class Composed>
Variable of_operand(const char* name, Tensor y, const Variable& x,
                    Tensor (*quick)(const Tensor&, const Tensor&), Composed composed) {
  return record_twice(name, std::move(y), {x},
                      [x = SavedVariable(x, name), quick, composed](
                          const Variable& dy, const BackwardContext& context) {
                        if (context.create_graph()) return Gradients{composed(dy, x.unpack())};
                        return Gradients{Variable(quick(dy.tensor(), x.unpack().tensor()))};
                      });
}

// Keeping the result lets the operand go.
template <class Composed>
Variable of_result(const char* name, const Tensor& y, const Variable& x, Composed composed) {
  return record_twice(
      name, y, {x},
      [y = Saved(y, name), composed](const Variable& dy, const BackwardContext& context) {
        return Gradients{composed(dy, context.output(0, y.unpack()))};
      });
}

template <class Composed>
Variable of_result(const char* name, const Tensor& y, const Variable& x,
                   Tensor (*quick)(const Tensor&, const Tensor&), Composed composed) {
  return record_twice(
      name, y, {x},
      [y = Saved(y, name), quick, composed](const Variable& dy, const BackwardContext& context) {
        if (context.create_graph()) return Gradients{composed(dy, context.output(0, y.unpack()))};
        return Gradients{Variable(quick(dy.tensor(), y.unpack()))};
      });
}

Variable step(const char* name, Tensor y, const Variable& x) {
  return record_twice(name, std::move(y), {x},
                      [](const Variable&, const BackwardContext&) { return Gradients(1); });
}

constexpr double kInverseSqrt2 = 0.70710678118654752440;
constexpr double kInverseSqrt2Pi = 0.39894228040143267794;
constexpr double kTwoOverSqrtPi = 1.12837916709551257390;
constexpr double kSqrtTwoOverPi = 0.79788456080286535588;

}  // namespace

Variable neg(const Variable& x) {
  return record_twice("neg", neg(x.tensor()), {x}, [](const Variable& dy, const BackwardContext&) {
    return Gradients{neg(dy)};
  });
}

Variable abs(const Variable& x) {
  return of_operand("abs", abs(x.tensor()), x, [](const Variable& dy, const Variable& x) {
    return mul(dy, Variable(sign(x.tensor())));
  });
}

Variable square(const Variable& x) {
  if (autocasting())
    return autocast(
        autocast_of("square"), [](auto& v) { return square(v); }, x);
  return of_operand("square", square(x.tensor()), x,
                    [](const Variable& dy, const Variable& x) { return mul(mul(dy, 2), x); });
}

Variable reciprocal(const Variable& x) {
  if (autocasting())
    return autocast(
        autocast_of("reciprocal"), [](auto& v) { return reciprocal(v); }, x);
  return of_result("reciprocal", reciprocal(x.tensor()), x,
                   [](const Variable& dy, const Variable& y) { return neg(mul(dy, square(y))); });
}

Variable exp(const Variable& x) {
  if (autocasting())
    return autocast(
        autocast_of("exp"), [](auto& v) { return exp(v); }, x);
  return of_result("exp", exp(x.tensor()), x,
                   [](const Variable& dy, const Variable& y) { return mul(dy, y); });
}

Variable expm1(const Variable& x) {
  if (autocasting())
    return autocast(
        autocast_of("expm1"), [](auto& v) { return expm1(v); }, x);
  return of_result("expm1", expm1(x.tensor()), x,
                   [](const Variable& dy, const Variable& y) { return mul(dy, add(y, 1)); });
}

Variable log(const Variable& x) {
  if (autocasting())
    return autocast(
        autocast_of("log"), [](auto& v) { return log(v); }, x);
  return of_operand("log", log(x.tensor()), x,
                    [](const Variable& dy, const Variable& x) { return div(dy, x); });
}

Variable log1p(const Variable& x) {
  if (autocasting())
    return autocast(
        autocast_of("log1p"), [](auto& v) { return log1p(v); }, x);
  return of_operand("log1p", log1p(x.tensor()), x,
                    [](const Variable& dy, const Variable& x) { return div(dy, add(x, 1)); });
}

Variable sqrt(const Variable& x) {
  return of_result("sqrt", sqrt(x.tensor()), x,
                   [](const Variable& dy, const Variable& y) { return div(mul(dy, 0.5), y); });
}

Variable rsqrt(const Variable& x) {
  if (autocasting())
    return autocast(
        autocast_of("rsqrt"), [](auto& v) { return rsqrt(v); }, x);
  return of_result("rsqrt", rsqrt(x.tensor()), x, [](const Variable& dy, const Variable& y) {
    return mul(mul(dy, -0.5), mul(y, square(y)));
  });
}

Variable sin(const Variable& x) {
  return of_operand("sin", sin(x.tensor()), x,
                    [](const Variable& dy, const Variable& x) { return mul(dy, cos(x)); });
}

Variable cos(const Variable& x) {
  return of_operand("cos", cos(x.tensor()), x,
                    [](const Variable& dy, const Variable& x) { return neg(mul(dy, sin(x))); });
}

Variable erf(const Variable& x) {
  return of_operand("erf", erf(x.tensor()), x, [](const Variable& dy, const Variable& x) {
    return mul(dy, mul(exp(neg(square(x))), kTwoOverSqrtPi));
  });
}

Variable tanh(const Variable& x) {
  return of_result(
      "tanh", tanh(x.tensor()), x, tanh_backward,
      [](const Variable& dy, const Variable& y) { return mul(dy, sub(1, square(y))); });
}

Variable sigmoid(const Variable& x) {
  return of_result(
      "sigmoid", sigmoid(x.tensor()), x, sigmoid_backward,
      [](const Variable& dy, const Variable& y) { return mul(dy, mul(y, sub(1, y))); });
}

namespace {

Variable relu_with(const Tensor& y, const Variable& x) {
  // The result is positive exactly where the operand is.
  return of_result("relu", y, x, relu_backward, [](const Variable& dy, const Variable& y) {
    return where(le(y.tensor(), 0), 0, dy);  // as relu_backward at NaN
  });
}

Variable gelu_with(const Tensor& y, const Variable& x) {
  return of_operand("gelu", y, x, gelu_backward, [](const Variable& dy, const Variable& x) {
    const Variable cdf = mul(add(erf(mul(x, kInverseSqrt2)), 1), 0.5);
    const Variable density = mul(exp(mul(square(x), -0.5)), kInverseSqrt2Pi);
    return mul(dy, add(cdf, mul(x, density)));
  });
}

Variable gelu_tanh_with(const Tensor& y, const Variable& x) {
  return of_operand(
      "gelu_tanh", y, x, gelu_tanh_backward, [](const Variable& dy, const Variable& x) {
        const Variable cube = mul(x, square(x));
        const Variable t = tanh(mul(add(x, mul(cube, 0.044715)), kSqrtTwoOverPi));
        const Variable inner = mul(add(mul(square(x), 3 * 0.044715), 1), kSqrtTwoOverPi);
        const Variable bend = mul(mul(x, sub(1, square(t))), inner);
        return mul(dy, mul(add(add(t, 1), bend), 0.5));
      });
}

Variable silu_with(const Tensor& y, const Variable& x) {
  return of_operand("silu", y, x, silu_backward, [](const Variable& dy, const Variable& x) {
    const Variable s = sigmoid(x);
    return mul(dy, add(s, mul(x, mul(s, sub(1, s)))));
  });
}

}  // namespace

Variable relu(const Variable& x) { return relu_with(relu(x.tensor()), x); }
Variable gelu(const Variable& x) { return gelu_with(gelu(x.tensor()), x); }
Variable gelu_tanh(const Variable& x) { return gelu_tanh_with(gelu_tanh(x.tensor()), x); }
Variable silu(const Variable& x) { return silu_with(silu(x.tensor()), x); }

Variable detail::activated(Activation activation, const Variable& x, const Tensor& y) {
  switch (activation) {
    case Activation::kNone:
      return x;
    case Activation::kRelu:
      return relu_with(y, x);
    case Activation::kGelu:
      return gelu_with(y, x);
    case Activation::kGeluTanh:
      return gelu_tanh_with(y, x);
    case Activation::kSilu:
      return silu_with(y, x);
  }
  return {};
}

Variable softplus(const Variable& x) {
  if (autocasting())
    return autocast(
        autocast_of("softplus"), [](auto& v) { return softplus(v); }, x);
  return of_operand("softplus", softplus(x.tensor()), x, softplus_backward,
                    [](const Variable& dy, const Variable& x) { return mul(dy, sigmoid(x)); });
}

Variable sign(const Variable& x) { return step("sign", sign(x.tensor()), x); }
Variable floor(const Variable& x) { return step("floor", floor(x.tensor()), x); }
Variable ceil(const Variable& x) { return step("ceil", ceil(x.tensor()), x); }
Variable round(const Variable& x) { return step("round", round(x.tensor()), x); }
Variable trunc(const Variable& x) { return step("trunc", trunc(x.tensor()), x); }

Variable cast(const Variable& x, DType dtype) {
  TESSERA_CHECK(is_floating(dtype), "cast", "{} carries no gradient; cast the tensor instead",
                dtype_name(dtype));
  if (dtype == x.dtype()) return x;
  return record_twice("cast", cast(x.tensor(), dtype), {x},
                      [from = x.dtype()](const Variable& dy, const BackwardContext&) {
                        return Gradients{cast(dy, from)};
                      });
}

Variable clone(const Variable& x) {
  return record_twice("clone", clone(x.tensor()), {x},
                      [](const Variable& dy, const BackwardContext&) { return Gradients{dy}; });
}

}  // namespace tessera
