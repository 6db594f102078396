#pragma once

/// How operations on two variables, or on a variable and a number, are recorded. For autograd's own
/// .cc files.

#include <utility>

#include "tessera/autograd/function.h"
#include "tessera/autograd/ops/autocast_call.h"
#include "tessera/autograd/ops/elementwise.h"
#include "tessera/autograd/ops/internal.h"

namespace tessera::detail {

/// autocast() for operands that may be numbers.
template <class Operation>
Variable autocast_pair(AutocastClass operands, Operation operation, const VariableOrNumber& a,
                       const VariableOrNumber& b) {
  const auto variable = [](const VariableOrNumber& x) {
    return x.is_variable() ? x.variable() : Variable();
  };
  const auto call = [&](const Variable& x, const Variable& y) {
    return operation(a.is_variable() ? VariableOrNumber(x) : a,
                     b.is_variable() ? VariableOrNumber(y) : b);
  };
  return autocast(operands, call, variable(a), variable(b));
}

/// Records an operation on two operands, of which one may be a number. `backward` returns the
/// gradient of operand i before it is fitted, or undefined for 0: backward(i, dy).
template <class Backward>
Variable record_binary(const char* name, Tensor y, const VariableOrNumber& a,
                       const VariableOrNumber& b, Backward backward) {
  if (!a.is_variable() || !b.is_variable()) {
    const int i = a.is_variable() ? 0 : 1;
    const Variable& x = i == 0 ? a.variable() : b.variable();
    return record_twice(name, std::move(y), {x},
                        [i, x = Like(x), backward = std::move(backward)](const Variable& dy,
                                                                         const BackwardContext&) {
                          return Gradients{x.fit(backward(i, dy))};
                        });
  }
  return record_twice(
      name, std::move(y), {a.variable(), b.variable()},
      [a = Like(a.variable()), b = Like(b.variable()), backward = std::move(backward)](
          const Variable& dy, const BackwardContext& context) {
        Gradients gradients(2);
        if (context.needs(0)) gradients[0] = a.fit(backward(0, dy));
        if (context.needs(1)) gradients[1] = b.fit(backward(1, dy));
        return gradients;
      });
}

}  // namespace tessera::detail
