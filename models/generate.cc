#include "tessera/models/generate.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "tessera/models/eval_scope.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/random.h"

namespace tessera::models {
namespace {

constexpr const char* kSample = "models.sample_token";
constexpr const char* kGenerate = "models.generate";

void check_options(const char* where, const SamplingOptions& options) {
  TESSERA_CHECK(options.max_tokens >= 0, where, "max_tokens is {}; it is at least 0",
                options.max_tokens);
  TESSERA_CHECK(std::isfinite(options.temperature) && options.temperature >= 0, where,
                "temperature is {}; give a number that is at least 0, where 0 takes the most "
                "likely token",
                options.temperature);
  TESSERA_CHECK(options.top_k >= 0, where, "top_k is {}; give at least 1, or 0 for all tokens",
                options.top_k);
  TESSERA_CHECK(options.top_p >= 0 && options.top_p <= 1, where,
                "top_p is {}; it lies between 0 and 1", options.top_p);
}

std::vector<double> host_logits(const Tensor& logits) {
  TESSERA_CHECK(logits.ndim() == 1 && logits.numel() >= 1 && is_floating(logits.dtype()), kSample,
                "expected logits [vocab_size] in floating point, got {} {}",
                dtype_name(logits.dtype()), logits.shape().str());
  std::vector<double> values = cast(logits, DType::kF64).to_vector<double>();
  const auto is_nan = [](double value) { return std::isnan(value); };
  const auto nan = std::find_if(values.begin(), values.end(), is_nan);
  TESSERA_CHECK_AS(StateError, nan == values.end(), kSample,
                   "logit {} of {} is NaN: the model's parameters or its input are bad",
                   nan - values.begin(), values.size());
  const double largest = *std::max_element(values.begin(), values.end());
  TESSERA_CHECK_AS(StateError, std::isfinite(largest), kSample,
                   "the largest of {} logits is {}, which leaves no probabilities", values.size(),
                   largest);
  return values;
}

// The tokens that may be drawn, the most likely first, with unnormalised probabilities.
struct Candidates {
  std::vector<std::size_t> tokens;
  std::vector<double> weights;
};

Candidates most_likely(const std::vector<double>& logits, const SamplingOptions& options) {
  Candidates out;
  out.tokens.resize(logits.size());
  std::iota(out.tokens.begin(), out.tokens.end(), std::size_t{0});
  const auto comes_first = [&](std::size_t a, std::size_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  };
  if (options.top_k > 0 && options.top_k < static_cast<std::int64_t>(logits.size())) {
    const auto end = out.tokens.begin() + options.top_k;
    std::nth_element(out.tokens.begin(), end, out.tokens.end(), comes_first);
    out.tokens.erase(end, out.tokens.end());
  }
  std::sort(out.tokens.begin(), out.tokens.end(), comes_first);
  const double largest = logits[out.tokens.front()];
  for (const std::size_t token : out.tokens)
    out.weights.push_back(std::exp((logits[token] - largest) / options.temperature));
  return out;
}

// Keeps the first candidates, up to the one at which `share` of the total weight is reached.
void keep_share(Candidates& candidates, double share) {
  const double wanted =
      share * std::accumulate(candidates.weights.begin(), candidates.weights.end(), 0.0);
  double sum = 0;
  std::size_t kept = 0;
  do {
    sum += candidates.weights[kept++];
  } while (sum < wanted && kept < candidates.weights.size());
  candidates.tokens.resize(kept);
  candidates.weights.resize(kept);
}

// Number `draw` of the seed's random stream, in [0, 1).
double uniform_number(std::uint64_t seed, std::int64_t draw) {
  const Tensor number = Tensor::empty({1}, {.dtype = DType::kF64, .device = kCpu});
  random::fill_uniform(number, random::named_key(seed, "models.sample_token"),
                       {.global = {draw + 1}, .offset = {draw}}, 0, 1);
  return number.item<double>();
}

// The first candidate at which the cumulative weight exceeds number * total. If rounding makes that
// product equal to the total, there is none: then the last candidate with a weight above 0.
std::int32_t pick(const Candidates& candidates, double number) {
  const double total = std::accumulate(candidates.weights.begin(), candidates.weights.end(), 0.0);
  double sum = 0;
  std::size_t chosen = 0;
  for (std::size_t i = 0; i < candidates.weights.size() && sum <= number * total; ++i) {
    if (candidates.weights[i] > 0) chosen = i;
    sum += candidates.weights[i];
  }
  return static_cast<std::int32_t>(candidates.tokens[chosen]);
}

void check_tokens(std::span<const std::int32_t> tokens, std::int64_t vocab_size) {
  TESSERA_CHECK(!tokens.empty(), kGenerate,
                "the prompt is empty; give at least one token, such as the one that ends a text");
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    TESSERA_CHECK(tokens[i] >= 0 && tokens[i] < vocab_size, kGenerate,
                  "token {} of the prompt is {}; the model's vocabulary has {}, from 0 on", i,
                  tokens[i], vocab_size);
  }
}

// The device that the model computes on.
Device device_of(const nn::Module& module) {
  for (const nn::Parameter& parameter : module.parameters()) {
    const nn::ParameterOwner* owner = parameter.owner();
    return owner != nullptr ? owner->compute_device() : parameter.local().device();
  }
  return kCpu;
}

// The logits of the token that follows `tokens`.
Tensor next_logits(const LanguageModel& model, std::span<const std::int32_t> tokens,
                   DecodeCache& cache) {
  const std::vector<std::int64_t> wide(tokens.begin(), tokens.end());
  const auto length = static_cast<std::int64_t>(wide.size());
  const Tensor batch = Tensor::from_vector(wide, {1, length}, device_of(model.module));
  const LanguageModelResult result = model.forward(batch, {.cache = &cache});
  const Tensor last = result.logits.tensor().select(0, 0).select(0, length - 1);
  return all_logits(model, Variable(last)).tensor();
}

}  // namespace

