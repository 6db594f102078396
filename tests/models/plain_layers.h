#pragma once

/// The layers of token models in plain loops over doubles, in evaluation mode: the building blocks
/// of reference models; and one such model, the small Transformer of models/nets/transformer.h.

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "tessera/models/nets/transformer.h"
#include "tessera/nn/module.h"

namespace tessera::testing {

// The layers of token models in plain loops over doubles, in evaluation mode: the building blocks
// of reference models.

using Row = std::vector<double>;
using Rows = std::vector<Row>;  // [length, features] of one sample

Rows added(Rows a, const Rows& b);
Rows multiplied(Rows a, const Rows& b);
// Applied to each element.
Rows mapped(Rows x, double (*function)(double));
double gelu(double x);
double gelu_tanh(double x);
double silu(double x);

struct PlainAttention {
  std::size_t heads = 1;
  std::size_t kv_heads = 1;
  bool causal = false;  // query i attends to keys 0 ... i
  // Keys that are masked for all queries; empty: none.
  std::vector<bool> hidden = {};
  double rotary_base = 0;  // 0: queries and keys are not rotated
};
// Attention of projected queries, keys and values, with heads side by side in their rows.
Rows plain_attention(Rows q, Rows k, const Rows& v, const PlainAttention& options);

// Layers by module name, with the model's parameters, which are f64 and full.
class PlainLayers {
 public:
  explicit PlainLayers(nn::Module& model);

  Row values(const std::string& parameter);
  // Rows of `layer`.weight.
  Rows embedding(const std::string& layer, const std::int64_t* tokens, std::size_t length);
  // With the bias, if there is one.
  Rows linear(const std::string& layer, const Rows& x);
  Rows layer_norm(const std::string& layer, const Rows& x);
  Rows rms_norm(const std::string& layer, const Rows& x, double eps);
  // nn::MultiheadAttention with packed projections.
  Rows attention(const std::string& layer, const Rows& x, const Rows& memory,
                 const PlainAttention& options);

 private:
  nn::Module& model_;
  std::set<std::string> names_;
};

// The small Transformer of models/nets/transformer.h in plain loops over doubles, in evaluation
// mode.

/// The logits, row-major, of tokens [batch, length], with the model's parameters, which are f64.
std::vector<double> plain_transformer(models::Transformer& model,
                                      const std::vector<std::int64_t>& tokens, std::size_t length);

}  // namespace tessera::testing
