#include "tessera/autograd/autocast_call.h"
#include "tessera/autograd/ops_elementwise.h"

namespace tessera {

// Made of the others: each is one kernel more than a derivative of its own would need, and exact to
// the same rounding.

Variable lerp(const Variable& a, const VariableOrNumber& b, const VariableOrNumber& weight) {
  return add(a, mul(weight, sub(b, a)));
}

Variable addcmul(const Variable& a, const Variable& b, const Variable& c, double factor) {
  if (detail::autocasting())
    return detail::autocast(
        detail::autocast_of("addcmul"), [factor](auto&... v) { return addcmul(v..., factor); }, a,
        b, c);
  const Variable product = mul(b, c);
  return add(a, factor == 1 ? product : mul(product, factor));
}

Variable addcdiv(const Variable& a, const Variable& b, const Variable& c, double factor) {
  if (detail::autocasting())
    return detail::autocast(
        detail::autocast_of("addcdiv"), [factor](auto&... v) { return addcdiv(v..., factor); }, a,
        b, c);
  const Variable quotient = div(b, c);
  return add(a, factor == 1 ? quotient : mul(quotient, factor));
}

}  // namespace tessera
