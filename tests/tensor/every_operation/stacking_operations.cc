// Rows for ops/stacking.h and ops/diagonal.h.

#include "tessera/tensor/ops/stacking.h"

#include "tessera/tensor/ops/diagonal.h"
#include "tessera/tests/tensor/every_operation/operation.h"

namespace tessera::testing {

Operations stacking_operations() {
  return {
      {"atleast_1d", {any({})}, [](const Call& t) { atleast_1d(t[0]); }},
      {"atleast_2d", {any({3})}, [](const Call& t) { atleast_2d(t[0]); }},
      {"atleast_3d", {any({3, 5})}, [](const Call& t) { atleast_3d(t[0]); }},
      {"hstack",
       {same({3, 5}).not_shaped({4, 5}), same({3, 2}).not_shaped({4, 2}).not_shaped({3})},
       [](const Call& t) {
         hstack({t[0], t[1]});
       }},
      {"vstack",
       {same({3, 5}).not_shaped({3, 4}), same({5}).not_shaped({4}, "[1, 4]")},
       [](const Call& t) {
         vstack({t[0], t[1]});
       }},
      {"row_stack",
       {same({3, 5}).not_shaped({3, 4}), same({5}).not_shaped({4}, "[1, 4]")},
       [](const Call& t) {
         row_stack({t[0], t[1]});
       }},
      {"dstack",
       {same({3, 5}).not_shaped({3, 4}, "[3, 4, 1]"), same({3, 5, 2}).not_shaped({3, 4, 2})},
       [](const Call& t) {
         dstack({t[0], t[1]});
       }},
      {"column_stack",
       {same({3}).not_shaped({4}, "[4, 1]"), same({3, 2}).not_shaped({4, 2})},
       [](const Call& t) {
         column_stack({t[0], t[1]});
       }},
      {"block_diag",
       {same({3, 5}).not_shaped({1, 3, 5}), same({2}).not_shaped({1, 1, 2})},
       [](const Call& t) {
         block_diag({t[0], t[1]});
       }},
  };
}

Operations splitting_operations() {
  const Operand wide = any({3, 6}), deep = any({2, 3, 6}).not_shaped({3, 6});
  const std::vector<std::int64_t> starts = {1, 3};
  return {
      {"tensor_split", {with_dim_1(any({3, 5}))}, [](const Call& t) { tensor_split(t[0], 2, 1); }},
      {"tensor_split",
       {with_dim_1(any({3, 5}))},
       [=](const Call& t) { tensor_split(t[0], starts, 1); }},
      {"hsplit", {wide.not_shaped({3, 5})}, [](const Call& t) { hsplit(t[0], 3); }},
      {"hsplit", {wide.not_shaped({}, "[]")}, [=](const Call& t) { hsplit(t[0], starts); }},
      {"vsplit",
       {any({3, 5}).not_shaped({4, 5}).not_shaped({3})},
       [](const Call& t) { vsplit(t[0], 3); }},
      {"vsplit", {any({3, 5}).not_shaped({3})}, [=](const Call& t) { vsplit(t[0], starts); }},
      {"dsplit", {deep}, [](const Call& t) { dsplit(t[0], 3); }},
      {"dsplit", {deep}, [=](const Call& t) { dsplit(t[0], starts); }},
      {"broadcast_tensors",
       {any({3, 5}).not_shaped({3, 4}), any({1, 5}).not_shaped({2, 5})},
       [](const Call& t) {
         broadcast_tensors({t[0], t[1]});
       }},
      {"meshgrid",
       {same({3}).not_shaped({3, 1}), same({5}).not_shaped({5, 1})},
       [](const Call& t) {
         meshgrid({t[0], t[1]}, MeshIndexing::kXY);
       }},
      {"cartesian_prod",
       {same({3}).not_shaped({3, 1}), same({5}).not_shaped({5, 1})},
       [](const Call& t) {
         cartesian_prod({t[0], t[1]});
       }},
      {"diag", {any({3, 5}).not_shaped({1, 3, 5})}, [](const Call& t) { diag(t[0], 1); }},
      {"diag_embed",
       {any({3, 5}).not_shaped({}, "0-d")},
       [](const Call& t) { diag_embed(t[0], 1); }},
      {"trace",
       {any({3, 5}).not_of({DType::kBool}).not_shaped({5})},
       [](const Call& t) { trace(t[0]); }},
      {"tril_indices", {}, [](const Call& t) { tril_indices(3, 5, 1, t.options(DType::kI64)); }},
      {"triu_indices", {}, [](const Call& t) { triu_indices(3, 5, 1, t.options(DType::kI32)); }},
  };
}

}  // namespace tessera::testing
