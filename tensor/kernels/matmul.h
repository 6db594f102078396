#pragma once

/// c = alpha * a b + beta * c, or activation(a b + bias); batches of them.

#include <algorithm>
#include <cstdint>

#include "tessera/tensor/activation.h"
#include "tessera/tensor/kernels/view.h"

namespace tessera {

/// How one product of a batch is cut into tiles of c. A function of shape and dtype alone, never of
/// threads, CPU or batch, because the rounding of a result depends on it.
struct MatmulTiles {
  std::int64_t m = 0;  ///< rows of a tile; the last may have fewer
  std::int64_t n = 0;  ///< columns

  std::int64_t rows(std::int64_t all) const { return (all + m - 1) / m; }     ///< tiles above
  std::int64_t columns(std::int64_t all) const { return (all + n - 1) / n; }  ///< each other
};

/// For extents of c above 0; `dtype` is that of the operands.
///
/// oneDNN is quickest where a tile has all columns of c, so that its rows lie close together, and
/// loses 5 % with 128 rows instead of 256, since every tile packs b anew. So c is cut into strips
/// of up to 256 rows; strips become lower, and short ones narrower, only where that makes work for
/// more threads, and no tile gets less work than waking a thread is worth. Eigen, which has f64,
/// packs both operands and gets tiles of 256 x 256.
inline MatmulTiles matmul_tiles(DType dtype, std::int64_t m, std::int64_t n, std::int64_t k) {
  const bool is_f64 = dtype == DType::kF64;
  const std::int64_t most_rows = 256, most_columns = is_f64 ? 256 : n, enough = is_f64 ? 8 : 4;
  const auto parts = [](std::int64_t extent, std::int64_t tile) {
    return (extent + tile - 1) / tile;
  };
  std::int64_t rows = parts(m, most_rows), columns = parts(n, most_columns);
  // Even tiles, and multiples of 16 (64 columns for oneDNN), which suit vector registers.
  const auto even = [&](std::int64_t extent, std::int64_t count, std::int64_t unit) {
    return std::min(extent, parts(parts(extent, count), unit) * unit);
  };
  const auto tile_m = [&] { return even(m, rows, 16); };
  const auto tile_n = [&] { return even(n, columns, is_f64 ? 16 : 64); };
  while (rows * columns < enough) {
    const std::int64_t work = tile_m() * tile_n() * k;
    if (is_f64) {
      if (std::max(tile_m(), tile_n()) <= 16 || work < std::int64_t{1} << 23) break;
      (tile_m() > tile_n() ? rows : columns) *= 2;
    } else if (tile_m() > 128 && work > (std::int64_t{1} << (rows * columns == 1 ? 23 : 26))) {
      rows *= 2;
    } else if (tile_m() <= 128 && tile_n() >= 128 && work >= std::int64_t{1} << 24) {
      columns *= 2;
    } else {
      break;
    }
  }
  return {tile_m(), tile_n()};
}

/// Makes a matrix's strides such that one of them is 1 and the other at least as long as what it
/// steps over, which is what the kernel takes; false where that cannot be without a copy. A dim of
/// extent 1 has no stride of its own and gets a fitting one.
inline bool settle_strides(std::int64_t rows, std::int64_t columns, std::int64_t& row,
                           std::int64_t& column) {
  if (columns == 1 && row != 1) column = 1;
  if (rows == 1) row = column == 1 ? columns : 1;
  if (columns == 1 && row == 1) column = rows;
  return (column == 1 && row >= columns) || (row == 1 && column >= rows);
}

struct MatmulKernel {
  static constexpr const char* kName = "matmul";
  static constexpr std::int64_t kEigenDepth = 256;  ///< inner extent of Eigen's packed blocks
  /// Where operands are converted or the result is not written at once: a tile is finished in
  /// blocks of so many columns, and operands are converted in chunks of so much of the inner dim.
  static constexpr std::int64_t kBlockColumns = 512, kChunk = 256;

  /// a [batch..., m, k], b [batch..., k, n], c [batch..., m, n]; m, n and the batch above 0, k may
  /// be 0. a and b are of one floating dtype; c and bias may be of others. Strides of a and b are
  /// settled (settle_strides), c has rows of unit stride. bias [n], with a stride of 1 or 0, may be
  /// undefined; with one, or with an activation, alpha is 1 and beta 0. Where beta is 0 c is not
  /// read. `before`, which may be undefined, gets what the activation is applied to; it looks like
  /// c.
  struct Args {
    ConstView a;
    ConstView b;
    ConstView bias;
    View before;
    View c;
    double alpha = 1;
    double beta = 0;
    Activation activation = Activation::kNone;

