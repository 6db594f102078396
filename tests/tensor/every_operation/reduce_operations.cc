// Rows for ops/reduce.h and ops/order.h.
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

}  // namespace tessera::testing
