#include "tessera/tensor/kernels/matmul.h"

#include "tessera/tensor/rank_context.h"

namespace tessera {

std::size_t MatmulKernel::workspace(const Args& args) {
  const MatmulTiles tiles = matmul_tiles(args.c.shape[0], args.c.shape[1], args.a.shape[1]);
  const auto parts = [](std::int64_t extent, std::int64_t tile) {
    return (extent + tile - 1) / tile;
  };
  const std::int64_t count = parts(args.c.shape[0], tiles.m) * parts(args.c.shape[1], tiles.n);
  const std::int64_t threads = std::min<std::int64_t>(count, current_rank_context()->threads());
  return workspace_per_thread(args) * static_cast<std::size_t>(threads);
}

}  // namespace tessera