    std::int64_t m() const { return c.shape[c.shape.ndim() - 2]; }
    std::int64_t n() const { return c.shape.back(); }
    std::int64_t k() const { return a.shape.back(); }
    std::int64_t batch() const { return c.shape.numel() / (m() * n()); }
    MatmulTiles tiles() const { return matmul_tiles(a.dtype, m(), n(), k()); }
  };
  template <class F>
  static void visit(const Args& args, F&& f) {
    f(args.a);
    f(args.b);
    if (args.bias.defined()) f(args.bias);
    if (args.before.defined()) f(args.before);
    f(args.c);
  }

  /// True when a library may write its product into c, or `before`, as it is: what remains is at
  /// most the activation. oneDNN also adds to c of f32; Eigen does all there is.
  static bool writes_directly(const Args& args);
  /// The parts of one thread's scratch, in bytes, each a multiple of 64.
  struct Scratch {
    std::size_t product = 0;  ///< a block of the result before it is finished
    std::size_t a = 0;        ///< a chunk of a tile's a, converted
    std::size_t b = 0;
    std::size_t library = 0;
    std::size_t total() const { return product + a + b + library; }
  };
  static Scratch scratch(const Args& args, const MatmulTiles& tiles);
  /// So many tiles in a row, of this product and of the next in the batch, are one thread's work.
  static std::int64_t tiles_at_once(const Args& args, const MatmulTiles& tiles) {
    constexpr std::int64_t kLeastProducts = std::int64_t{1} << 21;
    return std::max<std::int64_t>(
        1, kLeastProducts / std::max<std::int64_t>(1, tiles.m * tiles.n * args.k()));
  }
  /// Room for the threads of the issuing rank, as far as there is work for them.
  static std::size_t workspace(const Args& args);
  /// Uses as many threads as `scratch` has room for, at least one. (oneDNN gets memory of its own
  /// where a version of it wants more than its part.)
  static void cpu(const Args& args, Workspace scratch);
  /// For the library, and for results that it does not write itself; of the arguments alone.
  static std::size_t cuda_workspace(const Args& args);
  /// By cuBLASLt: see cuda/matmul_plan.h.
  static void cuda(CudaStream stream, const Args& args, Workspace scratch);
};

inline bool MatmulKernel::writes_directly(const Args& args) {
  const bool bias_fits =
      !args.bias.defined() || (args.bias.dtype == args.a.dtype && (args.bias.strides[0] == 1));
  if (args.k() == 0 || !bias_fits) return false;
  if (args.a.dtype == DType::kF64) return args.c.dtype == DType::kF64;
  const bool dtype_fits = args.c.dtype == DType::kF32
                              ? args.a.dtype != DType::kF16
                              : args.c.dtype == DType::kBF16 && args.a.dtype == DType::kBF16;
  const bool adds = args.beta == 1 && args.c.dtype == DType::kF32;
  return dtype_fits && args.alpha == 1 && (args.beta == 0 || adds);
}

/// What oneDNN 2.6 asks for with AVX-512, rounded up to the blocks it packs in: a block of b, and
/// where a is transposed all rows of a. It packs at most 1,280 of the inner dim at once. Eigen
/// packs kEigenDepth of both operands.
inline MatmulKernel::Scratch MatmulKernel::scratch(const Args& args, const MatmulTiles& tiles) {
  const auto bytes = [](std::int64_t elements, std::size_t size) {
    return (static_cast<std::size_t>(elements) * size + 63) / 64 * 64;
  };
  const std::int64_t columns = std::min(tiles.n, kBlockColumns), chunk = std::min(args.k(), kChunk);
  Scratch out;
  if (args.a.dtype == DType::kF64) {
    if (!writes_directly(args)) out.product = bytes(tiles.m * columns, sizeof(double));
    out.library = bytes((tiles.m + tiles.n) * kEigenDepth + 8, sizeof(double));
    return out;
  }
  const bool converts = args.a.dtype != DType::kF32;
  const bool whole_rows =
      tiles.n == args.n() && args.c.strides[args.c.shape.ndim() - 2] == args.n();
  if (converts || !whole_rows || !writes_directly(args))
    out.product = bytes(tiles.m * columns, sizeof(float));
  if (converts) {
    out.a = bytes(tiles.m * chunk, sizeof(float));
    out.b = bytes(chunk * columns, sizeof(float));
  }
  const std::int64_t depth = std::min<std::int64_t>(1280, (args.k() + 31) / 32 * 32);
  std::int64_t library = 64 * depth + 256;
  if (args.a.strides.back() != 1) library += tiles.m * (std::min<std::int64_t>(depth, 1024) + 384);
  out.library = bytes(library, sizeof(float));
  return out;
}

}  // namespace tessera
