#pragma once

/// How an operation joins autocast: one line at its top, and its name in kAutocastTable. For
/// autograd's own .cc files.
///
///     Variable matmul(const Variable& a, const Variable& b) {
///       if (autocasting())
///         return autocast(autocast_of("matmul"), [](auto&... v) { return matmul(v...); }, a, b);
///       ...

#include <array>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include "tessera/autograd/ops/autocast.h"
#include "tessera/autograd/ops/elementwise.h"
#include "tessera/autograd/variable.h"
#include "tessera/tensor/thread_state.h"

namespace tessera::detail {

inline bool autocasting() { return thread_state().settings.autocast.has_value(); }

/// The class of an operation; a name that is not in the table does not compile.
consteval AutocastClass autocast_of(std::string_view operation) {
  return autocast_class(operation).value();
}

/// The operands as the class asks; undefined ones and those that are not floating stay.
void autocast_operands(AutocastClass operands, std::span<Variable> variables);

/// Calls `operation` with the cast operands, without autocast.
template <class Operation, class... Operands>
auto autocast(AutocastClass operand_class, Operation&& operation, const Operands&... operands) {
  std::array<Variable, sizeof...(Operands)> cast = {operands...};
  autocast_operands(operand_class, cast);
  const AutocastScope off(std::nullopt);
  return std::apply(operation, cast);
}

/// The same for an operation on a list.
template <class Operation>
auto autocast(AutocastClass operand_class, Operation&& operation,
              const std::vector<Variable>& operands) {
  std::vector<Variable> cast = operands;
  autocast_operands(operand_class, cast);
  const AutocastScope off(std::nullopt);
  return operation(cast);
}

/// operation(x), where a caller asked for a dtype with x in it and without autocast.
template <class Operation>
Variable in_dtype(const Variable& x, std::optional<DType> dtype, const Operation& operation) {
  if (!dtype) return operation(x);
  const AutocastScope off(std::nullopt);
  return operation(x.dtype() == *dtype ? x : cast(x, *dtype));
}

/// Forgets the casts of this thread's scope, whose nodes a backward pass has used up.
void forget_autocast_casts();

}  // namespace tessera::detail
