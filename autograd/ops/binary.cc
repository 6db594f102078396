#include <cmath>

#include "tessera/autograd/function.h"
#include "tessera/autograd/ops/autocast_call.h"
#include "tessera/autograd/ops/elementwise.h"
#include "tessera/autograd/ops/internal.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/autograd/ops/record_binary.h"

namespace tessera {

using detail::Kept;
using detail::record_binary;
using detail::requires_grad;

namespace {

// The share of the gradient that an operand of maximum or minimum gets: 0 where the other was
// chosen, 1/2 where both were, else 1. So NaN in either passes the gradient on to both.
Variable share(const Tensor& mine, const TensorOrNumber& other, bool larger, const Variable& dy) {
  const Tensor passed_over = larger ? lt(mine, other) : gt(mine, other);
  return where(passed_over, 0, where(eq(mine, other), mul(dy, 0.5), dy));
}

template <bool larger>
Variable extreme(const char* name, Tensor y, const VariableOrNumber& a, const VariableOrNumber& b) {
  return record_binary(
      name, std::move(y), a, b,
      [a = Kept(true, a, name), b = Kept(true, b, name)](int i, const Variable& dy) {
        const TensorOrNumber mine = i == 0 ? a.plain() : b.plain(),
                             other = i == 0 ? b.plain() : a.plain();
        return share(mine.tensor(), other, larger, dy);
      });
}

}  // namespace

Variable add(const VariableOrNumber& a, const VariableOrNumber& b) {
  return record_binary("add", add(a.plain(), b.plain()), a, b,
                       [](int, const Variable& dy) { return dy; });
}

Variable sub(const VariableOrNumber& a, const VariableOrNumber& b) {
  return record_binary("sub", sub(a.plain(), b.plain()), a, b,
                       [](int i, const Variable& dy) { return i == 0 ? dy : neg(dy); });
}

Variable add(const VariableOrNumber& a, const VariableOrNumber& b, double alpha) {
  return record_binary("add", add(a.plain(), b.plain(), alpha), a, b,
                       [alpha](int i, const Variable& dy) { return i == 0 ? dy : mul(dy, alpha); });
}

Variable sub(const VariableOrNumber& a, const VariableOrNumber& b, double alpha) {
  return record_binary(
      "sub", sub(a.plain(), b.plain(), alpha), a, b,
      [alpha](int i, const Variable& dy) { return i == 0 ? dy : mul(dy, -alpha); });
}

Variable mul(const VariableOrNumber& a, const VariableOrNumber& b) {
  return record_binary(
      "mul", mul(a.plain(), b.plain()), a, b,
      [a = Kept(requires_grad(b), a, "mul"), b = Kept(requires_grad(a), b, "mul")](
          int i, const Variable& dy) { return mul(dy, i == 0 ? b.get() : a.get()); });
}

Variable div(const VariableOrNumber& a, const VariableOrNumber& b) {
  return record_binary(
      "div", div(a.plain(), b.plain()), a, b,
      [a = Kept(requires_grad(b), a, "div"), b = Kept(true, b, "div")](int i, const Variable& dy) {
        const Variable da = div(dy, b.get());
        return i == 0 ? da : neg(mul(da, div(a.get(), b.get().variable())));
      });
}

Variable div(const VariableOrNumber& a, const VariableOrNumber& b, RoundingMode rounding_mode) {
  return record_binary("div", div(a.plain(), b.plain(), rounding_mode), a, b,
                       [](int, const Variable&) { return Variable(); });
}

Variable remainder(const VariableOrNumber& a, const VariableOrNumber& b) {
  return record_binary("remainder", remainder(a.plain(), b.plain()), a, b,
                       [a = Kept(requires_grad(b), a, "remainder"),
                        b = Kept(requires_grad(b), b, "remainder")](int i, const Variable& dy) {
                         if (i == 0) return dy;
                         return neg(mul(dy, Variable(floor_divide(a.plain(), b.plain()))));
                       });
}

Variable fmod(const VariableOrNumber& a, const VariableOrNumber& b) {
  return record_binary(
      "fmod", fmod(a.plain(), b.plain()), a, b,
      [a = Kept(requires_grad(b), a, "fmod"), b = Kept(requires_grad(b), b, "fmod")](
          int i, const Variable& dy) {
        if (i == 0) return dy;
        return neg(mul(dy, Variable(div(a.plain(), b.plain(), RoundingMode::kTrunc))));
      });
}

namespace {

// b a^(b-1) dy, and 0 where b is 0, also for a = 0.
Variable power_for_base(const VariableOrNumber& a, const VariableOrNumber& b, const Variable& dy) {
  if (!b.is_variable()) {
    const double n = b.plain().number();
    return n == 0 ? mul(dy, 0) : mul(mul(dy, n), pow(a, n - 1));
  }
  const Variable& n = b.variable();
  return where(eq(n.tensor(), 0), 0, mul(dy, mul(pow(a, sub(n, 1)), n)));
}

// a^b log(a) dy, and 0 where a is 0 and b is not negative.
Variable power_for_exponent(const VariableOrNumber& a, const Variable& b, const Variable& dy) {
  const Tensor not_negative = ge(b.tensor(), 0);
  if (!a.is_variable()) {
    const double base = a.plain().number();
    const Variable slope = mul(dy, mul(pow(a, b), std::log(base)));
    return base == 0 ? where(not_negative, 0, slope) : slope;
  }
  const Variable slope = mul(dy, mul(pow(a, b), log(a.variable())));
  return where(logical_and(eq(a.plain(), 0), not_negative), 0, slope);
}

}  // namespace

Variable pow(const VariableOrNumber& a, const VariableOrNumber& b) {
  if (detail::autocasting())
    return detail::autocast_pair(
        detail::autocast_of("pow"),
        [](const VariableOrNumber& x, const VariableOrNumber& y) { return pow(x, y); }, a, b);
  return record_binary(
      "pow", pow(a.plain(), b.plain()), a, b,
      [a = Kept(true, a, "pow"), b = Kept(true, b, "pow")](int i, const Variable& dy) {
        return i == 0 ? power_for_base(a.get(), b.get(), dy)
                      : power_for_exponent(a.get(), b.get().variable(), dy);
      });
}

Variable maximum(const VariableOrNumber& a, const VariableOrNumber& b) {
  return extreme<true>("maximum", maximum(a.plain(), b.plain()), a, b);
}

Variable minimum(const VariableOrNumber& a, const VariableOrNumber& b) {
  return extreme<false>("minimum", minimum(a.plain(), b.plain()), a, b);
}

// A tensor as the bound shares the gradient as in maximum and minimum.
Variable clamp_min(const Variable& x, const VariableOrNumber& low) {
  Tensor y = clamp_min(x.tensor(), low.plain());
  if (low.is_variable()) return extreme<true>("clamp_min", std::move(y), x, low);
  return record_twice("clamp_min", std::move(y), {x},
                      [x = SavedTensor(x, "clamp_min"), low = low.plain().number()](
                          const Variable& dy, const BackwardContext&) {
                        return Gradients{where(ge(x.unpack(), low), dy, 0)};
                      });
}

Variable clamp_max(const Variable& x, const VariableOrNumber& high) {
  Tensor y = clamp_max(x.tensor(), high.plain());
  if (high.is_variable()) return extreme<false>("clamp_max", std::move(y), x, high);
  return record_twice("clamp_max", std::move(y), {x},
                      [x = SavedTensor(x, "clamp_max"), high = high.plain().number()](
                          const Variable& dy, const BackwardContext&) {
                        return Gradients{where(le(x.unpack(), high), dy, 0)};
                      });
}

Variable where(const Tensor& condition, const VariableOrNumber& a, const VariableOrNumber& b) {
  return record_binary("where", where(condition, a.plain(), b.plain()), a, b,
                       [condition = SavedTensor(condition, "where")](int i, const Variable& dy) {
                         return i == 0 ? where(condition.unpack(), dy, 0)
                                       : where(condition.unpack(), 0, dy);
                       });
}

}  // namespace tessera
