#include "tessera/nn/layers/transformer/attention.h"

#include <string>
#include <vector>

#include "tessera/autograd/ops/autocast.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/nn/layers/checks.h"
#include "tessera/nn/layers/transformer/attention_weights.h"
#include "tessera/nn/layers/transformer/head_part.h"
#include "tessera/tensor/check.h"

namespace tessera::nn {
namespace {

constexpr const char* kWhere = "nn.MultiheadAttention";

std::int64_t kv_heads_of(const MultiheadAttentionOptions& options) {
  return options.kv_heads > 0 ? options.kv_heads : options.heads;
}

const MultiheadAttentionOptions& checked(const MultiheadAttentionOptions& options) {
  TESSERA_CHECK(options.dim >= 1 && options.heads >= 1 && options.dim % options.heads == 0, kWhere,
                "expected dim and heads of at least 1, and dim a multiple of heads; got dim = {}, "
                "heads = {}",
                options.dim, options.heads);
  TESSERA_CHECK(options.kv_heads >= 0 && options.heads % kv_heads_of(options) == 0, kWhere,
                "expected kv_heads to divide heads; got kv_heads = {}, heads = {}",
                options.kv_heads, options.heads);
  TESSERA_CHECK(options.kdim >= 0 && options.vdim >= 0, kWhere,
                "expected kdim and vdim of at least 1, or 0 for dim; got kdim = {}, vdim = {}",
                options.kdim, options.vdim);
  TESSERA_CHECK(options.dropout >= 0 && options.dropout <= 1, kWhere,
                "dropout is {}; it must lie in [0, 1]", options.dropout);
  const std::int64_t head_dim = options.dim / options.heads;
  TESSERA_CHECK(options.rotary == nullptr || options.rotary->dim() <= head_dim, kWhere,
                "the rotary embedding turns {} features, and a head has {}", options.rotary->dim(),
                head_dim);
  return options;
}

// Rows of q, k and v, of so many together.
std::vector<std::int64_t> row_counts(std::int64_t rows, std::int64_t group) {
  const std::int64_t kv_rows = rows / (group + 2);
  return {kv_rows * group, kv_rows, kv_rows};
}

}  // namespace

MultiheadAttention::MultiheadAttention(const MultiheadAttentionOptions& options)
    : head_dim_(checked(options).dim / options.heads),
      group_(options.heads / kv_heads_of(options)),
      dropout_(options.dropout),
      batch_first_(options.batch_first),
      rotary_(options.rotary),
      out_proj_(
          {.in = options.dim, .out = options.dim, .bias = options.bias, .dtype = options.dtype}) {
  register_projections(options);
  register_module("out_proj", out_proj_);
  if (options.bias) out_proj_.bias().set_init(init::zeros());
  if (rotary_) register_module("rotary", *rotary_);
}

void MultiheadAttention::register_projections(const MultiheadAttentionOptions& options) {
  const std::int64_t dim = options.dim, kv_dim = head_dim_ * kv_heads_of(options);
  const std::int64_t kdim = options.kdim > 0 ? options.kdim : dim;
  const std::int64_t vdim = options.vdim > 0 ? options.vdim : dim;
  const auto add = [&](const char* name, std::optional<Parameter>& parameter, const Shape& shape,
                       Initializer init) {
    parameter.emplace(
        ParameterOptions{.shape = shape, .dtype = options.dtype, .init = std::move(init)});
    register_parameter(name, *parameter);
  };
  if (kdim == dim && vdim == dim) {
    add("in_proj_weight", in_proj_weight_, {dim + 2 * kv_dim, dim}, init::xavier_uniform());
  } else {
    add("q_proj_weight", q_proj_weight_, {dim, dim}, init::xavier_uniform());
    add("k_proj_weight", k_proj_weight_, {kv_dim, kdim}, init::xavier_uniform());
    add("v_proj_weight", v_proj_weight_, {kv_dim, vdim}, init::xavier_uniform());
  }
  if (options.bias) add("in_proj_bias", in_proj_bias_, {dim + 2 * kv_dim}, init::zeros());
}

void MultiheadAttention::check_input(const char* name, const Variable& x,
                                     const Parameter& weight) const {
  TESSERA_CHECK(x.ndim() == 3 && x.dim(2) == weight.shape()[1], kWhere,
                "\"{}\" of shape {} expects a {} [{}, {}], got {}", weight.name(),
                weight.shape().str(), name, batch_first_ ? "batch, length" : "length, batch",
                weight.shape()[1], x.shape().str());
  // The dtype of the values that are computed with, which sharding may have cast. In autocast
  // operands of any floating dtype are cast alike.
  const DType dtype = weight.value().dtype();
  TESSERA_CHECK(x.dtype() == dtype || autocast_dtype().has_value(), kWhere,
                "\"{}\" is {}, the {} {}: cast it, or build the layer with .dtype", weight.name(),
                dtype_name(dtype), name, dtype_name(x.dtype()));
}

void MultiheadAttention::check_inputs(const Variable& query, const Variable& key,
                                      const Variable& value) {
  const bool packed = in_proj_weight_.has_value();
  check_input("query", query, packed ? *in_proj_weight_ : *q_proj_weight_);
  check_input("key", key, packed ? *in_proj_weight_ : *k_proj_weight_);
  check_input("value", value, packed ? *in_proj_weight_ : *v_proj_weight_);
  const int batch = batch_first_ ? 0 : 1, length = 1 - batch;
  TESSERA_CHECK(query.dim(batch) == key.dim(batch) && query.dim(batch) == value.dim(batch) &&
                    key.dim(length) == value.dim(length),
                kWhere,
                "query {}, key {} and value {} do not fit: all need one batch (dim {}), key and "
                "value one length (dim {})",
                query.shape().str(), key.shape().str(), value.shape().str(), batch, length);
}

// [batch, length, heads, head dim].
Variable MultiheadAttention::split_heads(const Variable& x) const {
  TESSERA_CHECK(x.dim(2) % head_dim_ == 0, kWhere,
                "this rank's projections are {} wide, no multiple of a head's {}: cut them by "
                "heads, over ranks whose number divides the heads",
                x.dim(2), head_dim_);
  const Variable heads = unflatten(x, 2, {x.dim(2) / head_dim_, head_dim_});
  return batch_first_ ? heads : transpose(heads, 0, 1);
}

MultiheadAttention::Heads MultiheadAttention::project(const Variable& query, const Variable& key,
                                                      const Variable& value) {
  const Variable bias = detail::value_or_none(in_proj_bias_);
  if (in_proj_weight_ && key.same_as(query) && value.same_as(query)) {
    const Variable& weight = in_proj_weight_->value();
    const std::vector<Variable> parts =
        split(linear(query, weight, bias), row_counts(weight.dim(0), group_), -1);
    return {split_heads(parts[0]), split_heads(parts[1]), split_heads(parts[2])};
  }
  std::vector<Variable> weights, biases(3);
  if (in_proj_weight_) {
    const Variable& weight = in_proj_weight_->value();
    weights = split(weight, row_counts(weight.dim(0), group_), 0);
  } else {
    weights = {q_proj_weight_->value(), k_proj_weight_->value(), v_proj_weight_->value()};
  }
  if (in_proj_bias_) biases = split(bias, row_counts(bias.dim(0), group_), 0);
  return {split_heads(linear(query, weights[0], biases[0])),
          split_heads(linear(key, weights[1], biases[1])),
          split_heads(linear(value, weights[2], biases[2]))};
}

random::Box MultiheadAttention::dropout_box(const Heads& heads) const {
  const Parameter& weight = in_proj_weight_ ? *in_proj_weight_ : *q_proj_weight_;
  const std::int64_t rows = weight.spec().global_shape[0];
  const std::int64_t query_rows = in_proj_weight_ ? rows / (group_ + 2) * group_ : rows;
  return probability_box({heads.q.dim(0), heads.q.dim(1), heads.q.dim(2), heads.k.dim(2)},
                         head_part(weight, head_dim_, query_rows));
}

// Heads as scaled_dot_product_attention takes them; output [batch, heads, queries, head dim].
MultiheadAttentionResult MultiheadAttention::attend(const Heads& heads, const Tensor& mask,
                                                    const AttentionForwardOptions& call) const {
  std::string layer;  // whose draws of dropout are counted
  if (is_training() && dropout_ > 0) {
    layer = scope_name().path();
    if (layer.empty()) layer = type_name();
  }
  const AttentionLayerOptions options{.causal = call.is_causal,
                                      .alignment = call.cache != nullptr
                                                       ? CausalAlignment::kBottomRight
                                                       : CausalAlignment::kTopLeft,
                                      .mask = mask,
                                      .dropout_p = dropout_,
                                      .training = is_training(),
                                      .layer = layer,
                                      .box = layer.empty() ? random::Box() : dropout_box(heads)};
  if (!call.need_weights) {
    return {.output = scaled_dot_product_attention(heads.q, heads.k, heads.v, options)};
  }
  const AttentionWithWeights both = attention_with_weights(heads.q, heads.k, heads.v, options);
  return {.output = both.output,
          .weights = call.average_weights ? mean(both.weights, {1}) : both.weights};
}

MultiheadAttentionResult MultiheadAttention::forward(const Variable& query, const Variable& key,
                                                     const Variable& value,
                                                     const AttentionForwardOptions& call) {
  if (query.ndim() == 2 && key.ndim() == 2 && value.ndim() == 2)
    return forward_alone(query, key, value, call);
  check_inputs(query, key, value);
  Heads heads = project(query, key, value);
  const std::int64_t past = call.cache != nullptr ? call.cache->length() : 0;
  if (rotary_) {
    heads.q = (*rotary_)(heads.q, past);
    heads.k = (*rotary_)(heads.k, past);
  }
  heads = {transpose(heads.q, 1, 2), transpose(heads.k, 1, 2), transpose(heads.v, 1, 2)};
  // Before the cache takes anything up, so that a call with a wrong mask leaves it as it was.
  const Shape scores{heads.q.dim(0), heads.q.dim(1), heads.q.dim(2), past + heads.k.dim(2)};
  const Tensor mask = merge_attention_masks(
      {.attn_mask = call.attn_mask, .key_padding_mask = call.key_padding_mask}, scores);
  if (call.cache != nullptr) {
    call.cache->append(heads.k, heads.v);
    heads.k = call.cache->keys();
    heads.v = call.cache->values();
  }
  MultiheadAttentionResult result = attend(heads, mask, call);
  const Variable rows = transpose(result.output, 1, 2);
  result.output = out_proj_(flatten(batch_first_ ? rows : transpose(rows, 0, 1), 2, 3));
  return result;
}

// A batch of one; a self attention stays one.
MultiheadAttentionResult MultiheadAttention::forward_alone(const Variable& query,
                                                           const Variable& key,
                                                           const Variable& value,
                                                           AttentionForwardOptions call) {
  const int batch = batch_first_ ? 0 : 1;
  const Variable q = unsqueeze(query, batch), k = key.same_as(query) ? q : unsqueeze(key, batch),
                 v = value.same_as(query) ? q : unsqueeze(value, batch);
  if (call.key_padding_mask.defined() && call.key_padding_mask.ndim() == 1)
    call.key_padding_mask = call.key_padding_mask.unsqueeze(0);
  MultiheadAttentionResult result = forward(q, k, v, call);
  result.output = select(result.output, batch, 0);
  if (result.weights.defined()) result.weights = select(result.weights, 0, 0);
  return result;
}

MultiheadAttentionResult MultiheadAttention::forward(const Variable& x,
                                                     const AttentionForwardOptions& call) {
  return forward(x, x, x, call);
}

}  // namespace tessera::nn
