#include "tessera/tests/models/plain_transformer.h"

#include <cmath>
#include <string>

namespace tessera::testing {
namespace {

using Row = std::vector<double>;
using Rows = std::vector<Row>;

class Plain {
 public:
  explicit Plain(models::Transformer& model) : model_(model) {}

  // tokens -> logits of one sample.
  Rows operator()(const std::int64_t* tokens, std::size_t length) {
    const Row tok = values("tok_embeddings.weight"), pos = values("pos_embeddings.weight");
    const auto dim = static_cast<std::size_t>(model_.args().dim);
    Rows h(length, Row(dim));
    for (std::size_t t = 0; t < length; ++t) {
      for (std::size_t i = 0; i < dim; ++i) {
        h[t][i] = tok[static_cast<std::size_t>(tokens[t]) * dim + i] + pos[t * dim + i];
      }
    }
    for (int i = 0; i < model_.args().n_layers; ++i) {
      const std::string block = "layers." + std::to_string(i) + ".";
      add(h, attention(block + "attention.", layer_norm(block + "attention_norm", h)));
      Rows wide = linear(block + "feed_forward.w1", layer_norm(block + "ffn_norm", h));
      for (Row& row : wide) {
        for (double& x : row) x *= 0.5 * (1 + std::erf(x / std::sqrt(2.0)));
      }
      add(h, linear(block + "feed_forward.w2", wide));
    }
    const char* output = model_.args().weight_tying ? "tok_embeddings" : "output";
    return linear(output, layer_norm("norm", h));
  }

 private:
  Row values(const std::string& name) {
    return model_.get_parameter(name).local().tensor().to_vector<double>();
  }

  static void add(Rows& to, const Rows& rows) {
    for (std::size_t t = 0; t < to.size(); ++t) {
      for (std::size_t i = 0; i < to[t].size(); ++i) to[t][i] += rows[t][i];
    }
  }

  Rows linear(const std::string& layer, const Rows& x) {
    const Row weight = values(layer + ".weight");
    Row bias(weight.size() / x[0].size());
    const bool has_bias = layer.ends_with(".w1") || layer.ends_with(".w2");
    if (has_bias) bias = values(layer + ".bias");
    Rows y;
    for (const Row& row : x) {
      y.push_back(bias);
      for (std::size_t o = 0; o < bias.size(); ++o) {
        for (std::size_t i = 0; i < row.size(); ++i)
          y.back()[o] += weight[o * row.size() + i] * row[i];
      }
    }
    return y;
  }

  Rows layer_norm(const std::string& layer, const Rows& x) {
    const Row weight = values(layer + ".weight"), bias = values(layer + ".bias");
    Rows y = x;
    for (Row& row : y) {
      const auto n = static_cast<double>(row.size());
      double mean = 0, variance = 0;
      for (const double v : row) mean += v / n;
      for (const double v : row) variance += (v - mean) * (v - mean) / n;
      for (std::size_t i = 0; i < row.size(); ++i) {
        row[i] = (row[i] - mean) / std::sqrt(variance + 1e-5) * weight[i] + bias[i];
      }
    }
    return y;
  }

  Rows attention(const std::string& layer, const Rows& x) {
    const Rows q = linear(layer + "wq", x), k = linear(layer + "wk", x),
               v = linear(layer + "wv", x);
    const auto heads = static_cast<std::size_t>(model_.args().n_heads);
    const std::size_t width = x[0].size() / heads;
    Rows y(x.size(), Row(x[0].size()));
    for (std::size_t head = 0; head < heads; ++head) {
      for (std::size_t t = 0; t < x.size(); ++t) {
        const std::size_t keys = model_.args().use_attn_mask ? t + 1 : x.size();
        Row weights(keys);
        double total = 0;
        for (std::size_t s = 0; s < keys; ++s) {
          double score = 0;
          for (std::size_t i = head * width; i < (head + 1) * width; ++i)
            score += q[t][i] * k[s][i];
          total += weights[s] = std::exp(score / std::sqrt(static_cast<double>(width)));
        }
        for (std::size_t s = 0; s < keys; ++s) {
          for (std::size_t i = head * width; i < (head + 1) * width; ++i) {
            y[t][i] += weights[s] / total * v[s][i];
          }
        }
      }
    }
    return linear(layer + "wo", y);
  }

  models::Transformer& model_;
};

}  // namespace

std::vector<double> plain_transformer(models::Transformer& model,
                                      const std::vector<std::int64_t>& tokens, std::size_t length) {
  Plain plain(model);
  std::vector<double> out;
  for (std::size_t start = 0; start < tokens.size(); start += length) {
    for (const Row& row : plain(&tokens[start], length))
      out.insert(out.end(), row.begin(), row.end());
  }
  return out;
}

}  // namespace tessera::testing
