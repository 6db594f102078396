#include "tessera/autograd/function.h"
#include "tessera/autograd/ops/autocast_call.h"
#include "tessera/autograd/ops/elementwise.h"
#include "tessera/autograd/ops/internal.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/unary_list.h"

namespace tessera {

using detail::autocast;
using detail::autocasting;

namespace {

// What backward reads.
enum class Saves : std::uint8_t { kNothing, kOperand, kResult };

constexpr double kInverseSqrt2 = 0.70710678118654752440;
constexpr double kInverseSqrt2Pi = 0.39894228040143267794;
constexpr double kTwoOverSqrtPi = 1.12837916709551257390;
constexpr double kSqrtTwoOverPi = 0.79788456080286535588;
constexpr double kHalfSqrtPi = 0.88622692545275801365;
constexpr double kLog2 = 0.69314718055994530942;
constexpr double kLog10 = 2.30258509299404568402;
constexpr double kPi = 3.14159265358979323846;

// The derivatives of the functions in unary_list.h, under the functors' names. `gradient` is a function of dy and, as kSaves
// says, of the operand x or the result y; its operations are differentiable. `kernel`, where there is one, computes the same
// without a graph. A saved result lets the operand go. `again`, where there is one: the function is cheap enough to compute its
// result again where that is saved. `over_operand`, where there is one, is `kernel` written over x.
namespace derivatives {

struct Neg {
  static constexpr Saves kSaves = Saves::kNothing;
  static Variable gradient(const Variable& dy) { return neg(dy); }
};
struct Abs {
  static constexpr Saves kSaves = Saves::kOperand;
  static Variable gradient(const Variable& dy, const Variable& x) {
    return mul(dy, Variable(sign(x.tensor())));
  }
};
struct Square {
  static constexpr Saves kSaves = Saves::kOperand;
  static Variable gradient(const Variable& dy, const Variable& x) { return mul(mul(dy, 2), x); }
};
struct Reciprocal {
  static constexpr Saves kSaves = Saves::kResult;
  static Variable gradient(const Variable& dy, const Variable& y) {
    return neg(mul(dy, square(y)));
  }
};
struct Exp {
  static constexpr Saves kSaves = Saves::kResult;
  static Variable gradient(const Variable& dy, const Variable& y) { return mul(dy, y); }
};
struct Expm1 {
  static constexpr Saves kSaves = Saves::kResult;
  static Variable gradient(const Variable& dy, const Variable& y) { return mul(dy, add(y, 1)); }
};
struct Log {
  static constexpr Saves kSaves = Saves::kOperand;
  static Variable gradient(const Variable& dy, const Variable& x) { return div(dy, x); }
};
struct Exp2 {
  static constexpr Saves kSaves = Saves::kResult;
  static Variable gradient(const Variable& dy, const Variable& y) { return mul(mul(dy, kLog2), y); }
};
struct Log2 {
  static constexpr Saves kSaves = Saves::kOperand;
  static Variable gradient(const Variable& dy, const Variable& x) { return div(dy, mul(x, kLog2)); }
};
struct Log10 {
  static constexpr Saves kSaves = Saves::kOperand;
  static Variable gradient(const Variable& dy, const Variable& x) {
    return div(dy, mul(x, kLog10));
  }
};
struct Log1p {
  static constexpr Saves kSaves = Saves::kOperand;
  static Variable gradient(const Variable& dy, const Variable& x) { return div(dy, add(x, 1)); }
};
struct Sqrt {
  static constexpr Saves kSaves = Saves::kResult;
  static Variable gradient(const Variable& dy, const Variable& y) { return div(mul(dy, 0.5), y); }
};
struct Rsqrt {
  static constexpr Saves kSaves = Saves::kResult;
  static Variable gradient(const Variable& dy, const Variable& y) {
    return mul(mul(dy, -0.5), mul(y, square(y)));
  }
};
struct Sin {
  static constexpr Saves kSaves = Saves::kOperand;
  static Variable gradient(const Variable& dy, const Variable& x) { return mul(dy, cos(x)); }
};
struct Cos {
  static constexpr Saves kSaves = Saves::kOperand;
  static Variable gradient(const Variable& dy, const Variable& x) { return neg(mul(dy, sin(x))); }
};
struct Tan {
  static constexpr Saves kSaves = Saves::kResult;
  static Variable gradient(const Variable& dy, const Variable& y) {
    return mul(dy, add(square(y), 1));
  }
};
struct Asin {
  static constexpr Saves kSaves = Saves::kOperand;
  static Variable gradient(const Variable& dy, const Variable& x) {
    return mul(dy, rsqrt(sub(1, square(x))));
  }
};
struct Acos {
  static constexpr Saves kSaves = Saves::kOperand;
  static Variable gradient(const Variable& dy, const Variable& x) {
    return neg(Asin::gradient(dy, x));
  }
};
struct Atan {
  static constexpr Saves kSaves = Saves::kOperand;
  static Variable gradient(const Variable& dy, const Variable& x) {
    return div(dy, add(square(x), 1));
  }
};
struct Sinh {
  static constexpr Saves kSaves = Saves::kOperand;
  static Variable gradient(const Variable& dy, const Variable& x) { return mul(dy, cosh(x)); }
};
struct Cosh {
  static constexpr Saves kSaves = Saves::kOperand;
  static Variable gradient(const Variable& dy, const Variable& x) { return mul(dy, sinh(x)); }
};
struct Asinh {
  static constexpr Saves kSaves = Saves::kOperand;
  static Variable gradient(const Variable& dy, const Variable& x) {
    return mul(dy, rsqrt(add(square(x), 1)));
  }
};
struct Acosh {
  static constexpr Saves kSaves = Saves::kOperand;
  static Variable gradient(const Variable& dy, const Variable& x) {
    return mul(dy, rsqrt(sub(square(x), 1)));
  }
};
struct Atanh {
  static constexpr Saves kSaves = Saves::kOperand;
  static Variable gradient(const Variable& dy, const Variable& x) {
    return div(dy, sub(1, square(x)));
  }
};
// (cos(pi x) - sinc(x)) / x; near 0, where that cancels, its series.
struct Sinc {
  static constexpr Saves kSaves = Saves::kOperand;
  static Variable gradient(const Variable& dy, const Variable& x) {
    const Variable z = square(mul(x, kPi));
    const Variable series =
        sub(mul(sub(1.0 / 30, mul(sub(1.0 / 840, mul(z, 1.0 / 45360)), z)), z), 1.0 / 3);
    const Tensor near = lt(abs(x.tensor()), 0.02);
    const Variable away = where(near, 1, x);
    const Variable slope = div(sub(cos(mul(away, kPi)), sinc(away)), away);
    return mul(dy, where(near, mul(mul(x, kPi * kPi), series), slope));
  }
};
struct Erf {
  static constexpr Saves kSaves = Saves::kOperand;
  static Variable gradient(const Variable& dy, const Variable& x) {
    return mul(dy, mul(exp(neg(square(x))), kTwoOverSqrtPi));
  }
};
struct Erfc {
  static constexpr Saves kSaves = Saves::kOperand;
  static Variable gradient(const Variable& dy, const Variable& x) {
    return neg(Erf::gradient(dy, x));
  }
};
struct Erfinv {
  static constexpr Saves kSaves = Saves::kResult;
  static Variable gradient(const Variable& dy, const Variable& y) {
    return mul(dy, mul(exp(square(y)), kHalfSqrtPi));
  }
};
struct Lgamma {
  static constexpr Saves kSaves = Saves::kOperand;
  static Variable gradient(const Variable& dy, const Variable& x) { return mul(dy, digamma(x)); }
};
struct Digamma {
  static constexpr Saves kSaves = Saves::kOperand;
  static Variable gradient(const Variable& dy, const Variable& x) {
    return mul(dy, polygamma(1, x));
  }
};
struct Tanh {
  static constexpr Saves kSaves = Saves::kResult;
  static constexpr auto kernel = tanh_backward;
  static Variable gradient(const Variable& dy, const Variable& y) {
    return mul(dy, sub(1, square(y)));
  }
};
struct Sigmoid {
  static constexpr Saves kSaves = Saves::kResult;
  static constexpr auto kernel = sigmoid_backward;
  static Variable gradient(const Variable& dy, const Variable& y) {
    return mul(dy, mul(y, sub(1, y)));
  }
};
// The result is positive exactly where the operand is.
struct Relu {
  static constexpr Saves kSaves = Saves::kResult;
  static constexpr auto kernel = relu_backward;
  static Variable gradient(const Variable& dy, const Variable& y) {
    return where(le(y.tensor(), 0), 0, dy);  // as relu_backward at NaN
  }
};
struct Gelu {
  static constexpr Saves kSaves = Saves::kOperand;
  static constexpr auto kernel = gelu_backward;
  static constexpr auto over_operand = gelu_backward_;
  static Tensor again(const Tensor& x) { return gelu(x); }
  static Variable gradient(const Variable& dy, const Variable& x) {
    const Variable cdf = mul(add(erf(mul(x, kInverseSqrt2)), 1), 0.5);
    const Variable density = mul(exp(mul(square(x), -0.5)), kInverseSqrt2Pi);
    return mul(dy, add(cdf, mul(x, density)));
  }
};
struct GeluTanh {
  static constexpr Saves kSaves = Saves::kOperand;
  static constexpr auto kernel = gelu_tanh_backward;
  static constexpr auto over_operand = gelu_tanh_backward_;
  static Tensor again(const Tensor& x) { return gelu_tanh(x); }
  static Variable gradient(const Variable& dy, const Variable& x) {
    const Variable cube = mul(x, square(x));
    const Variable t = tanh(mul(add(x, mul(cube, 0.044715)), kSqrtTwoOverPi));
    const Variable inner = mul(add(mul(square(x), 3 * 0.044715), 1), kSqrtTwoOverPi);
    const Variable bend = mul(mul(x, sub(1, square(t))), inner);
    return mul(dy, mul(add(add(t, 1), bend), 0.5));
  }
};
struct Silu {
  static constexpr Saves kSaves = Saves::kOperand;
  static constexpr auto kernel = silu_backward;
  static constexpr auto over_operand = silu_backward_;
  static Tensor again(const Tensor& x) { return silu(x); }
  static Variable gradient(const Variable& dy, const Variable& x) {
    const Variable s = sigmoid(x);
    return mul(dy, add(s, mul(x, mul(s, sub(1, s)))));
  }
};
struct Softplus {
  static constexpr Saves kSaves = Saves::kOperand;
  static constexpr auto kernel = softplus_backward;
  static Variable gradient(const Variable& dy, const Variable& x) { return mul(dy, sigmoid(x)); }
};
// A step: the gradient is zero everywhere.
struct Step {
  static constexpr Saves kSaves = Saves::kNothing;
  static Variable gradient(const Variable&) { return {}; }
};
using Sign = Step;
using Floor = Step;
using Ceil = Step;
using Round = Step;
using Trunc = Step;
// A step is subtracted from x.
struct Frac {
  static constexpr Saves kSaves = Saves::kNothing;
  static Variable gradient(const Variable& dy) { return dy; }
};

}  // namespace derivatives

// The variable with the value y = f(x), whose derivative is D.
template <class D>
Variable recorded(const char* name, Tensor y, const Variable& x) {
  const auto backward = [](const Variable& dy, const BackwardContext& context, auto saved,
                           auto value) {
    if constexpr (requires { D::kernel; }) {
      if (!context.create_graph()) return Gradients{Variable(D::kernel(dy.tensor(), value()))};
    }
    return Gradients{D::gradient(dy, saved())};
  };
  if constexpr (D::kSaves == Saves::kNothing) {
    return record_twice(name, std::move(y), {x}, [](const Variable& dy, const BackwardContext&) {
      return Gradients{D::gradient(dy)};
    });
  } else if constexpr (D::kSaves == Saves::kOperand) {
    Variable result = record_twice(
        name, std::move(y), {x},
        [x = SavedVariable(x, name), backward](const Variable& dy, const BackwardContext& context) {
          if constexpr (requires { D::over_operand; }) {
            if (!context.create_graph() && detail::gives_memory(x, context, {RowPitch::kPacked})) {
              const Tensor memory = x.unpack().tensor();
              D::over_operand(memory, dy.tensor());
              return Gradients{Variable(memory)};
            }
          }
          return backward(
              dy, context, [&] { return x.unpack(); }, [&] { return x.unpack().tensor(); });
        });
    if constexpr (requires { D::again; }) {
      if (result.requires_grad())
        set_recipe(result, [x = SavedVariable(x, name)] { return D::again(x.unpack().tensor()); });
    }
    return result;
  } else {
    return record_twice(
        name, y, {x},
        [y = SavedTensor(y, name), backward](const Variable& dy, const BackwardContext& context) {
          return backward(
              dy, context, [&] { return context.output(0, y.unpack()); },
              [&] { return y.unpack(); });
        });
  }
}

}  // namespace

#define TESSERA_DEFINE(function, Functor, ...)                                                 \
  Variable function(const Variable& x) {                                                       \
    if constexpr (constexpr auto operands = autocast_class(#function); operands.has_value()) { \
      if (autocasting())                                                                       \
        return autocast(                                                                       \
            *operands, [](auto& v) { return function(v); }, x);                                \
    }                                                                                          \
    return recorded<derivatives::Functor>(#function, function(x.tensor()), x);                 \
  }

TESSERA_UNARY_FUNCTIONS(TESSERA_DEFINE)

#undef TESSERA_DEFINE

Variable detail::activated(ActivationKind activation, const Variable& x, const Tensor& y) {
  switch (activation) {
    case ActivationKind::kNone:
      return x;
    case ActivationKind::kRelu:
      return recorded<derivatives::Relu>("relu", y, x);
    case ActivationKind::kGelu:
      return recorded<derivatives::Gelu>("gelu", y, x);
    case ActivationKind::kGeluTanh:
      return recorded<derivatives::GeluTanh>("gelu_tanh", y, x);
    case ActivationKind::kSilu:
      return recorded<derivatives::Silu>("silu", y, x);
  }
  return {};
}

Variable deg2rad(const Variable& x) {
  return record_twice(
      "deg2rad", deg2rad(x.tensor()), {x},
      [](const Variable& dy, const BackwardContext&) { return Gradients{deg2rad(dy)}; });
}

Variable rad2deg(const Variable& x) {
  return record_twice(
      "rad2deg", rad2deg(x.tensor()), {x},
      [](const Variable& dy, const BackwardContext&) { return Gradients{rad2deg(dy)}; });
}

Variable nan_to_num(const Variable& x, const NanToNumOptions& options) {
  return record_twice(
      "nan_to_num", nan_to_num(x.tensor(), options), {x},
      [x = SavedTensor(x, "nan_to_num")](const Variable& dy, const BackwardContext&) {
        return Gradients{where(isfinite(x.unpack()), dy, 0)};
      });
}

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
