#include <cmath>
#include <optional>

#include "tessera/autograd/ops/autocast_call.h"
#include "tessera/autograd/ops/clamp_bound.h"
#include "tessera/autograd/ops/elementwise.h"
#include "tessera/autograd/ops/internal.h"
#include "tessera/tensor/ops/create.h"

namespace tessera {

using detail::Kept;
using detail::Like;
using detail::requires_grad;
using detail::save_if;

namespace {

// 16 bits as f32: so a gradient, and its sum over what was broadcast, are rounded once, when they
// are fitted.
Variable widened(const Variable& x) { return is_half(x.dtype()) ? cast(x, DType::kF32) : x; }

// What can be added to x without a change: -0, because 0 would change -0.
Variable nothing(const Variable& x) {
  return Variable(full({}, -0.0, {.dtype = x.dtype(), .device = x.device()}));
}

// factor dy x for the operand `like`, in one pass.
Variable scaled_product(const Like& like, const Variable& dy, const Variable& x, double factor) {
  const Variable wide = like.sums(dy) ? widened(dy) : dy;
  return like.fit(addcmul(nothing(wide), wide, x, factor));
}

// dy (1 - weight).
Variable toward_first(const Variable& dy, const VariableOrNumber& weight) {
  if (weight.is_variable()) return mul(dy, sub(1, weight.variable()));
  return mul(dy, 1 - weight.plain().number());
}

std::optional<Like> like(const VariableOrNumber& x) {
  return x.is_variable() ? std::optional<Like>(x.variable()) : std::nullopt;
}

Variable variable_or_none(const VariableOrNumber& x) {
  return x.is_variable() ? x.variable() : Variable();
}

}  // namespace

Variable lerp(const Variable& a, const VariableOrNumber& b, const VariableOrNumber& weight) {
  const Variable other = variable_or_none(b), share = variable_or_none(weight);
  return record_twice(
      "lerp", lerp(a.tensor(), b.plain(), weight.plain()), {a, other, share},
      [a_like = Like(a), b_like = like(b), weight_like = like(weight),
       a = save_if(share.requires_grad(), a, "lerp"), b = Kept(share.requires_grad(), b, "lerp"),
       weight = Kept(a.requires_grad() || requires_grad(b), weight, "lerp")](
          const Variable& dy, const BackwardContext& context) {
        Gradients gradients(3);
        if (context.needs(0)) gradients[0] = a_like.fit(toward_first(dy, weight.get()));
        if (context.needs(1)) gradients[1] = b_like->fit(mul(dy, weight.get()));
        if (context.needs(2)) gradients[2] = weight_like->fit(mul(dy, sub(b.get(), a.unpack())));
        return gradients;
      });
}

Variable addcmul(const Variable& a, const Variable& b, const Variable& c, double factor) {
  if (detail::autocasting())
    return detail::autocast(
        detail::autocast_of("addcmul"), [factor](auto&... v) { return addcmul(v..., factor); }, a,
        b, c);
  return record_twice(
      "addcmul", addcmul(a.tensor(), b.tensor(), c.tensor(), factor), {a, b, c},
      [a_like = Like(a), b_like = Like(b), c_like = Like(c), factor,
       b = save_if(c.requires_grad(), b, "addcmul"), c = save_if(b.requires_grad(), c, "addcmul")](
          const Variable& dy, const BackwardContext& context) {
        Gradients gradients(3);
        if (context.needs(0)) gradients[0] = a_like.fit(dy);
        if (context.needs(1)) gradients[1] = scaled_product(b_like, dy, c.unpack(), factor);
        if (context.needs(2)) gradients[2] = scaled_product(c_like, dy, b.unpack(), factor);
        return gradients;
      });
}

// d(b / c)/dc = -(b / c) / c.
Variable addcdiv(const Variable& a, const Variable& b, const Variable& c, double factor) {
  if (detail::autocasting())
    return detail::autocast(
        detail::autocast_of("addcdiv"), [factor](auto&... v) { return addcdiv(v..., factor); }, a,
        b, c);
  return record_twice("addcdiv", addcdiv(a.tensor(), b.tensor(), c.tensor(), factor), {a, b, c},
                      [a_like = Like(a), b_like = Like(b), c_like = Like(c), factor,
                       b = save_if(c.requires_grad(), b, "addcdiv"),
                       c = save_if(b.requires_grad() || c.requires_grad(), c, "addcdiv")](
                          const Variable& dy, const BackwardContext& context) {
                        Gradients gradients(3);
                        if (context.needs(0)) gradients[0] = a_like.fit(dy);
                        if (!context.needs(1) && !context.needs(2)) return gradients;
                        const Variable wide = widened(dy), none = nothing(wide);
                        const Variable db = addcdiv(none, wide, c.unpack(), factor);
                        if (context.needs(1)) gradients[1] = b_like.fit(db);
                        if (context.needs(2)) {
                          // A number, however wide, and integers leave a quotient with other operands in 16 bits.
                          const Variable &over = b.unpack(), &under = c.unpack();
                          const bool widens = is_half(over.dtype()) && over.ndim() > 0;
                          const Variable quotient =
                              div(widened(over), widens ? under : widened(under));
                          gradients[2] = c_like.fit(addcmul(none, db, quotient, -1));
                        }
                        return gradients;
                      });
}

Variable clamp(const Variable& x, double low, double high) {
  const DType dtype = x.dtype();
  return record_twice(
      "clamp", clamp(x.tensor(), detail::clamp_bound(low, dtype), detail::clamp_bound(high, dtype)),
      {x}, [x = SavedTensor(x, "clamp"), low, high](const Variable& dy, const BackwardContext&) {
        const Tensor inside = logical_and(ge(x.unpack(), low), le(x.unpack(), high));
        return Gradients{where(inside, dy, 0)};
      });
}

namespace {

// Where the operands of clamp got their values: a bound that equals x shares with it where low < high, unless it is a
// number. Where low > high, all go to high.
struct Clamped {
  const Tensor& x;
  const VariableOrNumber& low;
  const VariableOrNumber& high;

