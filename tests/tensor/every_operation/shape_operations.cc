// Rows for ops/shape.h; for tensors that are created and filled.

#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/random.h"
#include "tessera/tensor/ops/shape.h"
#include "tessera/tensor/ops/view.h"
#include "tessera/tensor/random.h"
#include "tessera/tests/tensor/every_operation/operation.h"

namespace tessera::testing {
Operations shape_operations() {
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
      {"pad",
       {any({3, 5}).not_shaped({5}).not_shaped({1, 5})},
       [](const Call& t) {
         pad(t[0], {{1, 1}, {0, 2}}, PadMode::kReflect);
       }},
  };
}

Operations rearrange_operations() {
  const Operand matrices = any({2, 3, 5}).not_shaped({5});
  return {
      {"roll", {with_dim_1(any({3, 5}))}, [](const Call& t) { roll(t[0], 2, 1); }},
      {"roll",
       {with_dim_1(any({3, 5}))},
       [](const Call& t) {
         roll(t[0], {2, -1}, {1, 0});
       }},
      {"roll", {any({3, 5})}, [](const Call& t) { roll(t[0], 2); }},
      {"fliplr", {any({3, 5}).not_shaped({5})}, [](const Call& t) { fliplr(t[0]); }},
      {"flipud", {any({3, 5}).not_shaped({}, "0-d")}, [](const Call& t) { flipud(t[0]); }},
      {"rot90", {with_dim_1(any({3, 5}))}, [](const Call& t) { rot90(t[0], 3, 0, 1); }},
      {"ravel", {any({3, 5})}, [](const Call& t) { ravel(t[0]); }},
      {"reshape_as",
       {any({3, 5}).not_shaped({3, 4}), any({5, 3}).not_shaped({5, 2})},
       [](const Call& t) { reshape_as(t[0], t[1]); }},
      {"unfold",
       {with_dim_1(any({3, 5})).not_shaped({3, 1})},
       [](const Call& t) { unfold(t[0], 1, 2, 1); }},
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
      {"repeat_interleave",
       {with_dim_1(any({3, 5})), positions({5}).not_shaped({4})},
       [](const Call& t) { repeat_interleave(t[0], t[1], 1, {.output_size = 5}); }},
      {.name = "repeat_interleave",
       .operands = {any({3, 5}), positions({5})},
       .call = [](const Call& t) { repeat_interleave(t[0], t[1], 1); },
       .values_decide = true},
      {"tril", {matrices}, [](const Call& t) { tril(t[0], 1); }},
      {"triu", {matrices}, [](const Call& t) { triu(t[0], -1); }},
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
      {"empty_rows",
       {},
       [](const Call& t) {
         empty_rows({3, 5}, RowPitch::kAligned, t.options());
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
      {"logspace", {}, [](const Call& t) { logspace(0, 1, 7, 2, t.options()); }},
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
      {"multinomial",
       {floating({3, 5}).not_shaped({}).not_shaped({3, 0})},
       [](const Call& t) { multinomial(t[0], 4); }},
      {"multinomial",
       {floating({3, 5})},
       [](const Call& t) { multinomial(t[0], 9, {.replacement = true}); }},
      {"rand_like", {floating({3, 5})}, [](const Call& t) { rand_like(t[0]); }},
      {"randn_like", {floating({3, 5})}, [](const Call& t) { randn_like(t[0]); }},
  };
}

}  // namespace tessera::testing
