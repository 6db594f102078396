// The small Transformer of models/nets/transformer.h in plain loops over doubles, in evaluation
// mode.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/models/nets/transformer.h"

namespace tessera::testing {

/// The logits, row-major, of tokens [batch, length], with the model's parameters, which are f64.
std::vector<double> plain_transformer(models::Transformer& model,
                                      const std::vector<std::int64_t>& tokens, std::size_t length);

}  // namespace tessera::testing
