#pragma once

/// c = alpha * a b + beta * c, or activation(a b + bias); batches of them.

#include <algorithm>
#include <cstdint>

#include "tessera/tensor/activation.h"
#include "tessera/tensor/kernels/view.h"

namespace tessera {

/// How one product of a batch is split into tiles of c. Depends on shape and dtype alone, never on
/// threads, CPU or batch, because the rounding of the result depends on the tiles.
struct MatmulTiles {
  std::int64_t m = 0;  ///< rows of a tile; the last may have fewer
  std::int64_t n = 0;  ///< columns

  /// Number of tiles in each direction.
  std::int64_t rows(std::int64_t all) const { return (all + m - 1) / m; }
  std::int64_t columns(std::int64_t all) const { return (all + n - 1) / n; }
};

/// For positive extents of c; `dtype` is that of the operands.
///
/// oneDNN is fastest if a tile has all columns of c, so that its rows lie close together. It and our own code lose
/// 5 % with 128 rows instead of 256, because every tile packs b again. So c is split into strips of
/// up to 256 rows. Strips become lower, and short ones narrower, only if that makes work for more
/// threads, and each tile has enough work to be worth waking a thread: for one row, which takes as long as reading b, that
/// is less. Eigen, which computes f64, packs both operands and uses tiles of 256 x 256.
inline MatmulTiles matmul_tiles(DType dtype, std::int64_t m, std::int64_t n, std::int64_t k) {
  const bool is_f64 = dtype == DType::kF64;
  const std::int64_t most_rows = 256, most_columns = is_f64 ? 256 : n, enough = is_f64 ? 8 : 4;
  const std::int64_t narrowed = std::int64_t{1} << (m == 1 ? 19 : 24);  // work of a tile
  const auto parts = [](std::int64_t extent, std::int64_t tile) {
    return (extent + tile - 1) / tile;
  };
  std::int64_t rows = parts(m, most_rows), columns = parts(n, most_columns);
  // Tiles of even size, in multiples of 16 (64 columns for oneDNN), which suit vector registers.
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
    } else if (tile_m() <= 128 && tile_n() >= 128 && work >= narrowed) {
      columns *= 2;
    } else {
      break;
    }
  }
  return {tile_m(), tile_n()};
}

/// Makes a matrix's strides such that one of them is 1 and the other is at least the extent that it
/// steps over, as the kernel requires; false if that is impossible without a copy. A dim of extent
/// 1 has no stride of its own and gets a suitable one.
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
  /// Products on CPUs without AVX-512 (cpu/matmul/matmul_packed.cc): extents of a panel of a and one of b, and the elements of
  /// all panels that a tile of m rows needs at once. The inner extent decides in which order elements are added.
  static constexpr std::int64_t kPanelRows = 6, kPanelColumns = 16, kPanelDepth = 256;
  static std::int64_t panel_depth(std::int64_t k) {
    const std::int64_t panels = std::max<std::int64_t>(1, (k + kPanelDepth - 1) / kPanelDepth);
    return ((k + panels - 1) / panels + 7) / 8 * 8;
  }
  static std::int64_t panel_elements(std::int64_t m, std::int64_t k) {
    const std::int64_t rows = (m + kPanelRows - 1) / kPanelRows * kPanelRows;
    return (rows + kPanelColumns) * panel_depth(k) + 8;  // 8: the last lines are written whole
  }

  /// If operands are converted or the result is not written directly: columns of a block in which a
  /// tile is finished, and extent of the inner dim of a chunk in which operands are converted.
  static constexpr std::int64_t kBlockColumns = 512, kChunk = 256;

  /// a [batch..., m, k], b [batch..., k, n], c [batch..., m, n]; m, n and the batch are above 0, k
  /// may be 0. a and b have one floating dtype; c and bias may have others. Strides of a and b are
  /// settled (settle_strides), c has rows of unit stride. bias [n], with a stride of 1 or 0, may be
  /// undefined; with a bias or an activation, alpha is 1 and beta 0. If beta is 0, c is not read.
  /// `before`, which may be undefined, receives the input of the activation; it has c's layout.
  struct Args {
    ConstView a;
    ConstView b;
    ConstView bias;
    View before;
    View c;
    double alpha = 1;
    double beta = 0;
    ActivationKind activation = ActivationKind::kNone;

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

  /// True if a product can be written directly into c or `before`: at most the activation remains. oneDNN also adds to an f32 c;
  /// Eigen does everything. Decides the scratch, so it does not depend on the CPU; matmul.cc narrows it.
  static bool writes_directly(const Args& args);
  /// The parts of one thread's scratch, in bytes, each a multiple of 64.
  struct Scratch {
    std::size_t product = 0;  ///< a block of the result before it is finished
    std::size_t a = 0;        ///< a chunk of a tile's a, converted
    std::size_t b = 0;
    std::size_t packing = 0;  ///< in which a library or our own code packs operands
    std::size_t total() const { return product + a + b + packing; }
  };
  static Scratch scratch(const Args& args, const MatmulTiles& tiles);
  /// The number of consecutive tiles, of this product and the next ones in the batch, that one
  /// thread takes.
  static std::int64_t tiles_at_once(const Args& args, const MatmulTiles& tiles) {
    // A row of c takes as long as reading b.
    const std::int64_t least_products = std::int64_t{1} << (args.m() == 1 ? 18 : 21);
    return std::max<std::int64_t>(
        1, least_products / std::max<std::int64_t>(1, tiles.m * tiles.n * args.k()));
  }
  /// Scratch for the threads of the issuing rank, as far as there is work for them.
  static std::size_t workspace(const Args& args);
  /// Uses as many threads as `scratch` has room for, at least one. (oneDNN allocates memory itself
  /// if its version needs more than its part.)
  static void cpu(const Args& args, Workspace scratch);
  /// For the library, and for results that it cannot write itself; depends on the arguments alone.
  static std::size_t cuda_workspace(const Args& args);
  /// By cuBLASLt: see cuda/cublas/matmul_plan.h.
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

/// The packing part has room for oneDNN 2.6 with AVX-512, rounded up to its packing blocks: a block of b, and if a is
/// transposed all rows of a; it packs at most 1,280 of the inner dim at once. And for the panels of CPUs without AVX-512: one of
/// b, and all rows of a. Eigen packs kEigenDepth of both operands.
inline MatmulKernel::Scratch MatmulKernel::scratch(const Args& args, const MatmulTiles& tiles) {
  const auto bytes = [](std::int64_t elements, std::size_t size) {
    return (static_cast<std::size_t>(elements) * size + 63) / 64 * 64;
  };
  const std::int64_t columns = std::min(tiles.n, kBlockColumns), chunk = std::min(args.k(), kChunk);
  Scratch out;
  if (args.a.dtype == DType::kF64) {
    if (!writes_directly(args)) out.product = bytes(tiles.m * columns, sizeof(double));
    out.packing = bytes((tiles.m + tiles.n) * kEigenDepth + 8, sizeof(double));
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
  std::int64_t packing = 64 * depth + 256;
  if (args.a.strides.back() != 1) packing += tiles.m * (std::min<std::int64_t>(depth, 1024) + 384);
  out.packing = bytes(std::max(packing, panel_elements(tiles.m, args.k())), sizeof(float));
  return out;
}

}  // namespace tessera
