#pragma once

/// Attention heads of which a rank has some, because its projections have the rows of those only
/// (Parameter::cut): so that dropout of the probabilities draws what one rank with all heads would.

#include <cstdint>

#include "tessera/nn/parameter.h"
#include "tessera/tensor/random.h"

namespace tessera::nn {

struct HeadPart {
  std::int64_t first = 0;  ///< this rank's first head
  std::int64_t all = 0;    ///< heads of all ranks together
};
/// Heads of `head_dim` rows of a weight that begins with those of the queries; `query_rows` of its
/// global rows are theirs.
HeadPart head_part(const Parameter& weight, std::int64_t head_dim, std::int64_t query_rows);

/// Where probabilities [batch, heads, queries, keys] of this rank lie in those of all: samples from
/// random::first_sample() on, heads from the first on.
random::Box probability_box(const Shape& probabilities, const HeadPart& part);

}  // namespace tessera::nn
