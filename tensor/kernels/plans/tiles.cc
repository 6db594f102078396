#include "tessera/tensor/kernels/plans/tiles.h"

#include <algorithm>

#include "tessera/tensor/rank_context.h"

namespace tessera {

std::size_t units_workspace(std::int64_t units, std::size_t share) {
  const std::int64_t threads = std::min<std::int64_t>(units, current_rank_context()->threads());
  return share * static_cast<std::size_t>(threads);
}

}  // namespace tessera
