// Rows for ops/einsum.h and ops/products.h.

#include "tessera/tensor/ops/einsum.h"
#include "tessera/tensor/ops/products.h"
#include "tessera/tests/tensor/every_operation/operation.h"

namespace tessera::testing {

Operations product_operations() {
  const Operand batch = matching({2, 3, 5}).not_shaped({4, 3, 5}).not_shaped({3, 5}),
                batches = matching({2, 5, 7}).not_shaped({2, 4, 7}).not_shaped({7}),
                matrix = matching({3, 5}).not_shaped({3, 4}).not_shaped({5}),
                vector = matching({5}).not_shaped({4}).not_shaped({5, 1}),
                added = matching({7}).not_shaped({4}).not_shaped({2, 1, 3, 7});
  return {
      {"einsum",
       {matching({2, 3, 5}).not_shaped({2, 3, 4}, "'j'").not_shaped({3}), batches},
       [](const Call& t) {
         einsum("bij,bjk->bik", {t[0], t[1]});
       }},
      {"einsum",
       {floating({3, 3, 2}).not_shaped({3, 2, 3}).not_shaped({3})},
       [](const Call& t) { einsum("iij->j", {t[0]}); }},
      {"tensordot",
       {matching({2, 3, 5}).not_shaped({2, 4, 5}, "4 and 3").not_shaped({3}), matching({3, 5, 2})},
       [](const Call& t) { tensordot(t[0], t[1], 2); }},
      {"tensordot",
       {matching({2, 3, 5}).not_shaped({2, 3, 4}), matching({5, 7}).not_shaped({4, 7})},
       [](const Call& t) { tensordot(t[0], t[1], {2}, {0}); }},
      {"inner",
       {matching({3, 5}).not_shaped({3, 4}), matching({2, 5}).not_shaped({2, 4})},
       [](const Call& t) { inner(t[0], t[1]); }},
      {"addbmm",
       {added, batch, batches},
       [](const Call& t) { addbmm(t[0], t[1], t[2], {.beta = 2}); }},
      {"addmv",
       {matching({3}).not_shaped({4}).not_shaped({1, 3}), matrix, vector},
       [](const Call& t) { addmv(t[0], t[1], t[2], {.alpha = 2}); }},
      {"addr",
       {matching({3, 5}).not_shaped({3, 4}), matching({3}).not_shaped({3, 1}),
        matching({5}).not_shaped({4}, "[3, 4]").not_shaped({5, 1})},
       [](const Call& t) { addr(t[0], t[1], t[2]); }},
      {"vdot", {vector, vector}, [](const Call& t) { vdot(t[0], t[1]); }},
      {"kron",
       {any({3, 5}).not_shaped({1, 1, 1, 1, 1}), any({2})},
       [](const Call& t) { kron(t[0], t[1]); }},
      {"cross",
       {any({2, 3}).not_shaped({2, 4}).not_shaped({3}), any({1, 3}).not_shaped({3})},
       [](const Call& t) { cross(t[0], t[1]); }},
      {"matrix_power",
       {floating({2, 3, 3}).not_shaped({2, 3, 4}).not_shaped({3})},
       [](const Call& t) { matrix_power(t[0], 5); }},
      {"multi_dot",
       {matching({3, 5}).not_shaped({3, 4}), matching({5, 2}).not_shaped({4, 2}).not_shaped({5}),
        matching({2}).not_shaped({3})},
       [](const Call& t) {
         multi_dot({t[0], t[1], t[2]});
       }},
      {"cov", {floating({3, 5}).not_shaped({2, 3, 5})}, [](const Call& t) { cov(t[0]); }},
      {"corrcoef", {floating({3, 5}).not_shaped({2, 3, 5})}, [](const Call& t) { corrcoef(t[0]); }},
  };
}

}  // namespace tessera::testing
