#pragma once

/// Checks and conversions that layers share. Private to this folder.

#include <optional>
#include <string>

#include "tessera/autograd/variable.h"
#include "tessera/nn/parameter.h"
#include "tessera/tensor/scope_name.h"

namespace tessera::nn::detail {

/// A layer without parameters as errors name it: "blocks.3.norm" with quotes, or the root module.
std::string place(const ScopeName& name);

/// Throws InvalidArgument naming the parameter unless x has its value's dtype. In an AutocastGuard
/// any floating dtype passes: operations cast.
void check_dtype(const char* where, const Parameter& parameter, const Variable& x);
/// The same for norms, whose parameters may also be of the dtype that x is computed in: f32 where x
/// has 16 bits.
void check_norm_dtype(const char* where, const Parameter& parameter, DType x);

/// Throws InvalidArgument for a shape without dims or with extents below 1, and a negative eps.
void check_norm_options(const char* where, const Shape& shape, double eps);
/// Throws InvalidArgument unless x ends in `shape`.
void check_norm_input(const char* where, const ScopeName& name, const Shape& shape,
                      const Variable& x);
/// Throws InvalidArgument for initial values of a bias that the layer does not have.
void check_bias_init(const char* where, bool bias, const Initializer& bias_init);
/// `init`, or where that is empty `otherwise`.
inline Initializer chosen(const Initializer& init, const Initializer& otherwise) {
  return init ? init : otherwise;
}
/// The dtype of x + residual. Throws it unless x ends in `shape`, and residual is of x's shape.
DType checked_sum_dtype(const char* where, const ScopeName& name, const Shape& shape,
                        const Variable& x, const Variable& residual);

/// Undefined where there is none.
inline Variable value_or_none(const std::optional<Parameter>& parameter) {
  return parameter ? parameter->value() : Variable();
}
/// What norms say of a parameter that they were built without.
inline constexpr const char* kNoWeight = "no weight: it was built with .affine = false";
inline constexpr const char* kNoBias =
    "no bias: it was built with .affine = false or .bias = false";
/// The parameter. Throws StateError with `text` where there is none.
Parameter& required(const char* where, std::optional<Parameter>& parameter, const char* text);

}  // namespace tessera::nn::detail
