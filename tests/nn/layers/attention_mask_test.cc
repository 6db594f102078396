// Masks of attention: every kind against plain loops, rows that see nothing, shapes, errors.
#include "tessera/nn/layers/transformer/attention_mask.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <string>

#include "tessera/autograd/grad_check.h"
#include "tessera/nn/layers/transformer/attention.h"
#include "tessera/tests/nn/layers/attention_reference.h"
#include "tessera/tests/nn/layers/formulas.h"
#include "tessera/tests/nn/support.h"

namespace tessera::testing {
namespace {

constexpr std::int64_t kBatch = 2, kHeads = 3, kQueries = 4, kKeys = 5;

// Element (b, h, i, j) of a mask that broadcasts to the scores, as what it adds.
double element(const Tensor& mask, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
  const Tensor whole = mask.expand({kBatch, kHeads, kQueries, kKeys});
  const Tensor one = whole.select(0, b).select(0, h).select(0, i).select(0, j);
  if (one.dtype() == DType::kBool) return one.item<bool>() ? kHidden : 0;
  return one.item<double>();
}

// Irregular; row 1 of every 4 rows of keys is true throughout.
Tensor bools(const Shape& shape) {
  std::vector<bool> out;
  for (std::int64_t i = 0; i < shape.numel(); ++i) {
    out.push_back(std::sin(1.7 * static_cast<double>(i)) > 0.3 ||
                  (shape.back() > 1 && i / shape.back() % 4 == 1));
  }
  return Tensor::from_vector(out, shape);
}
// Floats with -inf where bools() is true.
Tensor floats(const Shape& shape) { return where(bools(shape), kHidden, waves(shape, 0.4, 1)); }

struct MaskCase {
  Tensor attn_mask;     // as the layer takes it
  Tensor aligned;       // with 4 dims
  Tensor padding = {};  // [batch, keys]
  bool causal = false;
};

void check_case(const MaskCase& c) {
  const nn::MultiheadAttentionOptions options{
      .dim = 6, .heads = kHeads, .kv_heads = 1, .dtype = DType::kF64};
  nn::MultiheadAttention layer(options);
  fill_with_waves(layer);
  const Variable query = wave_input({kBatch, kQueries, 6}, 0.2),
                 key = wave_input({kBatch, kKeys, 6}, 0.5);
  const ReferenceResult expected =
      attention_by_loops(layer, options, query.tensor(), key.tensor(), key.tensor(),
                         [&](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
                           double bias = c.causal && j > i ? kHidden : 0;
                           if (c.aligned.defined()) bias += element(c.aligned, b, h, i, j);
                           if (c.padding.defined())
                             bias += element(c.padding.view({kBatch, 1, 1, kKeys}), b, h, i, j);
                           return bias;
                         });
  for (const bool need_weights : {false, true}) {
    const nn::AttentionForwardOptions call{.attn_mask = c.attn_mask,
                                           .key_padding_mask = c.padding,
                                           .is_causal = c.causal,
                                           .need_weights = need_weights,
                                           .average_weights = false};
    const auto result = layer(query, key, key, call);
    check_close(values(result.output.tensor()), expected.output);
    if (need_weights) check_close(values(result.weights.tensor()), expected.weights);
    const auto function = [&](const std::vector<Variable>& x) {
      return layer(x[0], x[1], x[1], call).output;
    };
    CHECK(grad_check(function, {query, key}).passed);
  }
}

TEST_CASE("attention under masks of every shape, with queries that see nothing") {
  const Shape square{kQueries, kKeys}, each_head{kBatch * kHeads, kQueries, kKeys};
  const Shape scores{kBatch, kHeads, kQueries, kKeys};
  for (Tensor (*make)(const Shape&) : {bools, floats}) {
    check_case({make(square), make(square)});
    check_case({make(each_head), make(each_head).view(scores)});
    for (const Shape& shape : {scores, Shape{kBatch, 1, kQueries, kKeys},
                               Shape{1, kHeads, 1, kKeys}, Shape{1, 1, kQueries, 1}}) {
      check_case({make(shape), make(shape)});
    }
  }
}

TEST_CASE("attention under causal and padding masks, alone and together") {
  const Shape square{kQueries, kKeys}, padded{kBatch, kKeys};
  check_case({.attn_mask = {}, .aligned = {}, .causal = true});
  for (const bool causal : {false, true}) {
    for (Tensor (*padding)(const Shape&) : {bools, floats}) {
      check_case({.attn_mask = {}, .aligned = {}, .padding = padding(padded), .causal = causal});
      check_case({bools(square), bools(square), padding(padded), causal});
      check_case({floats(square), floats(square), padding(padded), causal});
    }
  }
}

TEST_CASE("a query that sees nothing gives the bias of the result, and no gradient") {
  nn::MultiheadAttention layer({.dim = 4, .heads = 2, .dtype = DType::kF64});
  fill_with_waves(layer);
  const std::vector<double> bias = values(layer.out_proj().bias().local().tensor());
  const Tensor all = Tensor::from_vector<bool>({true, true, true}, {1, 3});
  for (const bool need_weights : {false, true}) {
    const Variable x = wave_input({1, 3, 4}, 0.2);
    const Variable y =
        layer(x, nn::AttentionForwardOptions{.key_padding_mask = all, .need_weights = need_weights})
            .output;
    for (std::int64_t i = 0; i < 3; ++i) {
      check_close(values(y.tensor().select(1, i)), bias);
    }
    backward(weigh(y));
    check_close(values(x.grad()), std::vector<double>(12, 0.0));
  }
}

TEST_CASE("masks merge into what scaled_dot_product_attention takes") {
  const Shape scores{1, 2, 2, 3};
  CHECK_FALSE(nn::merge_attention_masks({}, scores).defined());
  const Tensor mask = nn::merge_attention_masks(
      {.attn_mask = Tensor::from_vector<bool>({false, true, true, false, false, true}, {2, 3}),
       .key_padding_mask = Tensor::from_vector<bool>({true, false, false}, {1, 3})},
      scores);
  CHECK(mask.shape() == Shape{1, 1, 2, 3});
  CHECK(mask.to_vector<bool>() == std::vector<bool>{false, false, false, false, true, false});
  // Extents of 0 are valid.
  CHECK(nn::merge_attention_masks({.attn_mask = zeros({0, 2, 3}, {.dtype = DType::kBool})},
                                  {0, 2, 2, 3})
            .shape() == Shape{0, 2, 2, 3});
}

TEST_CASE("the square mask of a sequence hides what comes later") {
  const Tensor mask = nn::generate_square_subsequent_mask(3, {.dtype = DType::kF64});
  const double h = kHidden;
  CHECK(mask.to_vector<double>() == std::vector<double>{0, h, h, 0, 0, h, 0, 0, 0});
  CHECK(nn::generate_square_subsequent_mask(0).shape() == Shape{0, 0});
  CHECK(nn::generate_square_subsequent_mask(2).dtype() == DType::kF32);
  nn::MultiheadAttention layer({.dim = 4, .heads = 2, .dtype = DType::kF64});
  fill_with_waves(layer);
  const Variable x = wave_input({2, 3, 4}, 0.2);
  check_close(values(layer(x, nn::AttentionForwardOptions{.attn_mask = mask}).output.tensor()),
              values(layer(x, nn::AttentionForwardOptions{.is_causal = true}).output.tensor()));
  const std::string where = "[nn.generate_square_subsequent_mask] ";
  CHECK(thrown<InvalidArgument>([] { nn::generate_square_subsequent_mask(-1); }) ==
        where + "expected a size of at least 0 and a floating dtype, got -1 and f32");
  CHECK(thrown<InvalidArgument>([] {
          nn::generate_square_subsequent_mask(2, {.dtype = DType::kBool});
        }) == where + "expected a size of at least 0 and a floating dtype, got 2 and bool");
}

TEST_CASE("masks that do not fit are named") {
  const Shape scores{2, 3, 4, 5};
  const auto merged = [&](const nn::AttentionMasks& masks) {
    return thrown<InvalidArgument>([&] { nn::merge_attention_masks(masks, scores); });
  };
  const std::string where = "[nn.merge_attention_masks] ";
  CHECK(merged({.attn_mask = zeros({5, 4})}) ==
        where +
            "attn_mask [5, 4] does not fit scores [batch, heads, queries, keys] of [2, 3, 4, "
            "5]: pass [4, 5], [6, 4, 5] or 4 dims that broadcast to them");
  CHECK(merged({.attn_mask = zeros({2, 4, 5})}).find("does not fit") != std::string::npos);
  CHECK(merged({.attn_mask = zeros({2, 2, 4, 5})}).find("does not fit") != std::string::npos);
  CHECK(merged({.attn_mask = zeros({4, 5}, {.dtype = DType::kU8})}) ==
        where +
            "attn_mask has dtype u8; it must be bool (true: may not be attended to) or floating "
            "(added to the scores)");
  CHECK(merged({.key_padding_mask = zeros({5, 2})}) ==
        where + "key_padding_mask is [5, 2], expected [2, 5], that is [batch, keys]");
  CHECK(merged({.key_padding_mask = zeros({2, 5}, {.dtype = DType::kI64})})
            .find("key_padding_mask has dtype i64") != std::string::npos);
}

}  // namespace
}  // namespace tessera::testing
