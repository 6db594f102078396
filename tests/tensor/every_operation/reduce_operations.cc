// Rows for ops/reduce.h, ops/scan.h, ops/order.h, ops/quantile.h and ops/counting.h.

#include <optional>

#include "tessera/tensor/ops/counting.h"
#include "tessera/tensor/ops/matmul.h"
#include "tessera/tensor/ops/order.h"
#include "tessera/tensor/ops/quantile.h"
#include "tessera/tensor/ops/reduce.h"
#include "tessera/tensor/ops/scan.h"
#include "tessera/tests/tensor/every_operation/operation.h"

namespace tessera::testing {
namespace {

struct Reduction {
  const char* name;
  Tensor (*call)(const Tensor&, const DimList&, bool);
  Operand x;
};

struct Deviation {
  const char* name;
  Tensor (*call)(const Tensor&, const DimList&, const VarOptions&);
};

Operations scan_and_order_operations() {
  const Operand numbers = with_dim_1(any({3, 5})), floats = with_dim_1(floating({3, 5}));
  const Operand some = any({3, 5}).not_shaped({3, 0}),
                some_along = numbers.not_shaped({3, 0}).not_shaped({}, kNoDim1);
  return {
      {"cumprod", {numbers}, [](const Call& t) { cumprod(t[0], 1, {.dtype = DType::kF64}); }},
      {"logcumsumexp", {floats}, [](const Call& t) { logcumsumexp(t[0], 1); }},
      {"cummax", {numbers}, [](const Call& t) { cummax(t[0], 1); }},
      {"cummin", {numbers}, [](const Call& t) { cummin(t[0], 1); }},
      {"argmax", {some}, [](const Call& t) { argmax(t[0], std::nullopt); }},
      {"kthvalue", {numbers.not_shaped({5, 1})}, [](const Call& t) { kthvalue(t[0], 2, 1); }},
      {"median", {some_along}, [](const Call& t) { median(t[0], 1); }},
      {"nanmedian", {some_along}, [](const Call& t) { nanmedian(t[0], 1); }},
      {"median", {some}, [](const Call& t) { median(t[0]); }},
      {"nanmedian", {some}, [](const Call& t) { nanmedian(t[0]); }},
      {"mode", {some_along}, [](const Call& t) { mode(t[0], 1); }},
      {"quantile",
       {floats.not_shaped({3, 0})},
       [](const Call& t) { quantile(t[0], 0.3, {.dim = 1}); }},
      {"quantile",
       {floating({3, 5}).not_shaped({3, 0})},
       [](const Call& t) {
         quantile(t[0], std::vector<double>{0, 0.25, 1});
       }},
  };
}

Operations counting_operations() {
  return {
      {"unique",
       {any({3, 5})},
       [](const Call& t) {
         unique(t[0], {.return_inverse = true, .return_counts = true, .bound = 9});
       }},
      {"unique",
       {any({3, 5})},
       [](const Call& t) {
         unique(t[0], {.return_inverse = true, .return_counts = true, .dim = 1, .bound = 5});
       }},
      {"unique_consecutive",
       {any({3, 5})},
       [](const Call& t) { unique_consecutive(t[0], {.return_inverse = true, .bound = 15}); }},
      {"bincount",
       {positions({7}).not_of({DType::kF32, DType::kBool}).not_shaped({7, 1}),
        any({7}).not_shaped({6}).or_undefined()},
       [](const Call& t) { bincount(t[0], {.weights = t[1], .bound = 5}); }},
      {"histc", {floating({3, 5})}, [](const Call& t) { histc(t[0], {.bins = 7, .max = 1}); }},
      {"histc", {floating({3, 5})}, [](const Call& t) { histc(t[0]); }},
      {"searchsorted",
       {any({3, 5}).not_shaped({}).not_shaped({2, 5}), any({3, 4}).not_shaped({2, 4})},
       [](const Call& t) { searchsorted(t[0], t[1], {.right = true}); }},
      {"bucketize",
       {any({3, 5}), any({7}).not_shaped({}).not_shaped({7, 1})},
       [](const Call& t) { bucketize(t[0], t[1]); }},
  };
}

// Sums over all elements, over rows, and down to a shape.
Operations total_operations() {
  return {
      {"sum_of_squares", {floating({3, 5})}, [](const Call& t) { sum_of_squares(t[0]); }},
      {"sum_of_squares",
       {floating({3, 5}), floating({4})},
       [](const Call& t) {
         sum_of_squares(std::vector<Tensor>{t[0], t[1]});
       }},
      {"sum_rows_",
       {any({5}).not_of({DType::kI64, DType::kF64}).not_shaped({4}),
        any({3, 5}).in(DType::kBF16).not_of({DType::kI64, DType::kF32}).not_shaped({5})},
       [](const Call& t) { sum_rows_(t[0], t[1]); }},
      {"sum_to_shape",
       {any({3, 5}).not_shaped({3, 4}).not_shaped({5})},
       [](const Call& t) {
         sum_to_shape(t[0], {1, 5});
       }},
  };
}

}  // namespace

Operations reduce_operations() {
  const Operand numbers = with_dim_1(any({3, 5})), floats = with_dim_1(floating({3, 5}));
  const Operand some = any({3, 5}).not_shaped({3, 0}),
                some_along = numbers.not_shaped({3, 0}).not_shaped({}, kNoDim1);
  Operations table = {
      {"var_mean", {floats}, [](const Call& t) { var_mean(t[0], {1}); }},
      {"std_mean", {floats}, [](const Call& t) { std_mean(t[0], {1}); }},
      {"norm", {floats}, [](const Call& t) { norm(t[0], {1}); }},
      {"norm", {floating({3, 5})}, [](const Call& t) { norm(t[0], {}, {.p = 3}); }},
      {"sum", {numbers}, [](const Call& t) { sum(t[0], {1}, {.dtype = DType::kF64}); }},
      {"mean", {numbers}, [](const Call& t) { mean(t[0], {1}, {.dtype = DType::kF32}); }},
      {"prod", {numbers}, [](const Call& t) { prod(t[0], {1}, {.dtype = DType::kI32}); }},
      {"cumsum", {numbers}, [](const Call& t) { cumsum(t[0], 1, {.reverse = true}); }},
      {"argmax", {some_along}, [](const Call& t) { argmax(t[0], 1); }},
      {"argmin", {some_along}, [](const Call& t) { argmin(t[0], 1); }},
      {"max", {some_along}, [](const Call& t) { max(t[0], 1); }},
      {"min", {some_along}, [](const Call& t) { min(t[0], 1); }},
      {"max", {some}, [](const Call& t) { max(t[0]); }},
      {"min", {some}, [](const Call& t) { min(t[0]); }},
      {"aminmax", {numbers.not_shaped({3, 0})}, [](const Call& t) { aminmax(t[0], {1}); }},
      {"sort", {numbers}, [](const Call& t) { sort(t[0], 1); }},
      {"argsort", {numbers}, [](const Call& t) { argsort(t[0], 1); }},
      {"topk", {numbers.not_shaped({5, 1})}, [](const Call& t) { topk(t[0], 2, 1); }},
  };
  for (const auto& [name, op, x] : {
           Reduction{"sum", sum, numbers},
           Reduction{"mean", mean, floats},
           Reduction{"prod", prod, numbers},
           Reduction{"amax", amax, numbers.not_shaped({3, 0})},
           Reduction{"amin", amin, numbers.not_shaped({3, 0})},
           Reduction{"any", [](const Tensor&x, const DimList&d, bool k) { return any(x, d, k); },
                     numbers},
           Reduction{"all", [](const Tensor&x, const DimList&d, bool k) { return all(x, d, k); },
                     numbers},
           Reduction{"logsumexp", logsumexp, floats},
           Reduction{"nansum", nansum, numbers},
           Reduction{"nanmean", nanmean, floats},
           Reduction{"count_nonzero", count_nonzero, numbers},
       }) {
    table.push_back({name, {x}, [op](const Call& t) { op(t[0], {1}, false); }});
    table.push_back({name, {x}, [op](const Call& t) { op(t[0], {}, true); }});
    table.back().operands[0].wrong_shapes.clear();  // over all dims of any shape
  }
  for (const auto& more : {total_operations(), scan_and_order_operations(), counting_operations()})
    table.insert(table.end(), more.begin(), more.end());
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
       [](const Call& t) { linear_and_before(t[0], t[1], t[2], ActivationKind::kGelu); },
       "linear"},
      {"bmm",
       {matching({2, 3, 5}).not_shaped({3, 3, 5}), matching({2, 5, 3}).not_shaped({1, 5, 3})},
       [](const Call& t) { bmm(t[0], t[1]); }},
      {"addmm",
       {matching({3}).not_shaped({4}), matching({7, 5}).not_shaped({7, 4}),
        matching({5, 3}).not_shaped({1, 5, 3})},
       [](const Call& t) { addmm(t[0], t[1], t[2], {.beta = 2}); }},
      {"baddbmm",
       {matching({3}).not_shaped({4}), matching({2, 7, 5}).not_shaped({3, 7, 5}),
        matching({2, 5, 3}).not_shaped({5, 3})},
       [](const Call& t) { baddbmm(t[0], t[1], t[2], {.beta = 2}); }},
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
