#include "tessera/tensor/kernels/matmul.h"

#include <omp.h>

#include <cstddef>
#include <exception>
#include <mutex>

#include "tessera/tensor/kernels/cpu/matmul_tile.h"
#include "tessera/tensor/kernels/types.h"

namespace tessera {
namespace {

// oneDNN's bits depend on how many threads it may use, so a tile is always computed by exactly one,
// also in a team of one.
class OneThreadScope {
 public:
  OneThreadScope() : previous_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneThreadScope() { omp_set_num_threads(previous_); }
  OneThreadScope(const OneThreadScope&) = delete;
  OneThreadScope& operator=(const OneThreadScope&) = delete;

 private:
  int previous_;
};

template <class T>
cpu::TileProduct<T> whole(const MatmulKernel::Args& args) {
  return {.m = args.c.shape[0],
          .n = args.c.shape[1],
          .k = args.a.shape[1],
          .a = {args.a.as<T>(), args.a.strides[0], args.a.strides[1]},
          .b = {args.b.as<T>(), args.b.strides[0], args.b.strides[1]},
          .c = {args.c.as<T>(), args.c.strides[0], args.c.strides[1]},
          .bias = args.bias.as<T>(),
          .alpha = args.alpha,
          .beta = args.beta};
}

template <class T>
void multiply_tile(const cpu::TileProduct<T>& all, const MatmulTiles& tiles, std::int64_t row,
                   std::int64_t column, Workspace scratch) {
  cpu::TileProduct<T> part = all;
  part.m = std::min(tiles.m, all.m - row);
  part.n = std::min(tiles.n, all.n - column);
  part.c = all.c.at(row, column);
  if (all.bias != nullptr) part.bias = all.bias + column;
  for (std::int64_t k = 0; k < all.k; k += tiles.k) {
    part.k = std::min(tiles.k, all.k - k);
    part.a = all.a.at(row, k);
    part.b = all.b.at(k, column);
    cpu::multiply(part, scratch);
    part.bias = nullptr;
    part.beta = 1;
  }
}

// The first exception of a team: none may leave a parallel region.
class FirstError {
 public:
  void keep() {
    std::lock_guard lock(mutex_);
    if (!error_) error_ = std::current_exception();
  }
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr error_;
};

template <class T>
void multiply_all(const MatmulKernel::Args& args, Workspace scratch) {
  const cpu::TileProduct<T> all = whole<T>(args);
  const MatmulTiles tiles = matmul_tiles(all.m, all.n, all.k);
  const std::int64_t rows = (all.m + tiles.m - 1) / tiles.m,
                     columns = (all.n + tiles.n - 1) / tiles.n;
  const std::size_t share = MatmulKernel::workspace_per_thread(args);
  [[maybe_unused]] const auto threads =  // unused where OpenMP is off
      std::max<std::int64_t>(1, static_cast<std::int64_t>(scratch.bytes / share));
  FirstError error;
#pragma omp parallel for schedule(dynamic) num_threads(static_cast <int>(threads)) if (threads > 1)
  for (std::int64_t tile = 0; tile < rows * columns; ++tile) {
    try {
      OneThreadScope one_thread;
      const Workspace mine = {static_cast<std::byte*>(scratch.data) + share * omp_get_thread_num(),
                              std::min(share, scratch.bytes)};
      multiply_tile(all, tiles, tile / columns * tiles.m, tile % columns * tiles.n, mine);
    } catch (...) {
      error.keep();
    }
  }
  error.rethrow();
}

}  // namespace

void MatmulKernel::cpu(const Args& args, Workspace scratch) {
  with_floating_type(args.c.dtype, [&]<class T>() { multiply_all<T>(args, scratch); });
}

}  // namespace tessera
