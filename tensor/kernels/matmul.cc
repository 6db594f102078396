#include "tessera/tensor/kernels/matmul.h"

#include "tessera/tensor/kernels/cuda/cublas/matmul_plan.h"
#include "tessera/tensor/rank_context.h"

namespace tessera {

std::size_t MatmulKernel::workspace(const Args& args) {
  const MatmulTiles tiles = args.tiles();
  const std::int64_t count = args.batch() * tiles.rows(args.m()) * tiles.columns(args.n());
  const std::int64_t at_once = tiles_at_once(args, tiles);
  const std::int64_t threads =
      std::min<std::int64_t>((count + at_once - 1) / at_once, current_rank_context()->threads());
  return scratch(args, tiles).total() * static_cast<std::size_t>(threads);
}

std::size_t MatmulKernel::cuda_workspace(const Args& args) {
  return cuda::matmul_scratch(args, cuda::plan_matmul(args)).total();
}

}  // namespace tessera
