// Errors of the encoder-decoder and its parts.

#include <catch2/catch.hpp>

#include "tessera/autograd/grad_mode.h"
#include "tessera/models/nets/encoder_decoder.h"
#include "tessera/nn/init.h"
#include "tessera/tensor/error.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tests/models/token_model_checks.h"

namespace tessera::models {
namespace {

using Catch::Matchers::Contains;
using testing::token_input;

TEST_CASE("encoder-decoder: extents that do not fit are refused by name") {
  CHECK_THROWS_WITH(EncoderDecoder({.encoder_layers = 0}),
                    Contains("[models.EncoderDecoder] encoder_layers is 0; it must be at least 1"));
  CHECK_THROWS_WITH(EncoderDecoder({.decoder_layers = 0}), Contains("decoder_layers is 0"));
  CHECK_THROWS_WITH(EncoderDecoder({.vocab_size = 0}), Contains("vocab_size is 0"));
  CHECK_THROWS_WITH(EncoderDecoder({.max_seq_len = 0}), Contains("max_seq_len is 0"));
  CHECK_THROWS_WITH(EncoderDecoder({.dim = 0}), Contains("dim is 0"));
  CHECK_THROWS_WITH(EncoderDecoder({.heads = 0}), Contains("heads is 0"));
  CHECK_THROWS_WITH(EncoderDecoder({.ffn_dim = 0}), Contains("ffn_dim is 0"));
  CHECK_THROWS_WITH(EncoderDecoder({.dim = 10, .heads = 4}),
                    Contains("dim is 10, heads 4; dim must be a multiple of heads"));
  CHECK_THROWS_WITH(EncoderDecoder({.dim = 3, .heads = 3}),
                    Contains("dim is 3; sines and cosines come in pairs"));
  CHECK_THROWS_AS(EncoderDecoder({.dropout = 1.5}), InvalidArgument);
}

TEST_CASE("encoder-decoder: tokens and padding that do not fit are refused") {
  EncoderDecoder model;
  nn::initialize(model);
  model.eval();
  const Variable source = token_input(2, 5, 8), target = token_input(2, 3, 8);
  CHECK_THROWS_WITH(model(Variable(), target),
                    Contains("expected source tokens [batch, length], got none"));
  CHECK_THROWS_WITH(model(token_input(2, 17, 8), target),
                    Contains("got 17 positions, the model computes 16"));
  CHECK_THROWS_WITH(model(source, token_input(2, 17, 8)), Contains("got 17 positions"));
  CHECK_THROWS_WITH(model(source, token_input(3, 3, 8)),
                    Contains("got 3 targets for 2 sources: one target for each"));
  CHECK_THROWS_WITH(model(Variable(source.tensor().select(0, 0)), target),
                    Contains("expected tokens [batch, length], got [5]"));
  for (const Tensor& padding :
       {zeros({2, 4}, {.dtype = DType::kBool}), zeros({2, 5}, {.dtype = DType::kF32})}) {
    CHECK_THROWS_WITH(model(source, target, EncoderDecoderCall{.source_padding = padding}),
                      Contains("the source [2, 5]: it is a bool for each token"));
  }
  const Variable unknown(full({2, 1}, 8, {.dtype = DType::kI64}));
  CHECK_THROWS_AS(model(source, unknown).tensor().to_vector<float>(), InvalidArgument);
}

TEST_CASE("encoder-decoder: a cache takes one source, and no gradients") {
  EncoderDecoder model;
  nn::initialize(model);
  model.eval();
  const Variable source = token_input(2, 5, 8), target = token_input(2, 9, 8);
  EncoderDecoderCache cache(model.cached_layers());
  CHECK_THROWS_AS(model(source, target, EncoderDecoderCall{.cache = &cache}), StateError);
  cache.clear();
  const NoGradGuard no_grad;
  model(source, target, EncoderDecoderCall{.cache = &cache});
  CHECK_THROWS_WITH(model(source, target, EncoderDecoderCall{.cache = &cache}),
                    Contains("the cache has a source already"));
  const Tensor padding = zeros({2, 5}, {.dtype = DType::kBool});
  CHECK_THROWS_WITH(
      model(Variable(), target, EncoderDecoderCall{.source_padding = padding, .cache = &cache}),
      Contains("the cache has a source already"));
  CHECK_THROWS_WITH(model(Variable(), target, EncoderDecoderCall{.cache = &cache}),
                    Contains("got 18 positions, the model computes 16"));
  CHECK_THROWS_AS(EncoderDecoderCache(0), InvalidArgument);
}

TEST_CASE("position embedding: what does not fit is refused") {
  CHECK_THROWS_WITH(PositionEmbedding({.max_length = 0, .dim = 4}),
                    Contains("[models.PositionEmbedding] max_length is 0"));
  CHECK_THROWS_WITH(PositionEmbedding({.max_length = 4, .dim = 0}), Contains("dim is 0"));
  PositionEmbedding layer({.max_length = 4, .dim = 2});
  nn::initialize(layer);
  CHECK_THROWS_WITH(layer(Variable(zeros({3, 2}))),
                    Contains("expected x [batch, length, dim], got [3, 2]"));
  CHECK_THROWS_WITH(layer(Variable(zeros({1, 3, 2})), std::int64_t{2}),
                    Contains("3 positions from 2 on do not lie in a table of 4"));
}

}  // namespace
}  // namespace tessera::models
