#include "tessera/tests/models/plain_transformer.h"

#include <string>

#include "tessera/tests/models/plain_layers.h"

namespace tessera::testing {
namespace {

// tokens -> logits of one sample.
Rows logits_of(models::Transformer& model, const std::int64_t* tokens, std::size_t length) {
  PlainLayers plain(model);
  std::vector<std::int64_t> positions;
  for (std::size_t t = 0; t < length; ++t) positions.push_back(static_cast<std::int64_t>(t));
  Rows h = added(plain.embedding("tok_embeddings", tokens, length),
                 plain.embedding("pos_embeddings", positions.data(), length));
  const auto heads = static_cast<std::size_t>(model.args().n_heads);
  const PlainAttention attention{
      .heads = heads, .kv_heads = heads, .causal = model.args().use_attn_mask};
  for (int i = 0; i < model.args().n_layers; ++i) {
    const std::string block = "layers." + std::to_string(i) + ".";
    const Rows x = plain.layer_norm(block + "attention_norm", h);
    const Rows y = plain_attention(plain.linear(block + "attention.wq", x),
                                   plain.linear(block + "attention.wk", x),
                                   plain.linear(block + "attention.wv", x), attention);
    h = added(h, plain.linear(block + "attention.wo", y));
    const Rows wide =
        plain.linear(block + "feed_forward.w1", plain.layer_norm(block + "ffn_norm", h));
    h = added(h, plain.linear(block + "feed_forward.w2", mapped(wide, gelu)));
  }
  return plain.linear("output", plain.layer_norm("norm", h));
}

}  // namespace

std::vector<double> plain_transformer(models::Transformer& model,
                                      const std::vector<std::int64_t>& tokens, std::size_t length) {
  std::vector<double> out;
  for (std::size_t start = 0; start < tokens.size(); start += length) {
    for (const Row& row : logits_of(model, &tokens[start], length))
      out.insert(out.end(), row.begin(), row.end());
  }
  return out;
}

}  // namespace tessera::testing
