#pragma once

/// Automatic mixed precision: in an AutocastGuard, operations cast their operands by class.
///
///     AutocastGuard autocast(DType::kBF16);
///     Variable y = softmax(linear(x, w, b));   // linear in bf16, softmax in f32
///
/// The casts are part of the graph: gradients arrive in the dtypes of the variables. A leaf that
/// requires a gradient is cast once in a scope, however often it is used, while operations are
/// recorded and until a backward pass has run; not one whose gradient another sink collects (a
/// sharded parameter), since its copy would outlive its value. A backward pass runs without
/// autocast. The state belongs to the thread; off, it costs an operation one branch.

#include <array>
#include <memory>
#include <optional>
#include <string_view>

#include "tessera/tensor/dtype.h"

namespace tessera {

enum class AutocastClass : std::uint8_t {
  kLower,   ///< every floating operand in the scope's dtype
  kF32,     ///< every floating operand in the widest dtype among f32 and the operands'
  kWidest,  ///< every floating operand in the widest dtype among the operands'
};

struct AutocastEntry {
  std::string_view operation;
  AutocastClass operands;
};

/// Operations that are not here take their operands as they come; elementwise ones promote mixed
/// dtypes themselves.
inline constexpr auto kAutocastTable = std::to_array<AutocastEntry>({
    {"acos", AutocastClass::kF32},
    {"addbmm", AutocastClass::kLower},
    {"addcdiv", AutocastClass::kWidest},
    {"addcmul", AutocastClass::kWidest},
    {"addmm", AutocastClass::kLower},
    {"addmv", AutocastClass::kLower},
    {"addr", AutocastClass::kLower},
    {"asin", AutocastClass::kF32},
    {"atan2", AutocastClass::kWidest},
    {"baddbmm", AutocastClass::kLower},
    {"batch_norm", AutocastClass::kF32},
    {"bmm", AutocastClass::kLower},
    {"conv1d", AutocastClass::kLower},
    {"conv2d", AutocastClass::kLower},
    {"conv_transpose1d", AutocastClass::kLower},
    {"conv_transpose2d", AutocastClass::kLower},
    {"corrcoef", AutocastClass::kF32},
    {"cosh", AutocastClass::kF32},
    {"cov", AutocastClass::kF32},
    {"cross_entropy", AutocastClass::kF32},
    {"cumprod", AutocastClass::kF32},
    {"cumsum", AutocastClass::kF32},
    {"dot", AutocastClass::kLower},
    {"einsum", AutocastClass::kLower},
    {"erfinv", AutocastClass::kF32},
    {"exp", AutocastClass::kF32},
    {"expm1", AutocastClass::kF32},
    {"group_norm", AutocastClass::kF32},
    {"inner", AutocastClass::kLower},
    {"layer_norm", AutocastClass::kF32},
    {"linear", AutocastClass::kLower},
    {"log", AutocastClass::kF32},
    {"log10", AutocastClass::kF32},
    {"log1p", AutocastClass::kF32},
    {"log2", AutocastClass::kF32},
    {"log_softmax", AutocastClass::kF32},
    {"logcumsumexp", AutocastClass::kF32},
    {"logsumexp", AutocastClass::kF32},
    {"matmul", AutocastClass::kLower},
    {"matrix_power", AutocastClass::kLower},
    {"mean", AutocastClass::kF32},
    {"multi_dot", AutocastClass::kLower},
    {"mv", AutocastClass::kLower},
    {"norm", AutocastClass::kF32},
    {"pow", AutocastClass::kF32},
    {"prod", AutocastClass::kF32},
    {"reciprocal", AutocastClass::kF32},
    {"rms_norm", AutocastClass::kF32},
    {"rsqrt", AutocastClass::kF32},
    {"scaled_dot_product_attention", AutocastClass::kLower},
    {"sinh", AutocastClass::kF32},
    {"softmax", AutocastClass::kF32},
    {"softplus", AutocastClass::kF32},
    {"square", AutocastClass::kF32},
    {"stddev", AutocastClass::kF32},
    {"sum", AutocastClass::kF32},
    {"tan", AutocastClass::kF32},
    {"tensordot", AutocastClass::kLower},
    {"var", AutocastClass::kF32},
    {"vdot", AutocastClass::kLower},
});

/// nullopt: not in the table.
constexpr std::optional<AutocastClass> autocast_class(std::string_view operation) {
  for (const AutocastEntry& entry : kAutocastTable) {
    if (entry.operation == operation) return entry.operands;
  }
  return std::nullopt;
}

/// The lower dtype of this thread's scope; nullopt: off.
std::optional<DType> autocast_dtype();

namespace detail {
class AutocastCache;

/// A state until the end of the scope, with casts of its own.
class AutocastScope {
 public:
  explicit AutocastScope(std::optional<DType> lower);
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  std::optional<DType> previous_;
  std::shared_ptr<AutocastCache> previous_cache_;
};
}  // namespace detail

/// Autocast to `lower` until the end of the scope; nullopt turns it off. They nest. Throws
/// InvalidArgument for a dtype that is not floating.
class AutocastGuard {
 public:
  explicit AutocastGuard(std::optional<DType> lower);

 private:
  detail::AutocastScope scope_;
};

}  // namespace tessera
