// Rows for ops/elementwise.h and ops/lists.h: operations of two and three operands, in place and not, and copies.

#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/lists.h"
#include "tessera/tests/tensor/every_operation/operation.h"

namespace tessera::testing {
namespace {

// Operands that broadcast with each other, and shapes that do not.
const Operand kWide = any({3, 5}).not_shaped({3, 4});
const Operand kRow = any({5}).not_shaped({4});
const Operand kColumn = any({3, 1}).not_shaped({4, 1});

struct Binary {
  const char* name;
  Tensor (*call)(const TensorOrNumber&, const TensorOrNumber&);
};

// An output: its kind must not be lower than the result's, and its shape not smaller.
const Operand kTarget = kWide.not_shaped({3, 1}).not_of({DType::kI64});
// The operand that is added to it must not be larger either.
const Operand kRowInto = kRow.not_shaped({2, 3, 5});

// Operands of operations on bits: integers that broadcast.
const Operand kWideBits = kWide.in(DType::kI64).not_of({DType::kF32});
const Operand kRowBits = kRow.in(DType::kI64).not_of({DType::kF32});

struct BinaryInPlace {
  const char* name;
  void (*call)(const Tensor&, const TensorOrNumber&);
};

void add_binary(Operations& table) {
  for (const auto& [name, op] : {
           Binary{"add", add},
           Binary{"sub", sub},
           Binary{"mul", mul},
           Binary{"div", div},
           Binary{"floor_divide", floor_divide},
           Binary{"remainder", remainder},
           Binary{"fmod", tessera::fmod},
           Binary{"pow", tessera::pow},
           Binary{"maximum", maximum},
           Binary{"minimum", minimum},
           Binary{"fmax", tessera::fmax},
           Binary{"fmin", tessera::fmin},
           Binary{"atan2", tessera::atan2},
           Binary{"hypot", tessera::hypot},
           Binary{"copysign", tessera::copysign},
           Binary{"logaddexp", logaddexp},
           Binary{"logaddexp2", logaddexp2},
           Binary{"xlogy", xlogy},
           Binary{"eq", eq},
           Binary{"ne", ne},
           Binary{"lt", lt},
           Binary{"le", le},
           Binary{"gt", gt},
           Binary{"ge", ge},
           Binary{"logical_and", logical_and},
           Binary{"logical_or", logical_or},
           Binary{"logical_xor", logical_xor},
       }) {
    table.push_back({name, {kWide, kRow}, [op](const Call& t) { op(t[0], t[1]); }});
    table.push_back({name, {any({3, 5})}, [op](const Call& t) { op(t[0], 2); }});
  }
}

void add_bitwise(Operations& table) {
  for (const auto& [name, op] : {
           Binary{"bitwise_and", bitwise_and},
           Binary{"bitwise_or", bitwise_or},
           Binary{"bitwise_xor", bitwise_xor},
           Binary{"bitwise_left_shift", bitwise_left_shift},
           Binary{"bitwise_right_shift", bitwise_right_shift},
       })
    table.push_back({name, {kWideBits, kRowBits}, [op](const Call& t) { op(t[0], t[1]); }});
}

}  // namespace

Operations elementwise_operations() {
  Operations table = {
      {"clamp", {kWide, kRow, kColumn}, [](const Call& t) { clamp(t[0], t[1], t[2]); }},
      {"clamp", {any({3, 5})}, [](const Call& t) { clamp(t[0], 0, 1); }},
      {"clamp_min", {kWide, kRow}, [](const Call& t) { clamp_min(t[0], t[1]); }},
      {"clamp_max", {kWide, kRow}, [](const Call& t) { clamp_max(t[0], t[1]); }},
      {"add", {kWide, kRow}, [](const Call& t) { add(t[0], t[1], 0.5); }},
      {"sub", {kWide, kRow}, [](const Call& t) { sub(t[0], t[1], 0.5); }},
      {"div", {kWide, kRow}, [](const Call& t) { div(t[0], t[1], RoundingMode::kTrunc); }},
      {"nan_to_num", {any({3, 5})}, [](const Call& t) { nan_to_num(t[0]); }},
      {"polygamma", {any({3, 5})}, [](const Call& t) { polygamma(2, t[0]); }},
      {"isclose", {kWide, kRow}, [](const Call& t) { isclose(t[0], t[1]); }},
      {"allclose", {kWide, kRow}, [](const Call& t) { allclose(t[0], t[1]); }},
      {"equal", {any({3, 5}), any({3, 5})}, [](const Call& t) { equal(t[0], t[1]); }},
      {"lerp", {kWide, kRow, kColumn}, [](const Call& t) { lerp(t[0], t[1], t[2]); }},
      {"lerp", {any({3, 5})}, [](const Call& t) { lerp(t[0], 1, 0.5); }},
      {"addcmul", {kWide, kRow, kColumn}, [](const Call& t) { addcmul(t[0], t[1], t[2], 2); }},
      {"addcdiv", {kWide, kRow, kColumn}, [](const Call& t) { addcdiv(t[0], t[1], t[2], 2); }},
      {"where", {kWide, kRow, kColumn}, [](const Call& t) { where(t[0], t[1], t[2]); }},
      {"clone", {any({3, 5})}, [](const Call& t) { clone(t[0]); }},
      {"cast", {any({3, 5})}, [](const Call& t) { cast(t[0], DType::kBF16); }},
      {"contiguous", {any({3, 5})}, [](const Call& t) { contiguous(t[0]); }},
      {"reshape",
       {any({3, 5}).not_shaped({3, 4})},
       [](const Call& t) {
         reshape(t[0], {5, 3});
       }},
      {"flatten",
       {any({2, 3, 5}).not_shaped({3, 5}, "dim 2 does not exist in a tensor of 2 dims")},
       [](const Call& t) { flatten(t[0], 1, 2); }},
      {"copy_",
       {any({3, 5}).not_shaped({3, 4}), any({3, 5}).not_shaped({5})},
       [](const Call& t) { copy_(t[0], t[1]); }},
      {"axpby_",
       {any({3, 5}).not_shaped({3, 4}), any({3, 5}).not_shaped({5})},
       [](const Call& t) { axpby_(t[0], t[1], {.alpha = 0.5, .beta = 1}); }},
      {"axpby_",
       {any({3, 5}).not_shaped({3, 4}), any({3, 5}).not_shaped({5}), any({4}), any({4})},
       [](const Call& t) {
         axpby_({{.out = t[0], .x = t[1], .alpha = 0.5, .beta = 1}, {.out = t[2], .x = t[3]}});
       }},
      {"mul_",
       {floating({3, 5}), floating({4}), any({}).not_shaped({2})},
       [](const Call& t) {
         mul_(std::vector<Tensor>{t[0], t[1]}, t[2]);
       }},
  };
  add_binary(table);
  add_bitwise(table);
  return table;
}

Operations in_place_operations() {
  Operations table = {
      {"clamp_", {kTarget, kRowInto, kColumn}, [](const Call& t) { clamp_(t[0], t[1], t[2]); }},
      {"clamp_min_", {kTarget, kRowInto}, [](const Call& t) { clamp_min_(t[0], t[1]); }},
      {"clamp_max_", {kTarget, kRowInto}, [](const Call& t) { clamp_max_(t[0], t[1]); }},
      {"add_", {kTarget, kRowInto}, [](const Call& t) { add_(t[0], t[1], 2); }},
      {"sub_", {kTarget, kRowInto}, [](const Call& t) { sub_(t[0], t[1], 2); }},
      {"nan_to_num_", {any({3, 5})}, [](const Call& t) { nan_to_num_(t[0]); }},
      {"lerp_", {kTarget, kRowInto, kColumn}, [](const Call& t) { lerp_(t[0], t[1], t[2]); }},
      {"addcmul_",
       {kTarget, kRowInto, kColumn},
       [](const Call& t) { addcmul_(t[0], t[1], t[2], 2); }},
      {"addcdiv_",
       {kTarget, kRowInto, kColumn},
       [](const Call& t) { addcdiv_(t[0], t[1], t[2], 2); }},
  };
  for (const auto& [name, op] : {
           BinaryInPlace{"add_", add_},
           BinaryInPlace{"sub_", sub_},
           BinaryInPlace{"mul_", mul_},
           BinaryInPlace{"div_", div_},
           BinaryInPlace{"pow_", pow_},
       }) {
    table.push_back({name, {kTarget, kRowInto}, [op](const Call& t) { op(t[0], t[1]); }});
    table.push_back({name, {kTarget}, [op](const Call& t) { op(t[0], 0.5); }});
    table.back().operands[0].wrong_shapes.clear();  // every shape broadcasts with a number
  }
  const Operand bits_into = kWideBits.not_shaped({3, 1});
  for (const auto& [name, op] : {
           BinaryInPlace{"bitwise_and_", bitwise_and_},
           BinaryInPlace{"bitwise_or_", bitwise_or_},
           BinaryInPlace{"bitwise_xor_", bitwise_xor_},
       })
    table.push_back({name, {bits_into, kRowBits}, [op](const Call& t) { op(t[0], t[1]); }});
  return table;
}

namespace {

// Rows for ops/elementwise.h: functions of one tensor, and their derivatives.
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
struct DerivativeInPlace {
  const char* name;
  void (*op)(const Tensor&, const Tensor&);
};

const Operand kBits = any({3, 5}).in(DType::kI64).not_of({DType::kF32});

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
           Unary{"frac", frac},
           Unary{"exp", tessera::exp},
           Unary{"exp2", tessera::exp2},
           Unary{"expm1", tessera::expm1},
           Unary{"log", tessera::log},
           Unary{"log2", tessera::log2},
           Unary{"log10", tessera::log10},
           Unary{"log1p", tessera::log1p},
           Unary{"sqrt", tessera::sqrt},
           Unary{"rsqrt", rsqrt},
           Unary{"sin", tessera::sin},
           Unary{"cos", tessera::cos},
           Unary{"tan", tessera::tan},
           Unary{"asin", tessera::asin},
           Unary{"acos", tessera::acos},
           Unary{"atan", tessera::atan},
           Unary{"sinh", tessera::sinh},
           Unary{"cosh", tessera::cosh},
           Unary{"tanh", tessera::tanh},
           Unary{"asinh", tessera::asinh},
           Unary{"acosh", tessera::acosh},
           Unary{"atanh", tessera::atanh},
           Unary{"sinc", sinc},
           Unary{"deg2rad", deg2rad},
           Unary{"rad2deg", rad2deg},
           Unary{"erf", tessera::erf},
           Unary{"erfc", tessera::erfc},
           Unary{"erfinv", erfinv},
           Unary{"lgamma", tessera::lgamma},
           Unary{"digamma", digamma},
           Unary{"sigmoid", sigmoid},
           Unary{"gelu", gelu},
           Unary{"gelu_tanh", gelu_tanh},
           Unary{"silu", silu},
           Unary{"softplus", softplus},
           Unary{"logical_not", logical_not},
           Unary{"isnan", tessera::isnan},
           Unary{"isinf", tessera::isinf},
           Unary{"isfinite", tessera::isfinite},
           Unary{"signbit", tessera::signbit},
       })
    table.push_back({name, {any({3, 5}).not_of(refused)}, [op](const Call& t) { op(t[0]); }});
  table.push_back({"bitwise_not", {kBits}, [](const Call& t) { bitwise_not(t[0]); }});
}

