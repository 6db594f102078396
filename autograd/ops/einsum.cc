#include "tessera/autograd/ops/einsum.h"

#include "tessera/autograd/ops/autocast_call.h"
#include "tessera/autograd/ops/elementwise.h"
#include "tessera/autograd/ops/matmul.h"
#include "tessera/autograd/ops/reduce.h"
#include "tessera/autograd/ops/view.h"
#include "tessera/tensor/ops/composed/einsum.h"

namespace tessera {

using detail::autocast;
using detail::autocast_of;
using detail::autocasting;

Variable einsum(std::string_view equation, const std::vector<Variable>& operands) {
  if (autocasting())
    return autocast(
        autocast_of("einsum"), [&](const auto& cast) { return einsum(equation, cast); }, operands);
  return composed::einsum(equation, operands);
}

Variable tensordot(const Variable& a, const Variable& b, int dims) {
  if (autocasting())
    return autocast(
        autocast_of("tensordot"), [&](auto&... v) { return tensordot(v..., dims); }, a, b);
  return composed::tensordot(a, b, dims);
}

Variable tensordot(const Variable& a, const Variable& b, const DimList& dims_a,
                   const DimList& dims_b) {
  if (autocasting())
    return autocast(
        autocast_of("tensordot"), [&](auto&... v) { return tensordot(v..., dims_a, dims_b); }, a,
        b);
  return composed::tensordot(a, b, dims_a, dims_b);
}

Variable inner(const Variable& a, const Variable& b) {
  if (autocasting())
    return autocast(
        autocast_of("inner"), [](auto&... v) { return inner(v...); }, a, b);
  return composed::inner(a, b);
}

}  // namespace tessera
