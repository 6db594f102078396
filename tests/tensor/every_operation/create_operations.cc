// Rows for ops/create.h, random.h and ops/random.h: tensors that are created and filled.
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/random.h"
#include "tessera/tensor/random.h"
#include "tessera/tests/tensor/every_operation/operation.h"

namespace tessera::testing {
namespace {

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
