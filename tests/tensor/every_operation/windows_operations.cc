// Rows for ops/attention.h, ops/conv.h, ops/image.h and ops/pool.h.
#include "tessera/tensor/ops/attention.h"
#include "tessera/tensor/ops/conv.h"
#include "tessera/tensor/ops/image.h"
#include "tessera/tensor/ops/pool.h"
#include "tessera/tests/tensor/every_operation/operation.h"

namespace tessera::testing {
namespace {

// Attention of 4 heads and 5 queries, 2 key-value heads and 7 keys.
const Operand kQ = matching({2, 4, 5, 8}).not_shaped({2, 3, 5, 8}, "q has 3 heads");
const Operand kK = matching({2, 2, 7, 8}).not_shaped({2, 2, 6, 8}).not_shaped({2, 7, 8});
const Operand kV = matching({2, 2, 7, 3}).not_shaped({2, 1, 7, 3}).not_shaped({3, 2, 7, 3});
const Operand kMask =
    any({5, 7}).not_of({DType::kI64, DType::kU8}).not_shaped({5, 6}).or_undefined();

AttentionOptions rule(const Tensor& mask) {
  return {.causal = true, .mask = mask, .dropout_p = 0.1};
}

const Shape kImage = {2, 4, 7, 9}, kFilter = {6, 2, 3, 3}, kMapped = {2, 6, 5, 7};
const Shape kLine = {2, 4, 9}, kPooled = {2, 4, 3, 4};

// The operand of a pool; too few dims and no window are rejected.
Operand pooled(const Shape& shape) {
  const Shape empty = shape.with(shape.ndim() - 1, 0);
  return floating(shape).not_shaped({9}).not_shaped(empty);
}

const Operand kImages = pooled(kImage), kLines = pooled(kLine);
const Operand kDy = floating(kPooled).not_shaped({2, 4, 3, 5}).not_shaped({4, 3});
const Operand kChosen =
    Operand{.shape = kPooled, .dtype = DType::kI64}.not_of({DType::kI32}).not_shaped({2, 4, 3, 5});

}  // namespace

Operations attention_operations() {
  const Operand doutput = matching({2, 4, 5, 3}).not_shaped({2, 4, 5, 8});
  return {
      {"scaled_dot_product_attention",
       {kQ, kK, kV, kMask},
       [](const Call& t) { scaled_dot_product_attention(t[0], t[1], t[2], rule(t[3])); }},
      {"scaled_dot_product_attention_backward",
       {doutput, kQ, kK, kV, doutput, matching({2, 4, 5}).not_shaped({2, 4, 6}), kMask},
       [](const Call& t) {
         scaled_dot_product_attention_backward(t[0], {.q = t[1], .k = t[2], .v = t[3]},
                                               {.output = t[4], .log_sum_exp = t[5]}, rule(t[6]));
       }},
  };
}

namespace {

Operations convolutions() {
  const Operand x = matching(kImage).not_shaped({2, 3, 7, 9}).not_shaped({7, 9}),
                weight = matching(kFilter)
                             .not_shaped({6, 3, 3, 3})
                             .not_shaped({5, 2, 3, 3})
                             .not_shaped({6, 2, 9, 3}, "a kernel of 9"),
                bias = matching({6}).not_shaped({5}).or_undefined(),
                dy = matching(kMapped).not_shaped({2, 6, 5, 8});
  return {
      {"conv2d", {x, weight, bias}, [](const Call& t) { conv2d(t[0], t[1], t[2], {.groups = 2}); }},
      {"conv1d",
       {matching(kLine).not_shaped({2, 3, 9}).not_shaped(kImage),
        matching({6, 2, 3}).not_shaped({6, 3, 3}), bias},
       [](const Call& t) { conv1d(t[0], t[1], t[2], {.groups = 2}); }},
      {"conv_backward_input",
       {dy, weight},
       [](const Call& t) { conv_backward_input(t[0], t[1], kImage, {.groups = 2}); }},
      {"conv_backward_weight",
       {dy, x},
       [](const Call& t) { conv_backward_weight(t[0], t[1], kFilter, {.groups = 2}); }},
      {"conv_backward_weight_into",
       {weight, dy, x},
       [](const Call& t) { conv_backward_weight_into(t[0], 1, t[1], t[2], {.groups = 2}); }},
  };
}

Operations transposed_convolutions() {
  const Operand bias = matching({6}).not_shaped({5}).or_undefined();
  return {
      {"conv_transpose2d",
       {matching(kImage).not_shaped({2, 6, 7, 9}).not_shaped({7, 9}),
        matching({4, 3, 3, 3}).not_shaped({2, 3, 3, 3}), bias},
       [](const Call& t) { conv_transpose2d(t[0], t[1], t[2], {.groups = 2}); }},
      {"conv_transpose1d",
       {matching(kLine).not_shaped({2, 6, 9}).not_shaped(kImage),
        matching({4, 3, 3}).not_shaped({2, 3, 3}), bias},
       [](const Call& t) {
         conv_transpose1d(t[0], t[1], t[2], {.stride = 2, .output_padding = 1, .groups = 2});
       }},
  };
}

Operations images() {
  const Operand image = floating(kImage).not_shaped({7, 9});
  return {
      {"unfold", {image}, [](const Call& t) { unfold(t[0], {.kernel = 2, .padding = 1}); }},
      {"fold",
       {floating({2, 12, 20}).not_shaped({2, 12, 19}).not_shaped({2, 11, 20})},
       [](const Call& t) {
         fold(t[0], {5, 6}, {.kernel = 2});
       }},
      {"pixel_shuffle",
       {any({2, 4, 3, 5}).not_shaped({2, 5, 3, 5}).not_shaped({3, 5})},
       [](const Call& t) { pixel_shuffle(t[0], 2); }},
      {"pixel_unshuffle",
       {any({2, 4, 6, 4}).not_shaped({2, 4, 5, 4}).not_shaped({6, 4})},
       [](const Call& t) { pixel_unshuffle(t[0], 2); }},
      {"channel_shuffle",
       {any({2, 4, 6}).not_shaped({2, 5, 6}).not_shaped({2, 4})},
       [](const Call& t) { channel_shuffle(t[0], 2); }},
      {"interpolate",
       {image},
       [](const Call& t) {
         interpolate(t[0], {.size = {5, 12}, .mode = InterpolateMode::kBilinear});
       }},
  };
}

Operations pools() {
  return {
      {"max_pool2d", {kImages}, [](const Call& t) { max_pool2d(t[0], {.kernel = 2}); }},
      {"max_pool1d", {kLines}, [](const Call& t) { max_pool1d(t[0], {.kernel = 2}); }},
      {"max_pool_backward",
       {kDy, kChosen},
       [](const Call& t) { max_pool_backward(t[0], t[1], kImage, {.kernel = 2}); }},
      {"avg_pool2d", {kImages}, [](const Call& t) { avg_pool2d(t[0], {.kernel = 2}); }},
      {"avg_pool1d", {kLines}, [](const Call& t) { avg_pool1d(t[0], {.kernel = 2}); }},
      {"avg_pool_backward",
       {kDy},
       [](const Call& t) { avg_pool_backward(t[0], kImage, {.kernel = 2}); }},
      {"adaptive_max_pool2d",
       {kImages},
       [](const Call& t) {
         adaptive_max_pool2d(t[0], {3, 4});
       }},
      {"adaptive_max_pool1d", {kLines}, [](const Call& t) { adaptive_max_pool1d(t[0], 4); }},
      {"adaptive_avg_pool2d",
       {kImages},
       [](const Call& t) {
         adaptive_avg_pool2d(t[0], {3, 4});
       }},
      {"adaptive_avg_pool1d", {kLines}, [](const Call& t) { adaptive_avg_pool1d(t[0], 4); }},
      {"adaptive_max_pool_backward",
       {floating(kPooled).not_shaped({4, 3, 4}).not_shaped({2, 5, 3, 4}), kChosen},
       [](const Call& t) { adaptive_max_pool_backward(t[0], t[1], kImage); }},
      {"adaptive_avg_pool_backward",
       {floating(kPooled).not_shaped({4, 3, 4}).not_shaped({2, 5, 3, 4})},
       [](const Call& t) { adaptive_avg_pool_backward(t[0], kImage); }},
  };
}

}  // namespace

Operations window_operations() {
  Operations table = convolutions();
  for (auto part : {transposed_convolutions, images, pools})
    for (Operation& operation : part()) table.push_back(std::move(operation));
  return table;
}

}  // namespace tessera::testing
