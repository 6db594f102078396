#include "tessera/tests/models/plain_mixture.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

namespace tessera::testing {
namespace {

using Row = std::vector<double>;
using Rows = std::vector<Row>;

Rows rows_of(const Tensor& x) {
  const std::vector<double> values = x.to_vector<double>();
  Rows rows;
  for (std::int64_t i = 0; i < x.dim(0); ++i)
    rows.emplace_back(values.begin() + i * x.dim(1), values.begin() + (i + 1) * x.dim(1));
  return rows;
}

// w [out][in] times x [in].
Row times(const Rows& w, const Row& x) {
  Row y;
  for (const Row& row : w) y.push_back(std::inner_product(row.begin(), row.end(), x.begin(), 0.0));
  return y;
}

struct PlainExpert {
  Rows gate, up, down;  // an empty gate means gelu

  Row operator()(const Row& x) const {
    Row inside = times(up, x);
    const Row gates = gate.empty() ? inside : times(gate, x);
    for (std::size_t i = 0; i < inside.size(); ++i) {
      const double g = gates[i];
      inside[i] = gate.empty() ? g * 0.5 * (1 + std::erf(g / std::sqrt(2.0)))
                               : g / (1 + std::exp(-g)) * inside[i];
    }
    return times(down, inside);
  }
};

std::vector<PlainExpert> experts_of(models::MixtureFeedForward& model,
                                    const models::MixtureFeedForwardOptions& options) {
  const auto weight = [&](std::int64_t i, const char* name) {
    return rows_of(model.get_parameter("experts." + std::to_string(i) + "." + name + ".weight")
                       .local()
                       .tensor());
  };
  std::vector<PlainExpert> experts;
  for (std::int64_t i = 0; i < options.experts; ++i) {
    experts.push_back({.gate = {}, .up = weight(i, "up"), .down = weight(i, "down")});
    if (options.expert.kind == models::ExpertKind::kSwiGlu) experts.back().gate = weight(i, "gate");
  }
  return experts;
}

struct PlainToken {
  Row probabilities;
  std::vector<std::size_t> choices;  // the best first
  Row weights;                       // of the choices
  double log_sum = 0;
};

PlainToken routed(const Row& logits, const models::MixtureFeedForwardOptions& options) {
  PlainToken token;
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit);
  token.log_sum = std::log(sum);
  for (const double logit : logits) token.probabilities.push_back(std::exp(logit) / sum);
  token.choices.resize(logits.size());
  std::iota(token.choices.begin(), token.choices.end(), std::size_t{0});
  std::stable_sort(token.choices.begin(), token.choices.end(),
                   [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
  token.choices.resize(static_cast<std::size_t>(options.top_k_experts));
  double chosen = 0;
  for (const std::size_t expert : token.choices) chosen += token.probabilities[expert];
  if (!options.normalize_weights) chosen = 1;
  for (const std::size_t expert : token.choices)
    token.weights.push_back(token.probabilities[expert] / chosen);
  return token;
}

void add_losses(const std::vector<PlainToken>& tokens,
                const models::MixtureFeedForwardOptions& options, PlainMixture& result) {
  const auto count = static_cast<double>(tokens.size());
  for (std::int64_t i = 0; i < options.experts; ++i) {
    const auto expert = static_cast<std::size_t>(i);
    double share = 0, mean = 0;
    for (const PlainToken& token : tokens) {
      share += static_cast<double>(std::count(token.choices.begin(), token.choices.end(), expert));
      mean += token.probabilities[expert];
    }
    share /= count * static_cast<double>(options.top_k_experts);
    result.balance += static_cast<double>(options.experts) * share * mean / count;
  }
  for (const PlainToken& token : tokens) result.z += token.log_sum * token.log_sum / count;
}

}  // namespace

PlainMixture plain_mixture(models::MixtureFeedForward& model,
                           const models::MixtureFeedForwardOptions& options, const Tensor& x) {
  const Rows in = rows_of(x),
             router = rows_of(model.get_parameter("router.weight").local().tensor());
  const std::vector<PlainExpert> experts = experts_of(model, options);
  PlainMixture result{.output = Rows(in.size(), Row(static_cast<std::size_t>(x.dim(1)), 0.0)),
                      .taken = {}};
  std::vector<PlainToken> tokens;
  for (const Row& row : in) tokens.push_back(routed(times(router, row), options));
  const double share = static_cast<double>(in.size()) * static_cast<double>(options.top_k_experts) /
                       static_cast<double>(options.experts);
  const double capacity =
      options.capacity_factor > 0 ? std::ceil(options.capacity_factor * share) : INFINITY;
  result.taken.resize(experts.size());
  for (std::size_t place = 0; place < static_cast<std::size_t>(options.top_k_experts); ++place) {
    for (std::size_t token = 0; token < in.size(); ++token) {
      const std::size_t expert = tokens[token].choices[place];
      if (static_cast<double>(result.taken[expert].size()) >= capacity) continue;
      result.taken[expert].push_back(static_cast<std::int64_t>(token));
      const Row y = experts[expert](in[token]);
      for (std::size_t d = 0; d < y.size(); ++d)
        result.output[token][d] += tokens[token].weights[place] * y[d];
    }
  }
  for (auto& taken : result.taken) std::sort(taken.begin(), taken.end());
  add_losses(tokens, options, result);
  return result;
}

}  // namespace tessera::testing
