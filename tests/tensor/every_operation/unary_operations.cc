// Rows for ops/elementwise.h: functions of one tensor, and their derivatives.
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tests/tensor/every_operation/operation.h"

namespace tessera::testing {
namespace {

struct Unary {
  const char* name;
  Tensor (*call)(const Tensor&);
  std::vector<DType> refused = {};
};

struct UnaryInPlace {
  const char* name;
  void (*call)(const Tensor&);
  std::vector<DType> refused = {};
};

struct Derivative {
  const char* name;
  Tensor (*call)(const Tensor&, const Tensor&);
};

void add_functions(Operations& table) {
  for (const auto& [name, op, refused] : {
           Unary{"neg", neg, {DType::kBool}},
           Unary{"abs", tessera::abs},
           Unary{"sign", sign},
           Unary{"square", square},
           Unary{"relu", relu},
           Unary{"floor", tessera::floor},
           Unary{"ceil", tessera::ceil},
           Unary{"round", tessera::round},
           Unary{"trunc", tessera::trunc},
           Unary{"reciprocal", reciprocal},
           Unary{"exp", tessera::exp},
           Unary{"expm1", tessera::expm1},
           Unary{"log", tessera::log},
           Unary{"log1p", tessera::log1p},
           Unary{"sqrt", tessera::sqrt},
           Unary{"rsqrt", rsqrt},
           Unary{"sin", tessera::sin},
           Unary{"cos", tessera::cos},
           Unary{"erf", tessera::erf},
           Unary{"tanh", tessera::tanh},
           Unary{"sigmoid", sigmoid},
           Unary{"gelu", gelu},
           Unary{"gelu_tanh", gelu_tanh},
           Unary{"silu", silu},
           Unary{"softplus", softplus},
           Unary{"logical_not", logical_not},
           Unary{"isnan", tessera::isnan},
           Unary{"isinf", tessera::isinf},
           Unary{"isfinite", tessera::isfinite},
       })
    table.push_back({name, {any({3, 5}).not_of(refused)}, [op](const Call& t) { op(t[0]); }});
}

void add_functions_in_place(Operations& table) {
  // The result for an integer is floating, and cannot be written to an integer tensor.
  const std::vector<DType> integers = {DType::kI64, DType::kBool};
  for (const auto& [name, op, refused] : {
           UnaryInPlace{"neg_", neg_, {DType::kBool}},
           UnaryInPlace{"abs_", abs_},
           UnaryInPlace{"square_", square_},
           UnaryInPlace{"relu_", relu_},
           UnaryInPlace{"exp_", exp_, integers},
           UnaryInPlace{"log_", log_, integers},
           UnaryInPlace{"sqrt_", sqrt_, integers},
           UnaryInPlace{"rsqrt_", rsqrt_, integers},
           UnaryInPlace{"reciprocal_", reciprocal_, integers},
           UnaryInPlace{"tanh_", tanh_, integers},
           UnaryInPlace{"sigmoid_", sigmoid_, integers},
       })
    table.push_back({name, {any({3, 5}).not_of(refused)}, [op](const Call& t) { op(t[0]); }});
}

void add_derivatives(Operations& table) {
  const Operand like = matching({3, 5}).not_shaped({3, 4}).not_shaped({5});
  for (const auto& [name, op] : {
           Derivative{"relu_backward", relu_backward},
           Derivative{"gelu_backward", gelu_backward},
           Derivative{"gelu_tanh_backward", gelu_tanh_backward},
           Derivative{"silu_backward", silu_backward},
           Derivative{"softplus_backward", softplus_backward},
           Derivative{"tanh_backward", tanh_backward},
           Derivative{"sigmoid_backward", sigmoid_backward},
       })
    table.push_back({name, {like, like}, [op](const Call& t) { op(t[0], t[1]); }});
}

}  // namespace

Operations unary_operations() {
  Operations table;
  add_functions(table);
  add_functions_in_place(table);
  add_derivatives(table);
  return table;
}

}  // namespace tessera::testing
