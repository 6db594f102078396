#include "tessera/nn/layers/checks.h"

#include <algorithm>

#include "tessera/autograd/ops/autocast.h"
#include "tessera/tensor/check.h"

namespace tessera::nn::detail {
namespace {

void check_fits(bool fits, const char* where, const Parameter& parameter, DType x) {
  if (autocast_dtype()) fits = is_floating(x);
  TESSERA_CHECK(fits, where,
                "\"{}\" is {}, the input {}: cast the input, or build the layer with .dtype",
                parameter.name(), dtype_name(parameter.value().dtype()), dtype_name(x));
}

}  // namespace

std::string place(const ScopeName& name) {
  const std::string path = name.path();
  return path.empty() ? "the root module" : "\"" + path + "\"";
}

void check_dtype(const char* where, const Parameter& parameter, const Variable& x) {
  check_fits(x.dtype() == parameter.value().dtype(), where, parameter, x.dtype());
}

void check_norm_dtype(const char* where, const Parameter& parameter, DType x) {
  const DType dtype = parameter.value().dtype();
  check_fits(dtype == x || dtype == compute_dtype(x), where, parameter, x);
}

void check_norm_options(const char* where, const Shape& shape, double eps) {
  TESSERA_CHECK(
      shape.ndim() >= 1 &&
          std::all_of(shape.begin(), shape.end(), [](std::int64_t extent) { return extent >= 1; }),
      where, "shape is {}; it needs at least one dim, and extents of at least 1", shape.str());
  TESSERA_CHECK(eps >= 0, where, "eps is {}; it must not be negative", eps);
}

void check_norm_input(const char* where, const ScopeName& name, const Shape& shape,
                      const Variable& x) {
  const Shape& in = x.shape();
  TESSERA_CHECK(
      in.ndim() >= shape.ndim() && std::equal(shape.begin(), shape.end(), in.end() - shape.ndim()),
      where, "{}: expected an input that ends in {}, got {}", place(name), shape.str(), in.str());
}

void check_bias_init(const char* where, bool bias, const Initializer& bias_init) {
  TESSERA_CHECK(bias || !bias_init, where,
                "bias_init has nothing to fill: the layer is built with .bias = false");
}

DType checked_sum_dtype(const char* where, const ScopeName& name, const Shape& shape,
                        const Variable& x, const Variable& residual) {
  check_norm_input(where, name, shape, x);
  TESSERA_CHECK(residual.shape() == x.shape(), where,
                "{}: the input is {}, the residual {}: they are added, so they must have one shape",
                place(name), x.shape().str(), residual.shape().str());
  return promote(x.dtype(), residual.dtype());
}

Parameter& required(const char* where, std::optional<Parameter>& parameter, const char* text) {
  TESSERA_CHECK_AS(StateError, parameter.has_value(), where, "{}", text);
  return *parameter;
}

}  // namespace tessera::nn::detail
