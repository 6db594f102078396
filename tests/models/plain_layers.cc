#include "tessera/tests/models/plain_layers.h"

#include <cmath>
#include <string>

namespace tessera::testing {
namespace {

// y = x W^T + b with rows [first, first + count) of both; without b if it is empty.
struct LinearRows {
  const Row& weight;
  const Row& bias;
  std::size_t first = 0;
  std::size_t count = 0;
};
Rows linear_rows(const Rows& x, const LinearRows& layer) {
  Rows y;
  for (const Row& row : x) {
    Row out(layer.count);
    for (std::size_t o = 0; o < layer.count; ++o) {
      const std::size_t at = layer.first + o;
      out[o] = layer.bias.empty() ? 0 : layer.bias[at];
      for (std::size_t i = 0; i < row.size(); ++i)
        out[o] += layer.weight[at * row.size() + i] * row[i];
    }
    y.push_back(out);
  }
  return y;
}

// Features i and i + half of a head form a pair, rotated by the angle position / base^(i / half).
void turn(Rows& x, std::size_t heads, double base) {
  const std::size_t width = x.empty() ? 0 : x[0].size() / heads;
  const std::size_t half = width / 2;
  for (std::size_t t = 0; t < x.size(); ++t) {
    for (std::size_t head = 0; head < heads; ++head) {
      for (std::size_t i = 0; i < half; ++i) {
        const double angle = static_cast<double>(t) *
                             std::pow(base, -static_cast<double>(i) / static_cast<double>(half));
        double& a = x[t][head * width + i];
        double& b = x[t][head * width + half + i];
        const double turned = a * std::cos(angle) - b * std::sin(angle);
        b = a * std::sin(angle) + b * std::cos(angle);
        a = turned;
      }
    }
  }
}

// The unnormalised probabilities of one query of one head.
Row scores_of(const Row& q, const Rows& k, std::size_t query_begin, std::size_t key_begin,
              std::size_t width) {
  Row scores;
  for (const Row& key : k) {
    double score = 0;
    for (std::size_t i = 0; i < width; ++i) score += q[query_begin + i] * key[key_begin + i];
    scores.push_back(std::exp(score / std::sqrt(static_cast<double>(width))));
  }
  return scores;
}

}  // namespace

Rows added(Rows a, const Rows& b) {
  for (std::size_t t = 0; t < a.size(); ++t) {
    for (std::size_t i = 0; i < a[t].size(); ++i) a[t][i] += b[t][i];
  }
  return a;
}

Rows multiplied(Rows a, const Rows& b) {
  for (std::size_t t = 0; t < a.size(); ++t) {
    for (std::size_t i = 0; i < a[t].size(); ++i) a[t][i] *= b[t][i];
  }
  return a;
}

Rows mapped(Rows x, double (*function)(double)) {
  for (Row& row : x) {
    for (double& value : row) value = function(value);
  }
  return x;
}

double gelu(double x) { return x * 0.5 * (1 + std::erf(x / std::sqrt(2.0))); }
double gelu_tanh(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}
double silu(double x) { return x / (1 + std::exp(-x)); }

Rows plain_attention(Rows q, Rows k, const Rows& v, const PlainAttention& options) {
  if (options.rotary_base > 0) {
    turn(q, options.heads, options.rotary_base);
    turn(k, options.kv_heads, options.rotary_base);
  }
  Rows y(q.size(), Row(q.empty() ? 0 : q[0].size()));
  const std::size_t width = q.empty() ? 0 : q[0].size() / options.heads;
  for (std::size_t head = 0; head < options.heads; ++head) {
    const std::size_t begin = head * width;
    const std::size_t kv_begin = head / (options.heads / options.kv_heads) * width;
    for (std::size_t t = 0; t < q.size(); ++t) {
      Row weights = scores_of(q[t], k, begin, kv_begin, width);
      double total = 0;
      for (std::size_t s = 0; s < weights.size(); ++s) {
        const bool is_hidden = !options.hidden.empty() && options.hidden[s];
        if ((options.causal && s > t) || is_hidden) weights[s] = 0;
        total += weights[s];
      }
      for (std::size_t s = 0; s < weights.size(); ++s) {
        for (std::size_t i = 0; i < width; ++i)
          y[t][begin + i] += weights[s] / total * v[s][kv_begin + i];
      }
    }
  }
  return y;
}

PlainLayers::PlainLayers(nn::Module& model) : model_(model) {
  for (const auto& [name, parameter] : model.named_parameters()) names_.insert(name);
}

Row PlainLayers::values(const std::string& parameter) {
  return model_.get_parameter(parameter).local().tensor().to_vector<double>();
}

Rows PlainLayers::embedding(const std::string& layer, const std::int64_t* tokens,
                            std::size_t length) {
  const Row table = values(layer + ".weight");
  const std::int64_t dim = model_.get_parameter(layer + ".weight").shape()[1];
  Rows out;
  for (std::size_t t = 0; t < length; ++t)
    out.emplace_back(table.begin() + tokens[t] * dim, table.begin() + (tokens[t] + 1) * dim);
  return out;
}

Rows PlainLayers::linear(const std::string& layer, const Rows& x) {
  const Row weight = values(layer + ".weight");
  const Row bias = names_.contains(layer + ".bias") ? values(layer + ".bias") : Row();
  const std::size_t out = x.empty() ? 0 : weight.size() / x[0].size();
  return linear_rows(x, {.weight = weight, .bias = bias, .first = 0, .count = out});
}

Rows PlainLayers::layer_norm(const std::string& layer, const Rows& x) {
  const Row weight = values(layer + ".weight"), bias = values(layer + ".bias");
  Rows y = x;
  for (Row& row : y) {
    const auto n = static_cast<double>(row.size());
    double mean = 0, variance = 0;
    for (const double v : row) mean += v / n;
    for (const double v : row) variance += (v - mean) * (v - mean) / n;
    for (std::size_t i = 0; i < row.size(); ++i)
      row[i] = (row[i] - mean) / std::sqrt(variance + 1e-5) * weight[i] + bias[i];
  }
  return y;
}

Rows PlainLayers::rms_norm(const std::string& layer, const Rows& x, double eps) {
  const Row weight = values(layer + ".weight");
  Rows y = x;
  for (Row& row : y) {
    double squares = 0;
    for (const double v : row) squares += v * v / static_cast<double>(row.size());
    for (std::size_t i = 0; i < row.size(); ++i)
      row[i] = row[i] / std::sqrt(squares + eps) * weight[i];
  }
  return y;
}

Rows PlainLayers::attention(const std::string& layer, const Rows& x, const Rows& memory,
                            const PlainAttention& options) {
  const Row weight = values(layer + ".in_proj_weight");
  const std::string bias_name = layer + ".in_proj_bias";
  const Row bias = names_.contains(bias_name) ? values(bias_name) : Row();
  const std::size_t dim = x[0].size(), kv_dim = dim / options.heads * options.kv_heads;
  const auto projected = [&](const Rows& from, std::size_t first, std::size_t count) {
    return linear_rows(from, {.weight = weight, .bias = bias, .first = first, .count = count});
  };
  return linear(layer + ".out_proj",
                plain_attention(projected(x, 0, dim), projected(memory, dim, kv_dim),
                                projected(memory, dim + kv_dim, kv_dim), options));
}

namespace {

// tokens -> logits of one sample.
Rows logits_of(models::Transformer& model, const std::int64_t* tokens, std::size_t length) {
  PlainLayers plain(model);
  std::vector<std::int64_t> positions;
  for (std::size_t t = 0; t < length; ++t) positions.push_back(static_cast<std::int64_t>(t));
  Rows h = added(plain.embedding("tok_embeddings", tokens, length),
                 plain.embedding("pos_embeddings", positions.data(), length));
  const auto heads = static_cast<std::size_t>(model.options().heads);
  const PlainAttention attention{
      .heads = heads, .kv_heads = heads, .causal = model.options().use_attn_mask};
  for (int i = 0; i < model.options().layers; ++i) {
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
