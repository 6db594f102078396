#pragma once

/// Text from a language model, a token at a time, with a key-value cache.
///
///     SamplingOptions options{.max_tokens = 100, .temperature = 0.8, .top_p = 0.95, .seed = 1};
///     std::vector<std::int32_t> tokens = generate(language_model(gpt), prompt, options);
///
/// On a sharded model every rank calls it with the same arguments and computes the same tokens:
/// collective. Runs in evaluation mode and without gradients, and leaves the modes as they were,
/// also when something throws. Logits are read on the host, and all that follows is f64: equal
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
  std::int64_t max_tokens = 200;  ///< new ones
  double temperature = 1;         ///< logits are divided by it; 0: always the most likely token
  std::int64_t top_k = 0;         ///< only the k most likely tokens; 0: all
  /// Of those, only the most likely ones whose probabilities add up to it (0 to 1), one at least;
  /// 1: all. Nucleus sampling: Holtzman et al., "The Curious Case of Neural Text Degeneration",
  /// 2020.
  double top_p = 1;
  std::uint64_t seed = 0;  ///< of the draws: token i depends on seed, i and the logits only
  std::optional<std::int32_t> stop_token = std::nullopt;  ///< ends the text, and is not part of it
};

/// The index drawn from `logits` [vocab_size], of any floating dtype. `draw` counts the draws of
/// one text, from 0. Of equally likely tokens the one with the lower index comes first. Throws
/// InvalidArgument for options outside their ranges, a draw below 0 and logits that are not one row
/// of numbers; StateError for logits that hold a NaN or an infinity, where -infinity is a token
/// that is never drawn, as long as there is another.
std::int32_t sample_token(const Tensor& logits, const SamplingOptions& options, std::int64_t draw);

/// The tokens after the prompt. When the text outgrows model.max_length, the last max_length / 2
/// tokens (rounded up) are read anew, at the first positions, and the text goes on; so also with a
/// prompt that is longer. `on_token` is told each token as it is drawn; where
/// it throws on one rank only, the other ranks of a sharded model wait for that one. Throws
/// InvalidArgument for an empty prompt, for tokens outside the vocabulary, naming the token, and
/// for a model without layers that decode; as sample_token and the model's forward do.
std::vector<std::int32_t> generate(const LanguageModel& model, std::span<const std::int32_t> prompt,
                                   const SamplingOptions& options,
                                   const std::function<void(std::int32_t)>& on_token = {});

}  // namespace tessera::models
