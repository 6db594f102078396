#include "tessera/autograd/ops/products.h"

#include "tessera/autograd/ops/autocast_call.h"
#include "tessera/autograd/ops/elementwise.h"
#include "tessera/autograd/ops/mask.h"
#include "tessera/autograd/ops/matmul.h"
#include "tessera/autograd/ops/reduce.h"
#include "tessera/autograd/ops/shape.h"
#include "tessera/autograd/ops/view.h"
#include "tessera/tensor/ops/composed/products.h"

namespace tessera {

using detail::autocast;
using detail::autocast_of;
using detail::autocasting;

Variable addbmm(const Variable& c, const Variable& a, const Variable& b,
                const AddmmOptions& options) {
  if (autocasting())
    return autocast(
        autocast_of("addbmm"), [&](auto&... v) { return addbmm(v..., options); }, c, a, b);
  return composed::addbmm(c, a, b, options);
}

Variable addmv(const Variable& c, const Variable& a, const Variable& x,
               const AddmmOptions& options) {
  if (autocasting())
    return autocast(
        autocast_of("addmv"), [&](auto&... v) { return addmv(v..., options); }, c, a, x);
  return composed::addmv(c, a, x, options);
}

Variable addr(const Variable& c, const Variable& a, const Variable& b,
              const AddmmOptions& options) {
  if (autocasting())
    return autocast(
        autocast_of("addr"), [&](auto&... v) { return addr(v..., options); }, c, a, b);
  return composed::addr(c, a, b, options);
}

Variable vdot(const Variable& a, const Variable& b) {
  if (autocasting())
    return autocast(
        autocast_of("vdot"), [](auto&... v) { return vdot(v...); }, a, b);
  return composed::vdot(a, b);
}

Variable kron(const Variable& a, const Variable& b) { return composed::kron(a, b); }
Variable cross(const Variable& a, const Variable& b, int dim) { return composed::cross(a, b, dim); }

Variable matrix_power(const Variable& x, std::int64_t power) {
  if (autocasting())
    return autocast(
        autocast_of("matrix_power"), [&](auto&... v) { return matrix_power(v..., power); }, x);
  return composed::matrix_power(x, power);
}

Variable multi_dot(const std::vector<Variable>& matrices) {
  if (autocasting())
    return autocast(
        autocast_of("multi_dot"), [](const auto& cast) { return multi_dot(cast); }, matrices);
  return composed::multi_dot(matrices);
}

Variable cov(const Variable& x, double correction) {
  if (autocasting())
    return autocast(
        autocast_of("cov"), [&](auto&... v) { return cov(v..., correction); }, x);
  return composed::cov(x, correction);
}

Variable corrcoef(const Variable& x) {
  if (autocasting())
    return autocast(
        autocast_of("corrcoef"), [](auto&... v) { return corrcoef(v...); }, x);
  return composed::corrcoef(x);
}

}  // namespace tessera
