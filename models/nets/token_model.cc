#include "tessera/models/nets/token_model.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <vector>

#include "tessera/autograd/ops/ops.h"
#include "tessera/nn/init.h"
#include "tessera/nn/parameter.h"
#include "tessera/tensor/memory/transfer.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/ops.h"

namespace tessera::models {

void check_extent(const char* where, const char* name, std::int64_t value, std::int64_t least) {
  TESSERA_CHECK(value >= least, where, "{} is {}; it must be at least {}", name, value, least);
}

void check_heads(const char* where, std::int64_t dim, std::int64_t heads) {
  check_extent(where, "dim", dim);
  check_extent(where, "heads", heads);
  TESSERA_CHECK(dim % heads == 0, where, "dim is {}, heads {}; dim must be a multiple of heads",
                dim, heads);
}

void check_tokens(const char* where, const Variable& tokens, std::int64_t past,
                  std::int64_t max_length) {
  TESSERA_CHECK(tokens.ndim() == 2, where, "expected tokens [batch, length], got {}",
                tokens.shape().str());
  TESSERA_CHECK(past + tokens.dim(1) <= max_length, where,
                "got {} positions, the model computes {}: cut the sequences, or build the "
                "model with a larger max_seq_len",
                past + tokens.dim(1), max_length);
}

std::int64_t cached_length(const DecodeCache* cache) {
  return cache != nullptr ? cache->length() : 0;
}

nn::AttentionForwardOptions causal_call(DecodeCache* cache, std::int64_t layer) {
  return {.is_causal = true, .cache = cache != nullptr ? &cache->layer(layer) : nullptr};
}

Tensor positions_of(const Variable& x, std::int64_t past) {
  const auto first = static_cast<double>(past);
  return arange(first, first + static_cast<double>(x.dim(1)), 1,
                {.dtype = DType::kI64, .device = x.device()});
}

nn::LinearOptions language_head(std::int64_t dim, std::int64_t vocab_size, DType dtype) {
  return {.in = dim, .out = vocab_size, .bias = false, .dtype = dtype, .pitch = RowPitch::kAligned};
}

// The weights whose products are added to the residual stream, in the names of these models.
constexpr const char* kToResidual[] = {"out_proj.weight", "down.weight", "wo.weight", "w2.weight"};

void start_as_gpt2(nn::Module& model, std::int64_t layers) {
  constexpr double kDeviation = 0.02;
  for (auto& [name, parameter] : model.named_parameters()) {
    const bool is_residual = std::any_of(std::begin(kToResidual), std::end(kToResidual),
                                         [&](const char* end) { return name.ends_with(end); });
    if (parameter.shape().ndim() == 2) {
      const double sums = is_residual ? 2 * static_cast<double>(layers) : 1;
      parameter.set_init(nn::init::normal(0, kDeviation / std::sqrt(sums)));
    } else if (name.ends_with("bias")) {
      parameter.set_init(nn::init::zeros());
    }
  }
}

namespace {

constexpr const char* kWhere = "models.PositionEmbedding";

// Computed on the CPU, row by row of the box.
void fill_sines(const Tensor& out, random::Key, const random::Box& box) {
  const std::int64_t dim = out.dim(1);
  std::vector<double> table;
  for (std::int64_t row = 0; row < out.dim(0); ++row) {
    const auto position = static_cast<double>(box.offset[0] + row);
    for (std::int64_t i = 0; i < dim; ++i) {
      const double exponent = static_cast<double>(i - i % 2) / static_cast<double>(dim);
      const double angle = position / std::pow(10000.0, exponent);
      table.push_back(i % 2 == 0 ? std::sin(angle) : std::cos(angle));
    }
  }
  const Tensor made = cast(Tensor::from_vector(table, out.shape(), kCpu), out.dtype());
  copy_(out, to_device(made, out.device()));
}

}  // namespace

PositionEmbedding::PositionEmbedding(const PositionEmbeddingOptions& options)
    : max_length_(options.max_length) {
  check_extent(kWhere, "max_length", options.max_length);
  check_extent(kWhere, "dim", options.dim);
  if (options.kind == PositionKind::kLearned) {
    learned_.emplace(nn::EmbeddingOptions{
        .entries = options.max_length, .dim = options.dim, .dtype = options.dtype});
    register_module("learned", *learned_);
    return;
  }
  TESSERA_CHECK(options.dim % 2 == 0, kWhere,
                "dim is {}; sines and cosines come in pairs: make it even, or learn the positions",
                options.dim);
  sines_.emplace(nn::BufferOptions{.shape = {options.max_length, options.dim},
                                   .dtype = DType::kF64,
                                   .init = fill_sines,
                                   .persistent = false,
                                   .keep_dtype = true});
  register_buffer("sines", *sines_);
}

Variable PositionEmbedding::forward(const Variable& x, std::int64_t first) {
  TESSERA_CHECK(x.ndim() == 3, kWhere, "expected x [batch, length, dim], got {}", x.shape().str());
  const std::int64_t length = x.dim(1);
  TESSERA_CHECK(first >= 0 && first + length <= max_length_, kWhere,
                "{} positions from {} on do not lie in a table of {}: build the layer with a "
                "larger max_length",
                length, first, max_length_);
  if (learned_) return x + (*learned_)(positions_of(x, first));
  return x + Variable(cast(sines_->tensor().narrow(0, first, length), x.dtype()));
}

GeluFeedForward::GeluFeedForward(const PreNormBlockOptions& options)
    : up_({.in = options.dim, .out = options.ffn_dim, .dtype = options.dtype}),
      down_({.in = options.ffn_dim, .out = options.dim, .dtype = options.dtype}),
      dropout_({.p = options.dropout}) {
  register_module("up", up_);
  register_module("down", down_);
  register_module("dropout", dropout_);
}

Variable GeluFeedForward::forward(const Variable& x) { return dropout_(down_(gelu_tanh(up_(x)))); }

PreNormBlock::PreNormBlock(const PreNormBlockOptions& options)
    : attention_norm_({.shape = {options.dim}, .dtype = options.dtype}),
      attention_({.dim = options.dim,
                  .heads = options.heads,
                  .dropout = options.dropout,
                  .dtype = options.dtype}),
      resid_dropout_({.p = options.dropout}),
      ffn_norm_({.shape = {options.dim}, .dtype = options.dtype}),
      feed_forward_(options) {
  register_module("attention_norm", attention_norm_);
  register_module("attention", attention_);
  register_module("resid_dropout", resid_dropout_);
  register_module("ffn_norm", ffn_norm_);
  register_module("feed_forward", feed_forward_);
}

Variable PreNormBlock::forward(const Variable& x, const nn::AttentionForwardOptions& call) {
  const AddNorm h = ffn_norm_(x, resid_dropout_(attention_(attention_norm_(x), call).output));
  return h.sum + feed_forward_(h.y);
}

}  // namespace tessera::models