  Tensor equals(const VariableOrNumber& bound) const {
    const Tensor equal = eq(x, bound.plain());
    return bound.is_variable() ? logical_and(equal, lt(low.plain(), high.plain()))
                               : zeros_like(equal);
  }
  Variable shared(const Tensor& all, const Tensor& half, const Variable& dy) const {
    return where(all, dy, where(half, mul(dy, 0.5), 0));
  }
  Variable to_x(const Variable& dy) const {
    const Tensor outside = logical_or(lt(x, low.plain()), gt(x, high.plain()));
    const Tensor half = logical_or(equals(low), equals(high));
    return where(outside, 0, where(half, mul(dy, 0.5), dy));
  }
  Variable to_low(const Variable& dy) const {
    const Tensor below = logical_and(lt(x, low.plain()), le(low.plain(), high.plain()));
    return shared(below, equals(low), dy);
  }
  Variable to_high(const Variable& dy) const {
    const Tensor above = logical_and(gt(x, high.plain()), le(low.plain(), high.plain()));
    return shared(logical_or(above, gt(low.plain(), high.plain())), equals(high), dy);
  }
};

}  // namespace

Variable clamp(const Variable& x, const VariableOrNumber& low, const VariableOrNumber& high) {
  return record_twice(
      "clamp", clamp(x.tensor(), low.plain(), high.plain()),
      {x, variable_or_none(low), variable_or_none(high)},
      [x_like = Like(x), low_like = like(low), high_like = like(high), x = SavedTensor(x, "clamp"),
       low = Kept(true, low, "clamp"),
       high = Kept(true, high, "clamp")](const Variable& dy, const BackwardContext& context) {
        const VariableOrNumber lower = low.get(), upper = high.get();
        const Clamped clamped{x.unpack(), lower, upper};
        Gradients gradients(3);
        if (context.needs(0)) gradients[0] = x_like.fit(clamped.to_x(dy));
        if (context.needs(1)) gradients[1] = low_like->fit(clamped.to_low(dy));
        if (context.needs(2)) gradients[2] = high_like->fit(clamped.to_high(dy));
        return gradients;
      });
}

}  // namespace tessera