void add_functions_in_place(Operations& table) {
  // The result for an integer is floating, and cannot be written to an integer tensor.
  const std::vector<DType> integers = {DType::kI64, DType::kBool};
  for (const auto& [name, op, refused] : {
           UnaryInPlace{"neg_", neg_, {DType::kBool}},
           UnaryInPlace{"abs_", abs_},
           UnaryInPlace{"square_", square_},
           UnaryInPlace{"relu_", relu_},
           UnaryInPlace{"frac_", frac_},
           UnaryInPlace{"exp_", exp_, integers},
           UnaryInPlace{"exp2_", exp2_, integers},
           UnaryInPlace{"log_", log_, integers},
           UnaryInPlace{"log2_", log2_, integers},
           UnaryInPlace{"log10_", log10_, integers},
           UnaryInPlace{"erfinv_", erfinv_, integers},
           UnaryInPlace{"sqrt_", sqrt_, integers},
           UnaryInPlace{"rsqrt_", rsqrt_, integers},
           UnaryInPlace{"reciprocal_", reciprocal_, integers},
           UnaryInPlace{"tanh_", tanh_, integers},
           UnaryInPlace{"sigmoid_", sigmoid_, integers},
       })
    table.push_back({name, {any({3, 5}).not_of(refused)}, [op](const Call& t) { op(t[0]); }});
  table.push_back({"bitwise_not_", {kBits}, [](const Call& t) { bitwise_not_(t[0]); }});
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
  for (const auto& [name, op] : {
           DerivativeInPlace{"gelu_backward_", gelu_backward_},
           DerivativeInPlace{"gelu_tanh_backward_", gelu_tanh_backward_},
           DerivativeInPlace{"silu_backward_", silu_backward_},
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
