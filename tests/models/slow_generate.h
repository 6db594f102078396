// Generation without a cache: the whole visible text is computed again for every token.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/models/generate.h"

namespace tessera::testing {

inline std::vector<std::int32_t> slow_generate(const models::LanguageModel& model,
                                               const std::vector<std::int32_t>& prompt,
                                               const models::SamplingOptions& options) {
  std::vector<std::int64_t> seen(prompt.begin(), prompt.end());
  std::vector<std::int32_t> out;
  for (std::int64_t draw = 0; draw < options.max_tokens; ++draw) {
    if (static_cast<std::int64_t>(seen.size()) > model.max_length)
      seen.erase(seen.begin(), seen.end() - (model.max_length + 1) / 2);
    const auto length = static_cast<std::int64_t>(seen.size());
    const Tensor logits = model.forward(Tensor::from_vector(seen, {1, length}), {}).logits.tensor();
    out.push_back(sample_token(logits.select(0, 0).select(0, length - 1), options, draw));
    seen.push_back(out.back());
  }
  return out;
}

}  // namespace tessera::testing
