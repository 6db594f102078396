#pragma once

/// Text generation with a language model, one token at a time, with a key-value cache.
///
///     SamplingOptions options{.max_tokens = 100, .temperature = 0.8, .top_p = 0.95, .seed = 1};
///     std::vector<std::int32_t> tokens = generate(language_model(gpt), prompt, options);
///
/// Collective on a sharded model: every rank calls it with the same arguments and computes the same
/// tokens. Runs in evaluation mode without gradients and restores the modes afterwards, also after
/// an exception. Logits are read on the host; everything after that is computed in f64, so equal
/// logits give equal tokens everywhere.

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "tessera/models/nets/language_model.h"
#include "tessera/tensor/tensor.h"

namespace tessera::models {

struct SamplingOptions {
  std::int64_t max_tokens = 200;  ///< number of new tokens
  double temperature = 1;         ///< logits are divided by it; 0: always take the most likely
                                  ///< token
  std::int64_t top_k = 0;         ///< consider only the k most likely tokens; 0: all
  /// Of those, consider only the most likely tokens whose probabilities add up to top_p (in [0,
  /// 1]), at least one; 1: all. Nucleus sampling: Holtzman et al., "The Curious Case of Neural Text
  /// Degeneration", 2020.
  double top_p = 1;
  std::uint64_t seed = 0;  ///< of the draws: token i depends only on seed, i and the logits
  std::optional<std::int32_t> stop_token = std::nullopt;  ///< ends the text and is not returned
};

/// Returns the index drawn from `logits` [vocab_size], of any floating-point dtype. `draw` is the
/// number of earlier draws in this text. Among equally likely tokens the lower index comes first.
/// Throws InvalidArgument for options out of range, a negative draw, and logits that are not one
/// row of numbers; StateError for logits with a NaN or an infinity. A logit of -infinity is legal
/// (that token is never drawn) as long as another token can be drawn.
std::int32_t sample_token(const Tensor& logits, const SamplingOptions& options, std::int64_t draw);

/// Returns the tokens after the prompt. When the text exceeds model.max_length, the last max_length
/// / 2 tokens (rounded up) are read again at the first positions, and generation continues from
/// there; the same happens with a longer prompt. `on_token` is called for each token. If it throws
/// on one rank only, the other ranks of a sharded model wait for that rank. Throws InvalidArgument
/// for an empty prompt, for tokens outside the vocabulary, naming the token, and for a model
/// without layers that can decode; also the errors of sample_token and of the model's forward.
std::vector<std::int32_t> generate(const LanguageModel& model, std::span<const std::int32_t> prompt,
                                   const SamplingOptions& options,
                                   const std::function<void(std::int32_t)>& on_token = {});

}  // namespace tessera::models
