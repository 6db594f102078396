// Rows for ops/reduce.h and ops/order.h.

#include "tessera/tensor/ops/matmul.h"
#include "tessera/tensor/ops/order.h"
#include "tessera/tensor/ops/reduce.h"
#include "tessera/tests/tensor/every_operation/operation.h"

namespace tessera::testing {
namespace {

struct Reduction {
  const char* name;
  Tensor (*call)(const Tensor&, const Dims&, bool);
  Operand x;
};

struct Deviation {
  const char* name;
  Tensor (*call)(const Tensor&, const Dims&, const VarOptions&);
};

}  // namespace

Operations reduce_operations() {
  const Operand numbers = with_dim_1(any({3, 5})), floats = with_dim_1(floating({3, 5}));
  const Operand some = any({3, 5}).not_shaped({3, 0}), along = numbers.not_shaped({}, "0-d"),
                some_along = along.not_shaped({3, 0});
  Operations table = {
      {"var_mean", {floats}, [](const Call& t) { var_mean(t[0], {1}); }},
      {"norm", {floats}, [](const Call& t) { norm(t[0], {1}); }},
      {"norm", {floating({3, 5})}, [](const Call& t) { norm(t[0], {}, {.p = 3}); }},
      {"sum_of_squares", {floating({3, 5})}, [](const Call& t) { sum_of_squares(t[0]); }},
      {"sum_of_squares",
       {floating({3, 5}), floating({4})},
       [](const Call& t) {
         sum_of_squares(std::vector<Tensor>{t[0], t[1]});
       }},
      {"sum_to_shape",
       {any({3, 5}).not_shaped({3, 4}).not_shaped({5})},
       [](const Call& t) {
         sum_to_shape(t[0], {1, 5});
       }},
      {"cumsum", {numbers}, [](const Call& t) { cumsum(t[0], 1, {.reverse = true}); }},
      {"argmax", {some_along}, [](const Call& t) { argmax(t[0], 1); }},
      {"argmin", {some_along}, [](const Call& t) { argmin(t[0], 1); }},
      {"max", {some_along}, [](const Call& t) { max(t[0], 1); }},
      {"min", {some_along}, [](const Call& t) { min(t[0], 1); }},
      {"max", {some}, [](const Call& t) { max(t[0]); }},
      {"min", {some}, [](const Call& t) { min(t[0]); }},
      {"sort", {along}, [](const Call& t) { sort(t[0], 1); }},
      {"argsort", {along}, [](const Call& t) { argsort(t[0], 1); }},
      {"topk", {along.not_shaped({5, 1})}, [](const Call& t) { topk(t[0], 2, 1); }},
  };
  for (const auto& [name, op, x] : {
           Reduction{"sum", sum, numbers},
           Reduction{"mean", mean, floats},
           Reduction{"prod", prod, numbers},
           Reduction{"amax", amax, numbers.not_shaped({3, 0})},
           Reduction{"amin", amin, numbers.not_shaped({3, 0})},
           Reduction{"any", tessera::any, numbers},
           Reduction{"all", all, numbers},
           Reduction{"logsumexp", logsumexp, floats},
       }) {
    table.push_back({name, {x}, [op](const Call& t) { op(t[0], {1}, false); }});
    table.push_back({name, {x}, [op](const Call& t) { op(t[0], {}, true); }});
    table.back().operands[0].wrong_shapes.clear();  // over all dims of any shape
  }
  for (const auto& [name, op] : {Deviation{"var", var}, Deviation{"stddev", stddev}})
    table.push_back({name, {floats}, [op](const Call& t) { op(t[0], {1}, {}); }});
  return table;
}

namespace {

// Rows for ops/matmul.h.

// The same products in the dtypes that use other code.
void add_other_dtypes(Operations& table) {
  for (DType dtype : {DType::kF64, DType::kBF16, DType::kF16}) {
    const Operand a = any({6, 5}).in(dtype).not_of({DType::kI64, DType::kF32}),
                  b = any({5, 3}).in(dtype).not_of({DType::kI64, DType::kF32});
    table.push_back({"matmul", {a, b}, [](const Call& t) { matmul(t[0], t[1]); }});
    table.push_back({"matmul_into", {floating({6, 3}), a, b}, [](const Call& t) {
                       matmul_into(t[0], t[1], t[2], {.beta = 1});
                     }});
  }
}

}  // namespace

Operations matmul_operations() {
  const Operand bias = matching({3}).not_shaped({4}).or_undefined();
  Operations table = {
      {"matmul",
       {matching({6, 5}).not_shaped({6, 4}).not_shaped({}), matching({5, 3}).not_shaped({4, 3})},
       [](const Call& t) { matmul(t[0], t[1]); }},
      {"matmul",
       {matching({2, 1, 3, 5}).not_shaped({2, 3, 3, 5}, "[2, 3] and [7] do not broadcast"),
        matching({7, 5, 3}).not_shaped({7, 4, 3})},
       [](const Call& t) { matmul(t[0], t[1]); }},
      {"matmul",
       {matching({2, 3, 5}), matching({2, 5, 3})},
       [](const Call& t) { matmul(t[0], t[1]); }},
      {"matmul_into",
       {floating({6, 3}).not_shaped({6, 4}), matching({6, 5}).not_shaped({6, 4}).not_shaped({5}),
        matching({5, 3}).not_shaped({4, 3})},
       [](const Call& t) { matmul_into(t[0], t[1], t[2], {.beta = 1}); }},
      {"linear",
       {matching({2, 7, 5}).not_shaped({2, 7, 4}).not_shaped({}),
        matching({3, 5}).not_shaped({3, 4}).not_shaped({5}), bias},
       [](const Call& t) { linear(t[0], t[1], t[2]); }},
      {"linear_and_before",
       {matching({7, 5}).not_shaped({7, 4}), matching({3, 5}).not_shaped({3, 4}), bias},
       [](const Call& t) { linear_and_before(t[0], t[1], t[2], Activation::kGelu); },
       "linear"},
      {"bmm",
       {matching({2, 3, 5}).not_shaped({3, 3, 5}), matching({2, 5, 3}).not_shaped({1, 5, 3})},
       [](const Call& t) { bmm(t[0], t[1]); }},
      {"addmm",
       {matching({3}).not_shaped({4}), matching({7, 5}).not_shaped({7, 4}),
        matching({5, 3}).not_shaped({1, 5, 3})},
       [](const Call& t) { addmm(t[0], t[1], t[2], {.beta = 2}); }},
      {"mv",
       {matching({3, 5}).not_shaped({3, 4}), matching({5}).not_shaped({4}).not_shaped({5, 1})},
       [](const Call& t) { mv(t[0], t[1]); }},
      {"dot",
       {matching({5}).not_shaped({4}), matching({5}).not_shaped({5, 1})},
       [](const Call& t) { dot(t[0], t[1]); }},
      {"outer",
       {matching({3}).not_shaped({3, 1}), matching({5}).not_shaped({})},
       [](const Call& t) { outer(t[0], t[1]); }},
  };
  add_other_dtypes(table);
  return table;
}

}  // namespace tessera::testing
