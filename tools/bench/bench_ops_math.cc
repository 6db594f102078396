// Elementwise operations, reductions and products.

#include "tessera/autograd/ops/ops.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tools/bench/bench_ops_table.h"

namespace tessera {
namespace {

// [rows, columns]: one that keeps the device busy, and one limited by the host's time.
const BenchShapes kMatrices = {
    .gpu = {{8192, 4096}, {64, 64}}, .cpu = {{2048, 1024}, {64, 64}}, .smoke = {6, 10}};

using Unary = Variable (*)(const Variable&);
using Binary = Variable (*)(const VariableOrNumber&, const VariableOrNumber&);

BenchOp on_matrices(std::string_view name, std::function<OpCall(OpInputs&, const Shape&)> make) {
  return {.name = name, .shapes = kMatrices, .make = std::move(make)};
}

BenchOp without_backward(BenchOp op) {
  op.has_backward = false;
  return op;
}

BenchOp unary(std::string_view name, Unary function) {
  return on_matrices(name, [function](OpInputs& in, const Shape& shape) -> OpCall {
    return [function, x = in.normal(shape)] { return function(x); };
  });
}

BenchOp unary_of_positive(std::string_view name, Unary function) {
  return on_matrices(name, [function](OpInputs& in, const Shape& shape) -> OpCall {
    return [function, x = in.positive(shape)] { return function(x); };
  });
}

BenchOp binary(std::string_view name, Binary function) {
  return on_matrices(name, [function](OpInputs& in, const Shape& shape) -> OpCall {
    return [function, a = in.positive(shape), b = in.positive(shape)] { return function(a, b); };
  });
}

// On one tensor, with a function of a Variable that is not just an operation's name.
BenchOp of_matrix(std::string_view name, const std::function<Variable(const Variable&)>& function) {
  return on_matrices(name, [function](OpInputs& in, const Shape& shape) -> OpCall {
    return [function, x = in.normal(shape)] { return function(x); };
  });
}

// The same on plain tensors, without a derivative.
BenchOp of_tensor(std::string_view name, const std::function<Tensor(const Tensor&)>& function) {
  return without_backward(on_matrices(name, [function](OpInputs& in, const Shape& shape) -> OpCall {
    return [function, x = in.constant(shape)] { return Variable(function(x)); };
  }));
}

void add_unary(std::vector<BenchOp>& all) {
  for (const auto& [name, function] :
       std::initializer_list<std::pair<const char*, Unary>>{{"neg", neg},
                                                            {"abs", abs},
                                                            {"square", square},
                                                            {"exp", exp},
                                                            {"expm1", expm1},
                                                            {"sin", sin},
                                                            {"cos", cos},
                                                            {"erf", erf},
                                                            {"tanh", tanh},
                                                            {"sigmoid", sigmoid},
                                                            {"relu", relu},
                                                            {"gelu", gelu},
                                                            {"gelu_tanh", gelu_tanh},
                                                            {"silu", silu},
                                                            {"softplus", softplus},
                                                            {"clone", clone}}) {
    all.push_back(unary(name, function));
  }
  for (const auto& [name, function] :
       std::initializer_list<std::pair<const char*, Unary>>{{"reciprocal", reciprocal},
                                                            {"log", log},
                                                            {"log1p", log1p},
                                                            {"sqrt", sqrt},
                                                            {"rsqrt", rsqrt}}) {
    all.push_back(unary_of_positive(name, function));
  }
  // The derivative of these step functions is zero.
  for (const auto& [name, function] : std::initializer_list<std::pair<const char*, Unary>>{
           {"sign", sign}, {"floor", floor}, {"ceil", ceil}, {"round", round}, {"trunc", trunc}}) {
    all.push_back(without_backward(unary(name, function)));
  }
}

void add_binary(std::vector<BenchOp>& all) {
  for (const auto& [name, function] :
       std::initializer_list<std::pair<const char*, Binary>>{{"add", add},
                                                             {"sub", sub},
                                                             {"mul", mul},
                                                             {"div", div},
                                                             {"pow", pow},
                                                             {"remainder", remainder},
                                                             {"maximum", maximum},
                                                             {"minimum", minimum}}) {
    all.push_back(binary(name, function));
  }
  all.push_back(binary("swiglu", [](const VariableOrNumber& a, const VariableOrNumber& b) {
    return swiglu(a.variable(), b.variable());
  }));
  all.push_back(on_matrices("add_row", [](OpInputs& in, const Shape& shape) -> OpCall {
    return [x = in.normal(shape), row = in.normal({shape[1]})] { return add(x, row); };
  }));
  all.push_back(on_matrices("mul_column", [](OpInputs& in, const Shape& shape) -> OpCall {
    return [x = in.normal(shape), column = in.normal({shape[0], 1})] { return mul(x, column); };
  }));
  all.push_back(of_matrix("mul_number", [](const Variable& x) { return mul(x, 0.5); }));
  all.push_back(of_matrix("pow_number", [](const Variable& x) { return pow(x, 3); }));
  all.push_back(of_matrix("clamp", [](const Variable& x) { return clamp(x, -1, 1); }));
  all.push_back(of_matrix("cast", [](const Variable& x) {
    return cast(x, x.dtype() == DType::kF32 ? DType::kBF16 : DType::kF32);
  }));
}

void add_ternary(std::vector<BenchOp>& all) {
  all.push_back(on_matrices("lerp", [](OpInputs& in, const Shape& shape) -> OpCall {
    return [a = in.normal(shape), b = in.normal(shape)] { return lerp(a, b, 0.25); };
  }));
  all.push_back(on_matrices("addcmul", [](OpInputs& in, const Shape& shape) -> OpCall {
    return [a = in.normal(shape), b = in.normal(shape), c = in.normal(shape)] {
      return addcmul(a, b, c, 0.5);
    };
  }));
  all.push_back(on_matrices("addcdiv", [](OpInputs& in, const Shape& shape) -> OpCall {
    return [a = in.normal(shape), b = in.normal(shape), c = in.positive(shape)] {
      return addcdiv(a, b, c, 0.5);
    };
  }));
  all.push_back(on_matrices("where", [](OpInputs& in, const Shape& shape) -> OpCall {
    return [condition = gt(in.constant(shape), 0), a = in.normal(shape), b = in.normal(shape)] {
      return where(condition, a, b);
    };
  }));
}

void add_predicates(std::vector<BenchOp>& all) {
  all.push_back(of_tensor("gt_number", [](const Tensor& x) { return gt(x, 0); }));
  all.push_back(of_tensor("eq", [](const Tensor& x) { return eq(x, x); }));
  all.push_back(of_tensor("isnan", [](const Tensor& x) { return isnan(x); }));
  all.push_back(of_tensor("isinf", [](const Tensor& x) { return isinf(x); }));
  all.push_back(of_tensor("logical_not", [](const Tensor& x) { return logical_not(x); }));
  all.push_back(of_tensor("logical_and", [](const Tensor& x) { return logical_and(x, x); }));
  all.push_back(of_tensor("floor_divide", [](const Tensor& x) { return floor_divide(x, 0.5); }));
  all.push_back(of_tensor("isfinite", [](const Tensor& x) { return isfinite(x); }));
}

}  // namespace

void add_elementwise_ops(std::vector<BenchOp>& all) {
  add_unary(all);
  add_binary(all);
  add_ternary(all);
  add_predicates(all);
}

void add_reduction_ops(std::vector<BenchOp>& table) {
  table.push_back(of_matrix("sum", [](const Variable& x) { return sum(x); }));
  table.push_back(of_matrix("sum_rows", [](const Variable& x) { return sum(x, {1}); }));
  table.push_back(of_matrix("sum_columns", [](const Variable& x) { return sum(x, {0}); }));
  table.push_back(of_matrix("mean_rows", [](const Variable& x) { return mean(x, {1}); }));
  table.push_back(of_matrix("amax_rows", [](const Variable& x) { return amax(x, {1}); }));
  table.push_back(of_matrix("amin_columns", [](const Variable& x) { return amin(x, {0}); }));
  table.push_back(of_matrix("logsumexp_rows", [](const Variable& x) { return logsumexp(x, {1}); }));
  table.push_back(of_matrix("var_rows", [](const Variable& x) { return var(x, {1}); }));
  table.push_back(of_matrix("var_mean_rows", [](const Variable& x) {
    const VariableVarMean both = var_mean(x, {1});
    return add(both.var, both.mean);
  }));
  table.push_back(of_matrix("std_columns", [](const Variable& x) { return stddev(x, {0}); }));
  table.push_back(of_matrix("norm", [](const Variable& x) { return norm(x); }));
  table.push_back(of_matrix("cumsum_rows", [](const Variable& x) { return cumsum(x, 1); }));
  table.push_back(of_matrix("prod_rows", [](const Variable& x) { return prod(x, {1}); }));
  table.push_back(of_tensor("any_rows", [](const Tensor& x) { return any(x, {1}); }));
  table.push_back(of_tensor("all_columns", [](const Tensor& x) { return all(x, {0}); }));
  table.push_back(of_matrix("max_rows", [](const Variable& x) { return max(x, 1).values; }));
  table.push_back(of_matrix("min_columns", [](const Variable& x) { return min(x, 0).values; }));
  table.push_back(of_tensor("argmax_rows", [](const Tensor& x) { return argmax(x); }));
  table.push_back(of_matrix("sort_rows", [](const Variable& x) { return sort(x).values; }));
  table.push_back(of_matrix("topk_rows", [](const Variable& x) { return topk(x, 5).values; }));
}

namespace {

// [m, n, k]
const BenchShapes kProducts = {.gpu = {{4096, 4096, 4096}, {64, 64, 64}},
                               .cpu = {{1024, 1024, 1024}, {64, 64, 64}},
                               .smoke = {3, 5, 4}};

BenchOp product(std::string_view name, std::function<OpCall(OpInputs&, const Shape&)> make) {
  return {.name = name, .shapes = kProducts, .make = std::move(make)};
}

}  // namespace

void add_matmul_ops(std::vector<BenchOp>& all) {
  all.push_back(product("matmul", [](OpInputs& in, const Shape& s) -> OpCall {
    return [a = in.normal({s[0], s[2]}), b = in.normal({s[2], s[1]})] { return matmul(a, b); };
  }));
  all.push_back(product("linear", [](OpInputs& in, const Shape& s) -> OpCall {
    return [x = in.normal({s[0], s[2]}), w = in.normal({s[1], s[2]}), b = in.normal({s[1]})] {
      return linear(x, w, b);
    };
  }));
  all.push_back(product("linear_gelu_tanh", [](OpInputs& in, const Shape& s) -> OpCall {
    return [x = in.normal({s[0], s[2]}), w = in.normal({s[1], s[2]}), b = in.normal({s[1]})] {
      return linear(x, w, b, ActivationKind::kGeluTanh);
    };
  }));
  all.push_back(product("addmm", [](OpInputs& in, const Shape& s) -> OpCall {
    return [c = in.normal({s[0], s[1]}), a = in.normal({s[0], s[2]}), b = in.normal({s[2], s[1]})] {
      return addmm(c, a, b);
    };
  }));
  all.push_back(product("mv", [](OpInputs& in, const Shape& s) -> OpCall {
    return [a = in.normal({s[0], s[2]}), x = in.normal({s[2]})] { return mv(a, x); };
  }));
  all.push_back(product("outer", [](OpInputs& in, const Shape& s) -> OpCall {
    return [a = in.normal({s[0]}), b = in.normal({s[1]})] { return outer(a, b); };
  }));
  all.push_back(
      {.name = "bmm",  // [batch, m, n, k]
       .shapes = {.gpu = {{64, 512, 512, 128}}, .cpu = {{32, 256, 256, 64}}, .smoke = {2, 3, 5, 4}},
       .make = [](OpInputs& in, const Shape& s) -> OpCall {
         return [a = in.normal({s[0], s[1], s[3]}), b = in.normal({s[0], s[3], s[2]})] {
           return bmm(a, b);
         };
       }});
  all.push_back({.name = "dot",
                 .shapes = {.gpu = {{1 << 25}}, .cpu = {{1 << 20}}, .smoke = {9}},
                 .make = [](OpInputs& in, const Shape& s) -> OpCall {
                   return [a = in.normal(s), b = in.normal(s)] { return dot(a, b); };
                 }});
}

}  // namespace tessera
