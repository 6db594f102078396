// Rows for ops/activations.h and ops/similarity.h.

#include "tessera/tensor/ops/activations.h"
#include "tessera/tensor/ops/similarity.h"
#include "tessera/tests/tensor/every_operation/operation.h"

namespace tessera::testing {

Operations activation_operations() {
  const Operand x = floating({3, 4});
  const Operand halved = floating({3, 4}).not_shaped({3, 5});
  return {
      {"hardtanh", {x}, [](const Call& t) { hardtanh(t[0]); }},
      {"relu6", {x}, [](const Call& t) { relu6(t[0]); }},
      {"leaky_relu", {x}, [](const Call& t) { leaky_relu(t[0]); }},
      {"prelu",
       {floating({3, 4}).not_shaped({3, 5}), floating({4}).not_shaped({3}).not_shaped({4, 1})},
       [](const Call& t) { prelu(t[0], t[1]); }},
      {"elu", {x}, [](const Call& t) { elu(t[0]); }},
      {"selu", {x}, [](const Call& t) { selu(t[0]); }},
      {"celu", {x}, [](const Call& t) { celu(t[0]); }},
      {"mish", {x}, [](const Call& t) { mish(t[0]); }},
      {"logsigmoid", {x}, [](const Call& t) { logsigmoid(t[0]); }},
      {"hardsigmoid", {x}, [](const Call& t) { hardsigmoid(t[0]); }},
      {"hardswish", {x}, [](const Call& t) { hardswish(t[0]); }},
      {"softsign", {x}, [](const Call& t) { softsign(t[0]); }},
      {"tanhshrink", {x}, [](const Call& t) { tanhshrink(t[0]); }},
      {"hardshrink", {x}, [](const Call& t) { hardshrink(t[0]); }},
      {"softshrink", {x}, [](const Call& t) { softshrink(t[0]); }},
      {"threshold", {x}, [](const Call& t) { threshold(t[0], 0, 1); }},
      {"glu", {halved}, [](const Call& t) { glu(t[0]); }},
      {"normalize",
       {floating({3, 4}).not_shaped({3}, "dim 1 does not exist")},
       [](const Call& t) { normalize(t[0]); }},
      {"cosine_similarity",
       {floating({3, 4}).not_shaped({3, 5}), floating({3, 4}).not_shaped({2, 4})},
       [](const Call& t) { cosine_similarity(t[0], t[1]); }},
      {"pairwise_distance",
       {floating({3, 4}).not_shaped({3, 5}), floating({3, 4}).not_shaped({2, 4})},
       [](const Call& t) { pairwise_distance(t[0], t[1]); }},
      {"cdist",
       {floating({2, 3, 4}).not_shaped({2, 3, 5}).not_shaped({4}),
        floating({5, 4}).not_shaped({5, 3}).not_shaped({3, 5, 4}, "[2] and [3]")},
       [](const Call& t) { cdist(t[0], t[1], 3); }},
      {"swiglu",
       {matching({3, 4}).not_shaped({3, 5}), matching({3, 4}).not_shaped({4})},
       [](const Call& t) { swiglu(t[0], t[1]); }},
      {"swiglu_backward",
       {matching({3, 4}).not_shaped({3, 5}), matching({3, 4}).not_shaped({4}),
        matching({3, 4}).not_shaped({4})},
       [](const Call& t) { swiglu_backward(t[0], t[1], t[2]); }},
      {"softmin", {floating({3, 4})}, [](const Call& t) { softmin(t[0]); }},
  };
}

}  // namespace tessera::testing
