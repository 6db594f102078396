// Rows for ops/shape.h and ops/index.h.

#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/index.h"
#include "tessera/tensor/ops/random.h"
#include "tessera/tensor/ops/shape.h"
#include "tessera/tensor/random.h"
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

Operations shape_operations() {
  const Operand matrices = any({2, 3, 5}).not_shaped({5});
  return {
      {"cat",
       {same({3, 5}).not_shaped({4, 5}), same({3, 2}).not_shaped({4, 2}).not_shaped({3, 2, 1})},
       [](const Call& t) {
         cat({t[0], t[1]}, 1);
       }},
      {"stack",
       {same({3, 5}).not_shaped({3, 4}), same({3, 5}).not_shaped({5})},
       [](const Call& t) {
         stack({t[0], t[1]}, 1);
       }},
      {"split",
       {with_dim_1(any({3, 5})).not_shaped({3, 4})},
       [](const Call& t) {
         split(t[0], {2, 3}, 1);
       }},
      {"split", {with_dim_1(any({3, 5}))}, [](const Call& t) { split(t[0], std::int64_t{2}, 1); }},
      {"chunk", {with_dim_1(any({3, 5}))}, [](const Call& t) { chunk(t[0], 2, 1); }},
      {"unbind", {with_dim_1(any({3, 5}))}, [](const Call& t) { unbind(t[0], 1); }},
      {"pad",
       {any({3, 5}).not_shaped({5})},
       [](const Call& t) {
         pad(t[0], {{1, 2}, {0, 3}});
       }},
      {"pad",
       {any({3, 5}).not_shaped({3, 2}).not_shaped({0, 0})},
       [](const Call& t) {
         pad(t[0], {{-2, -1}});
       }},
      {"roll", {with_dim_1(any({3, 5}))}, [](const Call& t) { roll(t[0], 2, 1); }},
      {"flip", {with_dim_1(any({3, 5}))}, [](const Call& t) { flip(t[0], {1}); }},
      {"repeat",
       {any({3, 5}).not_shaped({1, 3, 5})},
       [](const Call& t) {
         repeat(t[0], {2, 3});
       }},
      {"tile", {any({3, 5})}, [](const Call& t) { tile(t[0], {2}); }},
      {"repeat_interleave",
       {with_dim_1(any({3, 5}))},
       [](const Call& t) { repeat_interleave(t[0], 2, 1); }},
      {"tril", {matrices}, [](const Call& t) { tril(t[0], 1); }},
      {"triu", {matrices}, [](const Call& t) { triu(t[0], -1); }},
  };
}

Operations index_operations() {
  const Operand mask = Operand{.shape = {5}, .dtype = DType::kBool}
                           .not_of({DType::kF32, DType::kI64})
                           .not_shaped({4})
                           .not_shaped({2, 3, 5}),
                masked = any({3, 5}).not_shaped({3, 4});
  return {
      {"gather",
       {any({4, 5}).not_shaped({2, 5}).not_shaped({5}, kNoDim1),
        positions({3, 2}).not_shaped({5, 2}).not_shaped({2})},
       [](const Call& t) { gather(t[0], 1, t[1]); }},
      {"take_along_dim",
       {any({4, 5}).not_shaped({3, 5}).not_shaped({5}, kNoDim1),
        positions({4, 2}).not_shaped({3, 2}).not_shaped({2})},
       [](const Call& t) { take_along_dim(t[0], t[1], 1); }},
      scattering<Scattered>("scatter", scatter),
      scattering<ScatteredInPlace>("scatter_", scatter_),
      scattering<Scattered>("scatter_add", scatter_add, true),
      scattering<ScatteredInPlace>("scatter_add_", scatter_add_, true),
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
      {"masked_fill", {masked, mask}, [](const Call& t) { masked_fill(t[0], t[1], 0.5); }},
      {"masked_fill_", {masked, mask}, [](const Call& t) { masked_fill_(t[0], t[1], 0.5); }},
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

namespace {

// Rows for ops/create.h, random.h and ops/random.h: tensors that are created and filled.
const random::Box kBox = {.global = {6, 5}, .offset = {2, 0}};

// A tensor that fits kBox, and the shapes that do not.
Operand box(const Operand& operand) { return operand.not_shaped({5, 5}).not_shaped({5}); }

}  // namespace

Operations create_operations() {
  return {
      {"zeros",
       {},
       [](const Call& t) {
         zeros({3, 5}, t.options());
       }},
      {"ones",
       {},
       [](const Call& t) {
         ones({3, 5}, t.options(DType::kBool));
       }},
      {"full",
       {},
       [](const Call& t) {
         full({3, 5}, 0.5, t.options(DType::kF16));
       }},
      {"empty",
       {},
       [](const Call& t) {
         empty({3, 5}, t.options());
       }},
      {"zeros_like", {any({3, 5})}, [](const Call& t) { zeros_like(t[0]); }},
      {"ones_like", {any({3, 5})}, [](const Call& t) { ones_like(t[0]); }},
      {"full_like", {any({3, 5})}, [](const Call& t) { full_like(t[0], 0.5); }},
      {"empty_like", {any({3, 5})}, [](const Call& t) { empty_like(t[0]); }},
      {"arange", {}, [](const Call& t) { arange(7, t.options(DType::kI64)); }},
      {"arange", {}, [](const Call& t) { arange(1, 7, 1.5, t.options()); }},
      {"linspace", {}, [](const Call& t) { linspace(0, 1, 7, t.options()); }},
      {"eye", {}, [](const Call& t) { eye(3, 5, t.options()); }},
      {"fill_", {any({3, 5})}, [](const Call& t) { fill_(t[0], 0.5); }},
      {"zero_", {any({3, 5})}, [](const Call& t) { zero_(t[0]); }},
  };
}

Operations random_operations() {
  using namespace random;
  return {
      {"fill_uniform",
       {box(floating({3, 5}))},
       [](const Call& t) { fill_uniform(t[0], {7}, kBox, 0, 1); }},
      {"fill_normal",
       {box(floating({3, 5}))},
       [](const Call& t) { fill_normal(t[0], {7}, kBox, 0, 1); }},
      {"fill_truncated_normal",
       {box(floating({3, 5}))},
       [](const Call& t) { fill_truncated_normal(t[0], {7}, kBox); }},
      {"fill_bernoulli",
       {box(any({3, 5}))},
       [](const Call& t) { fill_bernoulli(t[0], {7}, kBox, 0.5); }},
      {"fill_integers",
       {box(any({3, 5})).not_of({DType::kU8})},
       [](const Call& t) { fill_integers(t[0], {7}, kBox, -3, 4); }},
      {"rand",
       {},
       [](const Call& t) {
         rand({3, 5}, t.options());
       }},
      {"randn",
       {},
       [](const Call& t) {
         randn({3, 5}, t.options(DType::kBF16));
       }},
      {"normal",
       {},
       [](const Call& t) {
         normal(2, 0.5, {3, 5}, t.options(DType::kF64));
       }},
      {"randint",
       {},
       [](const Call& t) {
         randint(-3, 4, {3, 5}, t.options(DType::kI32));
       }},
      {"randperm", {}, [](const Call& t) { randperm(7, t.options(DType::kI32)); }},
      {"bernoulli", {floating({3, 5})}, [](const Call& t) { bernoulli(t[0]); }},
      {"rand_like", {floating({3, 5})}, [](const Call& t) { rand_like(t[0]); }},
      {"randn_like", {floating({3, 5})}, [](const Call& t) { randn_like(t[0]); }},
  };
}

}  // namespace tessera::testing
