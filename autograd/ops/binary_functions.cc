// Functions of two variables.
#include <cmath>

#include "tessera/autograd/function.h"
#include "tessera/autograd/ops/autocast_call.h"
#include "tessera/autograd/ops/elementwise.h"
#include "tessera/autograd/ops/internal.h"
#include "tessera/autograd/ops/record_binary.h"
#include "tessera/tensor/ops/create.h"

namespace tessera {

using detail::Kept;
using detail::record_binary;
using detail::requires_grad;

namespace {

constexpr double kLog2 = 0.69314718055994530942;

bool is_nan(const TensorOrNumber& x) { return std::isnan(x.number()); }

// Where fmax or fmin of a and b is a.
Tensor first_chosen(const TensorOrNumber& a, const TensorOrNumber& b, bool larger) {
  const Tensor chosen = larger ? ge(a, b) : le(a, b);
  return b.is_tensor() ? logical_or(chosen, isnan(b.tensor())) : logical_or(chosen, is_nan(b));
}

template <bool larger>
Variable extreme(const char* name, Tensor y, const VariableOrNumber& a, const VariableOrNumber& b) {
  return record_binary(
      name, std::move(y), a, b,
      [a = Kept(true, a, name), b = Kept(true, b, name)](int i, const Variable& dy) {
        const VariableOrNumber first = a.get(), second = b.get();
        const Tensor chosen = first_chosen(first.plain(), second.plain(), larger);
        const Tensor equal = eq(first.plain(), second.plain());
        const Variable whole = i == 0 ? where(chosen, dy, 0) : where(chosen, 0, dy);
        return where(equal, mul(dy, 0.5), whole);
      });
}

// 1 / (1 + exp(scale (b - a))), of which one may be a number.
Variable share_of_first(const VariableOrNumber& a, const VariableOrNumber& b, double scale) {
  return sigmoid(mul(sub(a, b), scale));
}

template <class Function>
Variable log_of_sum(const char* name, const Function& function, const VariableOrNumber& a,
                    const VariableOrNumber& b, double scale) {
  return record_binary(
      name, function(a.plain(), b.plain()), a, b,
      [a = Kept(true, a, name), b = Kept(true, b, name), scale](int i, const Variable& dy) {
        const VariableOrNumber first = a.get(), second = b.get();
        return mul(dy, i == 0 ? share_of_first(first, second, scale)
                              : share_of_first(second, first, scale));
      });
}

// dy across / r^2, or -dy up / r^2 for i = 1; 0 where r is 0. Two quotients, because the square of r
// may overflow or underflow.
Variable slope_of_angle(int i, const Variable& dy, const VariableOrNumber& up,
                        const VariableOrNumber& across) {
  const Tensor nowhere = eq(hypot(up.plain(), across.plain()), 0);
  // One operand is taken as 1 there, so that the second derivative is not NaN.
  const Variable r = up.is_variable() ? hypot(where(nowhere, 1, up), across)
                                      : hypot(up, where(nowhere, 1, across));
  const Variable slope = mul(div(dy, r), div(i == 0 ? across : up, r));
  return where(nowhere, 0, i == 0 ? slope : neg(slope));
}

}  // namespace

Variable fmax(const VariableOrNumber& a, const VariableOrNumber& b) {
  return extreme<true>("fmax", fmax(a.plain(), b.plain()), a, b);
}

Variable fmin(const VariableOrNumber& a, const VariableOrNumber& b) {
  return extreme<false>("fmin", fmin(a.plain(), b.plain()), a, b);
}

Variable atan2(const VariableOrNumber& a, const VariableOrNumber& b) {
  if (detail::autocasting())
    return detail::autocast_pair(
        detail::autocast_of("atan2"),
        [](const VariableOrNumber& x, const VariableOrNumber& y) { return atan2(x, y); }, a, b);
  return record_binary(
      "atan2", atan2(a.plain(), b.plain()), a, b,
      [a = Kept(true, a, "atan2"), b = Kept(true, b, "atan2")](int i, const Variable& dy) {
        return slope_of_angle(i, dy, a.get(), b.get());
      });
}

Variable hypot(const VariableOrNumber& a, const VariableOrNumber& b) {
  return record_binary(
      "hypot", hypot(a.plain(), b.plain()), a, b,
      [a = Kept(true, a, "hypot"), b = Kept(true, b, "hypot")](int i, const Variable& dy) {
        const VariableOrNumber first = a.get(), second = b.get();
        return mul(dy, div(i == 0 ? first : second, hypot(first, second)));
      });
}

Variable copysign(const VariableOrNumber& a, const VariableOrNumber& b) {
  return record_binary(
      "copysign", copysign(a.plain(), b.plain()), a, b,
      [a = Kept(requires_grad(a), a, "copysign"), b = Kept(requires_grad(a), b, "copysign")](
          int i, const Variable& dy) {
        if (i == 1) return Variable();
        const Tensor sign_of_a = sign(a.get().variable().tensor());
        return mul(dy, Variable(mul(sign_of_a, copysign(ones_like(sign_of_a), b.plain()))));
      });
}

Variable logaddexp(const VariableOrNumber& a, const VariableOrNumber& b) {
  const auto function = [](const auto& x, const auto& y) { return logaddexp(x, y); };
  return log_of_sum("logaddexp", function, a, b, 1);
}

Variable logaddexp2(const VariableOrNumber& a, const VariableOrNumber& b) {
  const auto function = [](const auto& x, const auto& y) { return logaddexp2(x, y); };
  return log_of_sum("logaddexp2", function, a, b, kLog2);
}

Variable xlogy(const VariableOrNumber& a, const VariableOrNumber& b) {
  return record_binary(
      "xlogy", xlogy(a.plain(), b.plain()), a, b,
      [a = Kept(true, a, "xlogy"), b = Kept(true, b, "xlogy")](int i, const Variable& dy) {
        if (i == 1) return mul(dy, div(a.get(), b.get()));
        const VariableOrNumber second = b.get();
        const Variable slope = xlogy(dy, second);
        const Tensor zero = eq(a.plain(), 0);
        if (!second.is_variable()) {
          return second.plain().number() <= 0 ? where(zero, 0, slope) : slope;
        }
        return where(logical_and(zero, le(second.plain(), 0)), 0, slope);
      });
}

Variable polygamma(int n, const Variable& x) {
  return record_twice(
      "polygamma", polygamma(n, x.tensor()), {x},
      [n, x = SavedVariable(x, "polygamma")](const Variable& dy, const BackwardContext&) {
        return Gradients{mul(dy, polygamma(n + 1, x.unpack()))};
      });
}

}  // namespace tessera
