#pragma once

/// c = alpha * a b + beta * c, or with a bias a b + bias.

#include <algorithm>
#include <cstdint>

#include "tessera/tensor/kernels/view.h"

namespace tessera {

/// How a product is cut: tiles of c, and chunks of the inner dim. A function of the shape alone,
/// never of threads or CPU, because the rounding of a result depends on it.
struct MatmulTiles {
  std::int64_t m = 0;  ///< rows of a tile; the last may have fewer
  std::int64_t n = 0;  ///< columns
  std::int64_t k = 0;  ///< inner extent of a chunk; chunks are added in order
};
/// For extents above 0. Tiles have up to 256 x 256 elements; small products get smaller ones, so
/// that threads find work, but none with less work than a thread's wake-up is worth.
inline MatmulTiles matmul_tiles(std::int64_t m, std::int64_t n, std::int64_t k) {
  constexpr std::int64_t kLargest = 256, kChunk = 4096, kEnoughTiles = 8,
                         kLeastProducts = std::int64_t{1} << 23;
  const auto parts = [](std::int64_t extent, std::int64_t tile) {
    return (extent + tile - 1) / tile;
  };
  std::int64_t rows = parts(m, kLargest), columns = parts(n, kLargest);
  // Even tiles, and multiples of 16, which suit vector registers.
  const auto even = [&](std::int64_t extent, std::int64_t count) {
    return std::min(extent, (parts(extent, count) + 15) / 16 * 16);
  };
  while (rows * columns < kEnoughTiles) {
    const std::int64_t tile_m = even(m, rows), tile_n = even(n, columns);
    if (std::max(tile_m, tile_n) <= 16 || tile_m * tile_n * k < kLeastProducts) break;
    (tile_m > tile_n ? rows : columns) *= 2;
  }
  return {even(m, rows), even(n, columns), std::min(k, kChunk)};
}

struct MatmulKernel {
  static constexpr const char* kName = "matmul";
  static constexpr std::int64_t kEigenDepth = 256;  ///< inner extent of Eigen's packed blocks

  /// a [m, k], b [k, n], c [m, n] of one floating dtype, extents above 0. Of a and b one stride is
  /// 1 and the other at least the extent of the dim with stride 1; c has rows of unit stride. bias
  /// [n] of unit stride may be undefined; with one, alpha is 1 and beta 0. Where beta is 0 c is not
  /// read.
  struct Args {
    ConstView a;
    ConstView b;
    ConstView bias;
    View c;
    double alpha = 1;
    double beta = 0;
  };
  template <class F>
  static void visit(const Args& args, F&& f) {
    f(args.a);
    f(args.b);
    if (args.bias.defined()) f(args.bias);
    f(args.c);
  }
  /// Room for the threads of the issuing rank, at most one per tile.
  static std::size_t workspace(const Args& args);
  /// The part of one thread: room to pack both operands of a tile. In f32 this covers, rounded up
  /// to the blocks it packs in, what oneDNN 2.6 asks for with AVX-512 (less asks for nothing); in
  /// f64 Eigen packs kEigenDepth at a time.
  static std::size_t workspace_per_thread(const Args& args) {
    const MatmulTiles t = matmul_tiles(args.c.shape[0], args.c.shape[1], args.a.shape[1]);
    const std::int64_t elements = args.c.dtype == DType::kF32 ? (t.m + t.n + 64) * (t.k + 16) + 4096
                                                              : (t.m + t.n) * kEigenDepth + 8;
    return (static_cast<std::size_t>(elements) * dtype_size(args.c.dtype) + 63) / 64 * 64;
  }
  /// Uses as many threads as `scratch` has room for, at least one. (oneDNN gets memory of its own
  /// where a version of it wants more than its part.)
  static void cpu(const Args& args, Workspace scratch);
};

}  // namespace tessera
