// Rows for ops/nn.h, ops/dropout.h, ops/rotary.h and ops/optim.h.
#include "tessera/tensor/ops/dropout.h"
#include "tessera/tensor/ops/nn.h"
#include "tessera/tensor/ops/optim.h"
#include "tessera/tensor/ops/rotary.h"
#include "tessera/tests/tensor/every_operation/operation.h"

namespace tessera::testing {
namespace {

const Operand kLogits = floating({2, 3, 7}).not_shaped({2, 4, 7}).not_shaped({});
const Operand kTargets = positions({2, 3}).not_shaped({2, 4}).not_shaped({3});
const Operand kClassWeight = floating({7}).not_shaped({6}).or_undefined();
const Operand kRowValue = matching({2, 3}).not_shaped({2, 4});

CrossEntropyOptions smoothed(const Tensor& weight) {
  return {.label_smoothing = 0.1, .weight = weight};
}

}  // namespace

Operations nn_operations() {
  const Operand rows = floating({3, 5}).not_shaped({}, "0-d");
  const Operand like = matching({3, 5}).not_shaped({3, 4});
  return {
      {"softmax", {rows}, [](const Call& t) { softmax(t[0]); }},
      {"log_softmax", {rows}, [](const Call& t) { log_softmax(t[0], 0); }},
      {"softmax_backward", {like, like}, [](const Call& t) { softmax_backward(t[0], t[1]); }},
      {"log_softmax_backward",
       {like, like},
       [](const Call& t) { log_softmax_backward(t[0], t[1], 0); }},
      {"cross_entropy",
       {kLogits, kTargets, kClassWeight},
       [](const Call& t) { cross_entropy(t[0], t[1], smoothed(t[2])); }},
      {"cross_entropy_rows",
       {kLogits, kTargets, kClassWeight},
       [](const Call& t) { cross_entropy_rows(t[0], t[1], smoothed(t[2])); },
       "cross_entropy"},
      {"reduce_loss",
       {matching({2, 3}).not_shaped({2, 4}), matching({2, 3}).not_shaped({2, 4})},
       [](const Call& t) {
         reduce_loss({.loss = t[0], .log_sum_exp = {}, .row_weight = t[1]}, Reduction::kMean,
                     DType::kF32);
       }},
      {"cross_entropy_rows_backward",
       {kRowValue, floating({2, 3, 7}).not_shaped({2, 4, 7}), kTargets, kRowValue, kClassWeight},
       [](const Call& t) { cross_entropy_rows_backward(t[0], t[1], t[2], t[3], smoothed(t[4])); }},
      {"cross_entropy_rows_backward_",
       {floating({2, 3, 7}).not_shaped({2, 4, 7}), kRowValue, kTargets, kRowValue, kClassWeight},
       [](const Call& t) { cross_entropy_rows_backward_(t[0], t[1], t[2], t[3], smoothed(t[4])); }},
      {"dropout",
       {floating({3, 5}).not_shaped({4, 5}).not_shaped({5})},
       [](const Call& t) {
         dropout(t[0], 0.5, {7}, random::whole({3, 5}));
       }},
      {"rotary_table", {}, [](const Call& t) { rotary_table(3, 4, {.device = t.device}); }},
      {"rotary",
       {matching({2, 3, 1, 4}).not_shaped({2, 5, 1, 4}).not_shaped({3, 4}),
        matching({3, 2}).not_shaped({3, 3}).not_shaped({4, 2}),
        matching({3, 2}).not_shaped({3, 1})},
       [](const Call& t) { rotary(t[0], {.cos = t[1], .sin = t[2]}); }},
  };
}

Operations optim_operations() {
  const Operand parameter = matching({7}).not_shaped({6}), state = matching({7}).not_shaped({7, 1});
  const auto half = [](const Operand& x) {
    return x.not_of({DType::kI64, DType::kF64}).in(DType::kBF16);
  };
  return {
      {"sgd_step",
       {parameter, state, state},
       [](const Call& t) {
         sgd_step({{.parameter = t[0],
                    .gradient = t[1],
                    .momentum = t[2],
                    .lr = 0.1,
                    .momentum_factor = 0.9}});
       }},
      {"sgd_step",  // without state, a wider parameter accepts the gradient
       {parameter.not_of({DType::kI64}), state},
       [](const Call& t) { sgd_step({{.parameter = t[0], .gradient = t[1], .lr = 0.1}}); }},
      {"adam_step",
       {parameter, state, state, state, state.or_undefined(),
        floating({7}).not_shaped({7, 1}).or_undefined()},
       [](const Call& t) {
         adam_step({{.parameter = t[0],
                     .gradient = t[1],
                     .exp_avg = t[2],
                     .exp_avg_sq = t[3],
                     .max_exp_avg_sq = t[4],
                     .copy = t[5]}});
       }},
      {"adam_step",
       {half(parameter), half(state), state, state},
       [](const Call& t) {
         adam_step({{.parameter = t[0], .gradient = t[1], .exp_avg = t[2], .exp_avg_sq = t[3]}});
       }},
      {"lion_step",
       {parameter, state, state},
       [](const Call& t) { lion_step({{.parameter = t[0], .gradient = t[1], .exp_avg = t[2]}}); }},
      {"lion_step",
       {half(parameter), half(state), state},
       [](const Call& t) { lion_step({{.parameter = t[0], .gradient = t[1], .exp_avg = t[2]}}); }},
  };
}

}  // namespace tessera::testing
