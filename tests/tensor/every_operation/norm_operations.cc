// Rows for ops/norm.h.
#include "tessera/tensor/ops/norm.h"
#include "tessera/tests/tensor/every_operation/operation.h"

namespace tessera::testing {
namespace {

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
  for (Operation& operation : batch_norms()) table.push_back(std::move(operation));
  return table;
}

}  // namespace tessera::testing
