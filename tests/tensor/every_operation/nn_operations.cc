// Rows for ops/nn.h, ops/dropout.h, ops/rotary.h and ops/optim.h.

#include "tessera/tensor/ops/nn.h"
#include "tessera/tensor/ops/norm.h"
#include "tessera/tensor/ops/optim.h"
#include "tessera/tensor/ops/random.h"
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
  const Operand rows = floating({3, 5});
  const Operand like = matching({3, 5}).not_shaped({3, 4});
  return {
      {"softmax", {rows}, [](const Call& t) { softmax(t[0]); }},
      {"log_softmax", {rows}, [](const Call& t) { log_softmax(t[0], 0); }},
      {"softmax", {with_dim_1(any({3, 5}))}, [](const Call& t) { softmax(t[0], 1, DType::kF32); }},
      {"log_softmax",
       {with_dim_1(any({3, 5}))},
       [](const Call& t) { log_softmax(t[0], 1, DType::kF64); }},
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
         reduce_loss({.loss = t[0], .log_sum_exp = {}, .row_weight = t[1]}, LossReduction::kMean);
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
      {"dropout_with_mask",
       {floating({3, 5}).not_shaped({4, 5}).not_shaped({5})},
       [](const Call& t) {
         dropout_with_mask(t[0], 0.5, {7}, random::whole({3, 5}));
       },
       "dropout"},
      {"dropout_backward",
       {floating({3, 5}).not_shaped({4, 5}).not_shaped({5})},
       [](const Call& t) {
         dropout_backward(t[0], {}, 0.5, {7}, random::whole({3, 5}));
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

namespace {

// Rows for ops/norm.h.

// The operands of a norm of [4, 6, 3]: over the last dim, or over its 6 channels.
const Operand kRows = matching({4, 6, 3}).not_shaped({4, 6, 5}).not_shaped({}, "shape []");
const Operand kChannels = matching({4, 6, 3}).not_shaped({4, 5, 3}).not_shaped({6}, "shape [6]");
// Groups are checked before other operands, and running statistics before the others.
const Operand kGroups = matching({4, 6, 3})
                            .not_shaped({4, 5, 3}, "5 channels do not split into 2 groups")
                            .not_shaped({4, 8, 3});
const Operand kBatch =
    matching({4, 6, 3}).not_shaped({4, 5, 3}, "of shape [5]").not_shaped({6}, "shape [6]");
// The gradient of the norms' results.
const Operand kSlope = matching({4, 6, 3}).not_shaped({4, 6, 5}).not_shaped({6});
// An input and the residual that is added before normalisation.
const Operand kSummed =
    matching({4, 6, 3}).not_shaped({4, 6, 5}).not_shaped({}, "shapes [] and [4, 6, 3]");
const Operand kResidual = matching({4, 6, 3}).not_shaped({4, 6, 5}).not_shaped({3});
const Operand kRowParameter = matching({3}).not_shaped({4}).or_undefined();
const Operand kChannelParameter = matching({6}).not_shaped({4}).or_undefined();
const Operand kRowStatistic = matching({4, 6}).not_shaped({6});
const Operand kChannelStatistic = matching({6}).not_shaped({4}).not_shaped({6, 1});
// Of any floating dtype.
const Operand kRunning = floating({6}).not_shaped({4});
const Operand kCount =
    Operand{.shape = {}, .dtype = DType::kF64}.not_of({DType::kF32}).not_shaped({2});
// x may have any floating dtype that matches the others, but requires none.
const Operand kInput = floating({4, 6, 3}).not_shaped({6}, "shape [6]");

// The same in bf16, with weights and statistics in f32.
Operand half(const Operand& x) { return x.not_of({DType::kI64, DType::kF64}).in(DType::kBF16); }

GroupNormOptions groups() { return {.groups = 2}; }

Operations row_norms() {
  return {
      {"layer_norm",
       {kRows, kRowParameter, kRowParameter},
       [](const Call& t) { layer_norm(t[0], t[1], t[2]); }},
      {"layer_norm_forward",
       {kRows, kRowParameter, kRowParameter},
       [](const Call& t) { layer_norm_forward(t[0], t[1], t[2]); },
       "layer_norm"},
      {"rms_norm", {kRows, kRowParameter}, [](const Call& t) { rms_norm(t[0], t[1]); }},
      {"rms_norm_forward",
       {kRows, kRowParameter},
       [](const Call& t) { rms_norm_forward(t[0], t[1]); },
       "rms_norm"},
      {"add_layer_norm_forward",
       {kSummed, kResidual, kRowParameter, kRowParameter},
       [](const Call& t) { add_layer_norm_forward(t[0], t[1], t[2], t[3]); },
       "add_layer_norm"},
      {"add_rms_norm_forward",
       {kSummed, kResidual, kRowParameter},
       [](const Call& t) { add_rms_norm_forward(t[0], t[1], t[2]); },
       "add_rms_norm"},
      {"group_norm",
       {kGroups, kChannelParameter, kChannelParameter},
       [](const Call& t) { group_norm(t[0], t[1], t[2], groups()); }},
      {"group_norm_forward",
       {kGroups, kChannelParameter, kChannelParameter},
       [](const Call& t) { group_norm_forward(t[0], t[1], t[2], groups()); },
       "group_norm"},
      {"row_norm_backward",
       {kSlope, kRows, kRowParameter, kRowStatistic.or_undefined(), kRowStatistic},
       [](const Call& t) { row_norm_backward(t[0], t[1], t[2], {.mean = t[3], .rstd = t[4]}); }},
      {"row_norm_backward",
       {half(kSlope), half(kRows), kRowParameter, kRowStatistic.or_undefined(), kRowStatistic},
       [](const Call& t) { row_norm_backward(t[0], t[1], t[2], {.mean = t[3], .rstd = t[4]}); }},
  };
}

Operations channel_norms() {
  const Operand with_places = kChannels.not_shaped({4, 6}).not_of({DType::kI64});
  return {
      {"instance_norm",
       {with_places, kChannelParameter, kChannelParameter},
       [](const Call& t) { instance_norm(t[0], t[1], t[2]); }},
      {"instance_norm",
       {with_places, kChannelParameter, kChannelParameter, kRunning, kRunning},
       [](const Call& t) {
         instance_norm(t[0], t[1], t[2], {.running_mean = t[3], .running_var = t[4]});
       }},
      {"local_response_norm",
       {floating({4, 6, 3}).not_shaped({4, 6})},
       [](const Call& t) { local_response_norm(t[0], {.size = 3}); }},
  };
}

Operations batch_norms() {
  return {
      {"batch_norm",
       {kBatch, kChannelParameter, kChannelParameter, kRunning.or_undefined(),
        kRunning.or_undefined()},
       [](const Call& t) {
         batch_norm(t[0], t[1], t[2], {.running_mean = t[3], .running_var = t[4]});
       }},
      {"batch_norm",
       {kBatch, kChannelParameter, kChannelParameter, kRunning, kRunning},
       [](const Call& t) {
         batch_norm(t[0], t[1], t[2],
                    {.running_mean = t[3], .running_var = t[4], .training = false});
       }},
      {"batch_norm_forward",
       {kChannels.not_shaped({1, 6}), kChannelParameter, kChannelParameter},
       [](const Call& t) { batch_norm_forward(t[0], t[1], t[2]); },
       "batch_norm"},
      {"batch_norm_statistics",
       {kInput},
       [](const Call& t) { batch_norm_statistics(t[0]); },
       "batch_norm"},
      {"batch_norm_rstd",
       {matching({6}).not_shaped({4}), matching({6}).not_shaped({4}), kCount,
        kRunning.or_undefined(), kRunning.or_undefined()},
       [](const Call& t) {
         batch_norm_rstd({.mean = t[0], .m2 = t[1], .count = t[2]},
                         {.running_mean = t[3], .running_var = t[4]});
       },
       "batch_norm"},
      {"batch_norm_apply",
       {kChannels, kChannelParameter, kChannelParameter, kChannelStatistic, kChannelStatistic},
       [](const Call& t) { batch_norm_apply(t[0], t[1], t[2], {.mean = t[3], .rstd = t[4]}); },
       "batch_norm"},
      {"batch_norm_sums",
       {kSlope, kChannels, kChannelStatistic, kChannelStatistic},
       [](const Call& t) { batch_norm_sums(t[0], t[1], {.mean = t[2], .rstd = t[3]}); },
       "batch_norm"},
      {"batch_norm_input_gradient",
       {kSlope, kChannels, kChannelParameter, kChannelStatistic, kChannelStatistic,
        kChannelStatistic, kChannelStatistic, kCount.or_undefined()},
       [](const Call& t) {
         batch_norm_input_gradient(t[0], t[1], t[2], {.mean = t[3], .rstd = t[4]},
                                   {.dy = t[5], .dy_normal = t[6], .count = t[7]});
       },
       "batch_norm"},
      {"batch_norm_sums",
       {half(kSlope), half(kChannels), kChannelStatistic, kChannelStatistic},
       [](const Call& t) { batch_norm_sums(t[0], t[1], {.mean = t[2], .rstd = t[3]}); },
       "batch_norm"},
      {"batch_norm_input_gradient",
       {half(kSlope), half(kChannels), kChannelParameter, kChannelStatistic, kChannelStatistic},
       [](const Call& t) {
         batch_norm_input_gradient(t[0], t[1], t[2], {.mean = t[3], .rstd = t[4]}, {});
       },
       "batch_norm"},
  };
}

}  // namespace

Operations norm_operations() {
  Operations table = row_norms();
  for (Operation& operation : channel_norms()) table.push_back(std::move(operation));
  for (Operation& operation : batch_norms()) table.push_back(std::move(operation));
  return table;
}

}  // namespace tessera::testing
