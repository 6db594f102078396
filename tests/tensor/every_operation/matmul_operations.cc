// Rows for ops/matmul.h.
#include "tessera/tensor/ops/matmul.h"
#include "tessera/tests/tensor/every_operation/operation.h"

namespace tessera::testing {
namespace {

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
