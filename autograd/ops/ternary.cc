#include <optional>

#include "tessera/autograd/ops/autocast_call.h"
#include "tessera/autograd/ops/elementwise.h"
#include "tessera/autograd/ops/internal.h"

namespace tessera {

using detail::Kept;
using detail::Like;
using detail::requires_grad;
using detail::save_if;

namespace {

// 16 bits as f32: so a gradient, and its sum over what was broadcast, are rounded once, when they
// are fitted.
Variable widened(const Variable& x) { return is_half(x.dtype()) ? cast(x, DType::kF32) : x; }

Variable scaled(const Variable& dy, double factor) {
  return factor == 1 ? widened(dy) : mul(widened(dy), factor);
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
        if (context.needs(1)) gradients[1] = b_like.fit(mul(scaled(dy, factor), c.unpack()));
        if (context.needs(2)) gradients[2] = c_like.fit(mul(scaled(dy, factor), b.unpack()));
        return gradients;
      });
}

// d(b / c)/dc = -(b / c) / c.
Variable addcdiv(const Variable& a, const Variable& b, const Variable& c, double factor) {
  if (detail::autocasting())
    return detail::autocast(
        detail::autocast_of("addcdiv"), [factor](auto&... v) { return addcdiv(v..., factor); }, a,
        b, c);
  return record_twice(
      "addcdiv", addcdiv(a.tensor(), b.tensor(), c.tensor(), factor), {a, b, c},
      [a_like = Like(a), b_like = Like(b), c_like = Like(c), factor,
       b = save_if(c.requires_grad(), b, "addcdiv"),
       c = save_if(b.requires_grad() || c.requires_grad(), c, "addcdiv")](
          const Variable& dy, const BackwardContext& context) {
        Gradients gradients(3);
        if (context.needs(0)) gradients[0] = a_like.fit(dy);
        if (!context.needs(1) && !context.needs(2)) return gradients;
        const Variable db = div(scaled(dy, factor), c.unpack());
        if (context.needs(1)) gradients[1] = b_like.fit(db);
        if (context.needs(2))
          gradients[2] = c_like.fit(neg(mul(db, div(widened(b.unpack()), widened(c.unpack())))));
        return gradients;
      });
}

}  // namespace tessera
