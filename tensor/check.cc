#include "tessera/tensor/check.h"

#include "tessera/tensor/rank_context.h"

namespace tessera {

std::string error_text(std::string_view where, std::string_view message) {
  const int rank = current_rank_context()->rank();
  if (rank < 0) return fmt::format("[{}] {}", where, message);
  return fmt::format("[{}] rank {}: {}", where, rank, message);
}

}  // namespace tessera
