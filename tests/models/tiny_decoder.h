#pragma once

// A minimal language model: two layers of attention with rotary positions.

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "tessera/autograd/ops/ops.h"
#include "tessera/models/generate.h"
#include "tessera/models/nets/language_model.h"
#include "tessera/nn/layer.h"
#include "tessera/nn/layers/container.h"
#include "tessera/nn/layers/dropout.h"
#include "tessera/nn/layers/embedding.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/layers/transformer/attention.h"

namespace tessera::testing {

struct TinyDecoderOptions {
  std::int64_t vocab_size = 7;
  std::int64_t max_length = 9;
};

class TinyDecoder final : public nn::Layer<TinyDecoder> {
 public:
  using Options = TinyDecoderOptions;
  explicit TinyDecoder(const TinyDecoderOptions& options = {})
      : options_(options),
        table_({.entries = options.vocab_size, .dim = kDim, .dtype = DType::kF64}),
        dropout_({.p = 0.5}),
        head_({.in = kDim, .out = options.vocab_size, .dtype = DType::kF64}) {
    register_module("table", table_);
    register_module("dropout", dropout_);
    for (int i = 0; i < 2; ++i) {
      blocks_.add<nn::MultiheadAttention>(
          {.dim = kDim,
           .heads = 2,
           .rotary = std::make_shared<nn::RotaryEmbedding>(
               nn::RotaryEmbeddingOptions{.dim = kDim / 2, .max_length = options.max_length}),
           .dtype = DType::kF64});
    }
    register_module("blocks", blocks_);
    register_module("head", head_);
  }

  Variable forward(const Variable& tokens, const models::DecodeCall& call = {}) {
    if (before_forward) before_forward(tokens.tensor(), call);
    Variable h = dropout_(table_(tokens));
    for (int i = 0; i < 2; ++i) {
      nn::KeyValueCache* cache = call.cache != nullptr ? &call.cache->layer(i) : nullptr;
      const nn::AttentionForwardOptions attention{.is_causal = true, .cache = cache};
      h = h + blocks_.at<nn::MultiheadAttention>(i)(h, attention).output;
    }
    return mul(head_(h), 4);  // separates the logits enough to distinguish tokens
  }

  std::int64_t vocab_size() const { return options_.vocab_size; }
  std::int64_t max_length() const { return options_.max_length; }
  std::int64_t cached_layers() const { return 2; }
  nn::ModuleList& blocks() { return blocks_; }
  nn::Dropout& dropout() { return dropout_; }

  // Called before every forward.
  std::function<void(const Tensor& tokens, const models::DecodeCall& call)> before_forward;

 private:
  static constexpr std::int64_t kDim = 8;
  TinyDecoderOptions options_;
  nn::Embedding table_;
  nn::Dropout dropout_;
  nn::ModuleList blocks_;
  nn::Linear head_;
};

// Generation without a cache: the whole visible text is computed again for every token.
inline std::vector<std::int32_t> slow_generate(const models::LanguageModel& model,
                                               const std::vector<std::int32_t>& prompt,
                                               const models::SamplingOptions& options) {
  std::vector<std::int64_t> seen(prompt.begin(), prompt.end());
  std::vector<std::int32_t> out;
  for (std::int64_t draw = 0; draw < options.max_tokens; ++draw) {
    if (static_cast<std::int64_t>(seen.size()) > model.max_length)
      seen.erase(seen.begin(), seen.end() - (model.max_length + 1) / 2);
    const auto length = static_cast<std::int64_t>(seen.size());
    const Tensor logits = model.forward(Tensor::from_vector(seen, {1, length}), {}).logits.tensor();
    out.push_back(sample_token(logits.select(0, 0).select(0, length - 1), options, draw));
    seen.push_back(out.back());
  }
  return out;
}

}  // namespace tessera::testing