std::int32_t sample_token(const Tensor& logits, const SamplingOptions& options, std::int64_t draw) {
  check_options(kSample, options);
  TESSERA_CHECK(draw >= 0, kSample, "draw is {}; draws count from 0", draw);
  const std::vector<double> values = host_logits(logits);
  if (options.temperature == 0) {
    const auto best = std::max_element(values.begin(), values.end());  // the first of equal ones
    return static_cast<std::int32_t>(best - values.begin());
  }
  Candidates candidates = most_likely(values, options);
  keep_share(candidates, options.top_p);
  return pick(candidates, uniform_number(options.seed, draw));
}

std::vector<std::int32_t> generate(const LanguageModel& model, std::span<const std::int32_t> prompt,
                                   const SamplingOptions& options,
                                   const std::function<void(std::int32_t)>& on_token) {
  check_options(kGenerate, options);
  check_tokens(prompt, model.vocab_size);
  const std::int32_t stop = options.stop_token.value_or(0);
  TESSERA_CHECK(stop >= 0 && stop < model.vocab_size, kGenerate,
                "stop_token is {}; the model's vocabulary has {}, from 0 on", stop,
                model.vocab_size);
  const EvalScope scope(model.module);
  DecodeCache cache(model.cached_layers);
  std::vector<std::int32_t> text(prompt.begin(), prompt.end());
  std::size_t read = 0;  // tokens of the text that are in the cache
  for (std::int64_t draw = 0; draw < options.max_tokens; ++draw) {
    const auto unread = static_cast<std::int64_t>(text.size() - read);
    if (cache.length() + unread > model.max_length) {
      cache.clear();
      read = text.size() - static_cast<std::size_t>((model.max_length + 1) / 2);
    }
    const Tensor logits = next_logits(model, std::span(text).subspan(read), cache);
    read = text.size();
    const std::int32_t token = sample_token(logits, options, draw);
    if (token == options.stop_token) break;
    text.push_back(token);
    if (on_token) on_token(token);
  }
  return {text.begin() + static_cast<std::ptrdiff_t>(prompt.size()), text.end()};
}

}  // namespace tessera::models
