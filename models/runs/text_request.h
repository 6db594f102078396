#pragma once

/// What text a language model is to write, in the words of `tessera generate`.

#include <cstdint>
#include <string>

namespace tessera::models {

/// Text to generate after the prompt, or from the beginning of a document if the prompt is empty.
/// The other members are those of SamplingOptions (generate.h).
struct TextRequest {
  std::string prompt = {};
  std::int64_t max_tokens = 200;
  double temperature = 0.8;
  std::int64_t top_k = 0;
  double top_p = 0.95;
  std::uint64_t seed = 1;
};

}  // namespace tessera::models
