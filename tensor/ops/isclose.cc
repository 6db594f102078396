// isclose, allclose and equal.
#include "tessera/tensor/dims.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/internal/op_checks.h"

namespace tessera {
namespace {

void check_pair(const char* where, const Tensor& a, const Tensor& b) {
  ops::check_defined(where, "the first operand", a);
  ops::check_defined(where, "the second operand", b);
  ops::check_same_device(where, a, b);
}

// |a - b| of integers in f64: computed in i64, which is exact, unless it might not fit.
Tensor distance_of_integers(const Tensor& a, const Tensor& b) {
  const Tensor left = cast(a, DType::kI64), right = cast(b, DType::kI64);
  const Tensor rounded = abs(sub(cast(a, DType::kF64), cast(b, DType::kF64)));
  const Tensor far = ge(rounded, 0x1p62);
  const Tensor exact = abs(sub(left, where(far, left, right)));
  return where(far, rounded, cast(exact, DType::kF64));
}

Tensor close(const char* where, const Tensor& a, const Tensor& b, const IsCloseOptions& options) {
  check_pair(where, a, b);
  broadcast_shapes(a.shape(), b.shape(), where);
  TESSERA_CHECK(options.rtol >= 0 && options.atol >= 0, where,
                "rtol is {} and atol is {}; neither may be negative", options.rtol, options.atol);
  const DType common = result_dtype({a, b});
  const DType dtype = is_floating(common) ? compute_dtype(common) : DType::kF64;
  const auto in_dtype = [dtype](const Tensor& x) {
    return x.dtype() == dtype ? x : cast(x, dtype);
  };
  const Tensor left = in_dtype(a), right = in_dtype(b);
  const Tensor distance = is_floating(common) ? abs(sub(left, right)) : distance_of_integers(a, b);
  const Tensor allowed = add(mul(abs(right), options.rtol), options.atol);
  const Tensor near = logical_and(isfinite(distance), le(distance, allowed));
  const Tensor result = logical_or(eq(a, b), near);
  return options.equal_nan ? logical_or(result, logical_and(isnan(left), isnan(right))) : result;
}

bool all_true(const Tensor& flags) { return all(flags).item(PlanValue{1}) != 0; }

}  // namespace

Tensor isclose(const Tensor& a, const Tensor& b, const IsCloseOptions& options) {
  return close("isclose", a, b, options);
}

bool allclose(const Tensor& a, const Tensor& b, const IsCloseOptions& options) {
  return all_true(close("allclose", a, b, options));
}

bool equal(const Tensor& a, const Tensor& b) {
  check_pair("equal", a, b);
  return a.shape() == b.shape() && all_true(eq(a, b));
}

}  // namespace tessera
