#pragma once

/// How the rows of a tensor, or the samples of a batch, are split over ranks: pure functions.
/// Header only.

#include <algorithm>
#include <cstdint>

namespace tessera::distributed {

/// One rank's rows [begin, end) of n, cut into `parts` chunks of ceil(n / parts) rows: the rule of
/// torch.chunk, so the last ranks may have short or empty chunks. 5 rows over 4 ranks: 2, 2, 1, 0.
struct Chunk {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t padded_rows = 0;  ///< rows of every chunk once padded: ceil(n / parts)

  std::int64_t rows() const { return end - begin; }
};

/// Needs n >= 0, parts >= 1 and 0 <= index < parts.
constexpr Chunk chunk_of(std::int64_t n, int parts, int index) {
  const std::int64_t padded = (n + parts - 1) / parts;
  return {.begin = std::min(n, padded * index),
          .end = std::min(n, padded * (index + 1)),
          .padded_rows = padded};
}

}  // namespace tessera::distributed
