#include "tessera/autograd/ops_elementwise.h"

namespace tessera {

// Made of the others: each is one kernel more than a derivative of its own would need, and exact to
// the same rounding.

Variable lerp(const Variable& a, const VariableOrNumber& b, const VariableOrNumber& weight) {
  return add(a, mul(weight, sub(b, a)));
}

Variable addcmul(const Variable& a, const Variable& b, const Variable& c, double factor) {
  const Variable product = mul(b, c);
  return add(a, factor == 1 ? product : mul(product, factor));
}

Variable addcdiv(const Variable& a, const Variable& b, const Variable& c, double factor) {
  const Variable quotient = div(b, c);
  return add(a, factor == 1 ? quotient : mul(quotient, factor));
}

}  // namespace tessera
