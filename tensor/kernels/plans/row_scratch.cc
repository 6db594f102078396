#include "tessera/tensor/kernels/plans/row_scratch.h"

#include <algorithm>

#include "tessera/tensor/rank_context.h"

namespace tessera {

std::size_t row_scratch(std::int64_t rows, std::int64_t length, std::size_t bytes) {
  const std::int64_t per_turn = rows_per_turn(length);
  const std::int64_t turns = std::max<std::int64_t>(1, (rows + per_turn - 1) / per_turn);
  const std::int64_t threads = std::min<std::int64_t>(turns, current_rank_context()->threads());
  return row_scratch_share(bytes) * static_cast<std::size_t>(threads);
}

std::size_t units_workspace(std::int64_t units, std::size_t share) {
  const std::int64_t threads = std::min<std::int64_t>(units, current_rank_context()->threads());
  return share * static_cast<std::size_t>(threads);
}

}  // namespace tessera
