// Rows for ops/index.h and ops/mask.h.

#include "tessera/tensor/ops/index.h"

#include "tessera/tensor/ops/mask.h"
#include "tessera/tests/tensor/every_operation/operation.h"

namespace tessera::testing {
namespace {

using Scattered = Tensor (*)(const Tensor&, int, const Tensor&, const Tensor&);
using ScatteredInPlace = void (*)(const Tensor&, int, const Tensor&, const Tensor&);

// x, the index and the source of scatter, along dim 1. For sums, bool is rejected.
template <class Op>
Operation scattering(const char* name, Op op, bool adds = false) {
  std::vector<DType> wrong = {DType::kF64};
  if (adds) wrong.push_back(DType::kBool);
  const Operand x = any({4, 5}).not_of(wrong).not_shaped({2, 5}).not_shaped({5}, kNoDim1),
                index = positions({3, 2}).not_shaped({5, 2}).not_shaped({2}),
                src = same({3, 7}).not_shaped({3, 1}).not_shaped({3});
  return {name, {x, index, src}, [op](const Call& t) { op(t[0], 1, t[1], t[2]); }};
}

}  // namespace

Operations scatter_operations() {
  const Operand x = any({4, 5}).not_of({DType::kF64}).not_shaped({3, 5}).not_shaped({5}, kNoDim1),
                list = positions({2}).not_shaped({3}, "[4, 3]").not_shaped({2, 1}),
                slices = same({4, 2}).not_shaped({4, 3}).not_shaped({4}),
                summed = x.not_of({DType::kF64, DType::kBool});
  return {
      scattering<Scattered>("scatter", scatter),
      scattering<ScatteredInPlace>("scatter_", scatter_),
      {"scatter",
       {any({4, 5}).not_shaped({2, 5}).not_shaped({5}, kNoDim1),
        positions({3, 2}).not_shaped({5, 2}).not_shaped({2})},
       [](const Call& t) { scatter(t[0], 1, t[1], 2); }},
      {"scatter_",
       {any({4, 5}).not_shaped({2, 5}).not_shaped({5}, kNoDim1),
        positions({3, 2}).not_shaped({5, 2}).not_shaped({2})},
       [](const Call& t) { scatter_(t[0], 1, t[1], 2); }},
      scattering<Scattered>("scatter_add", scatter_add, true),
      scattering<ScatteredInPlace>("scatter_add_", scatter_add_, true),
      scattering<Scattered>(
          "scatter_reduce",
          [](const Tensor& x, int dim, const Tensor& index, const Tensor& src) {
            return scatter_reduce(x, dim, index, src, {.reduce = ScatterReduce::kMean});
          },
          true),
      scattering<ScatteredInPlace>(
          "scatter_reduce_",
          [](const Tensor& x, int dim, const Tensor& index, const Tensor& src) {
            scatter_reduce_(x, dim, index, src,
                            {.reduce = ScatterReduce::kAmax, .include_self = false});
          },
          true),
      {"index_add",
       {summed, list, slices},
       [](const Call& t) { index_add(t[0], 1, t[1], t[2], {.alpha = 2}); }},
      {"index_add_",
       {summed, list, slices},
       [](const Call& t) { index_add_(t[0], 1, t[1], t[2]); }},
      {"index_copy", {x, list, slices}, [](const Call& t) { index_copy(t[0], 1, t[1], t[2]); }},
      {"index_copy_", {x, list, slices}, [](const Call& t) { index_copy_(t[0], 1, t[1], t[2]); }},
      {"index_fill",
       {with_dim_1(any({4, 5})), positions({2}).not_shaped({2, 1})},
       [](const Call& t) { index_fill(t[0], 1, t[1], 2); }},
      {"index_fill_",
       {with_dim_1(any({4, 5})), positions({2}).not_shaped({2, 1})},
       [](const Call& t) { index_fill_(t[0], 1, t[1], 2); }},
      {"index_fill",
       {with_dim_1(any({4, 5})), positions({2}).not_shaped({2, 1}), any({}).not_shaped({1})},
       [](const Call& t) { index_fill(t[0], 1, t[1], t[2]); }},
  };
}

Operations index_operations() {
  return {
      {"gather",
       {any({4, 5}).not_shaped({2, 5}).not_shaped({5}, kNoDim1),
        positions({3, 2}).not_shaped({5, 2}).not_shaped({2})},
       [](const Call& t) { gather(t[0], 1, t[1]); }},
      {"take_along_dim",
       {any({4, 5}).not_shaped({3, 5}).not_shaped({5}, kNoDim1),
        positions({4, 2}).not_shaped({3, 2}).not_shaped({2})},
       [](const Call& t) { take_along_dim(t[0], t[1], 1); }},
      {"take", {any({3, 5}), positions({2, 1})}, [](const Call& t) { take(t[0], t[1]); }},
      {"index_select",
       {with_dim_1(any({3, 5})), positions({3}).not_shaped({3, 1})},
       [](const Call& t) { index_select(t[0], 1, t[1]); }},
      {"index",
       {any({3, 5}).not_shaped({5}), positions({2, 1}).not_shaped({4, 7}),
        positions({3}).not_shaped({3, 7})},
       [](const Call& t) {
         index(t[0], {t[1], t[2]});
       }},
      {"index", {any({3, 5}), positions({7})}, [](const Call& t) { index(t[0], {t[1]}); }},
      {"index_put",
       {same({3, 5}).not_shaped({3, 4}, "[2, 5] and [2, 4]"),
        positions({2}).not_shaped({7}, "[2, 5] and [7, 5]"), same({2, 5}).not_shaped({2, 4})},
       [](const Call& t) { index_put(t[0], {t[1]}, t[2]); }},
      {"index_put",
       {same({3, 5}).not_shaped({5}), positions({2}).not_shaped({7}),
        positions({2}).not_shaped({7}), same({2}).not_shaped({4})},
       [](const Call& t) {
         index_put(t[0], {t[1], t[2]}, t[3], {.accumulate = true});
       }},
      {"index_put_",
       {same({3, 5}).not_shaped({3, 4}, "[2, 5] and [2, 4]"),
        positions({2}).not_shaped({7}, "[2, 5] and [7, 5]"), same({2, 5}).not_shaped({2, 4})},
       [](const Call& t) { index_put_(t[0], {t[1]}, t[2]); }},
      {"one_hot", {positions({2, 3})}, [](const Call& t) { one_hot(t[0], 5); }},
      {"embedding",
       {any({7, 5}).not_shaped({7}).not_shaped({7, 5, 1}), positions({2, 3})},
       [](const Call& t) { embedding(t[0], t[1]); }},
      {"embedding_backward_into",
       {floating({7, 5}).not_shaped({7}), any({2, 3, 5}).not_shaped({2, 3, 4}),
        positions({2, 3}).not_shaped({2, 4}, "[2, 4, 5]")},
       [](const Call& t) { embedding_backward_into(t[0], t[1], t[2], {.beta = 0.5}); }},
  };
}

Operations mask_operations() {
  const Operand mask = Operand{.shape = {5}, .dtype = DType::kBool}
                           .not_of({DType::kF32, DType::kI64})
                           .not_shaped({4}),
                inside = mask.not_shaped({2, 3, 5}), only_bool = mask.not_of({DType::kU8}),
                masked = any({3, 5}).not_shaped({3, 4}), alike = same({3, 5}).not_shaped({3, 4});
  return {
      {.name = "nonzero",
       .operands = {any({3, 5})},
       .call = [](const Call& t) { nonzero(t[0]); },
       .values_decide = true},
      {.name = "nonzero_as_tuple",
       .operands = {any({3, 5})},
       .call = [](const Call& t) { nonzero_as_tuple(t[0]); },
       .values_decide = true},
      {"nonzero_static", {any({3, 5})}, [](const Call& t) { nonzero_static(t[0], 7); }},
      {.name = "masked_select",
       .operands = {masked, only_bool},
       .call = [](const Call& t) { masked_select(t[0], t[1]); },
       .values_decide = true},
      {.name = "index",
       .operands = {any({5, 3}).not_shaped({4, 3}), only_bool.not_shaped({5, 2})},
       .call = [](const Call& t) { index(t[0], {t[1]}); },
       .values_decide = true},
      {.name = "index_put",
       .operands = {same({5, 3}), only_bool, same({3})},
       .call = [](const Call& t) { index_put(t[0], {t[1]}, t[2]); },
       .values_decide = true},
      {"masked_scatter",
       {alike, only_bool, same({15})},
       [](const Call& t) { masked_scatter(t[0], t[1], t[2]); }},
      {"masked_scatter_",
       {alike, only_bool.not_shaped({2, 3, 5}), same({15})},
       [](const Call& t) { masked_scatter_(t[0], t[1], t[2]); }},
      {"masked_fill", {masked, mask}, [](const Call& t) { masked_fill(t[0], t[1], 0.5); }},
      {"masked_fill",
       {masked, mask, any({}).not_shaped({1})},
       [](const Call& t) { masked_fill(t[0], t[1], t[2]); }},
      {"masked_fill_", {masked, inside}, [](const Call& t) { masked_fill_(t[0], t[1], 0.5); }},
      {"masked_fill_",
       {masked, inside, any({}).not_shaped({1})},
       [](const Call& t) { masked_fill_(t[0], t[1], t[2]); }},
  };
}

}  // namespace tessera::testing
