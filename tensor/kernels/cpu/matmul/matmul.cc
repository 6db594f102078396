#include "tessera/tensor/kernels/matmul.h"

#include <cstddef>

#include "tessera/tensor/kernels/cpu/matmul/matmul_finish.h"
#include "tessera/tensor/kernels/cpu/matmul/matmul_tile.h"
#include "tessera/tensor/kernels/cpu/units.h"

namespace tessera {
namespace {

using cpu::ConstMatrix;
using cpu::Finish;
using cpu::Matrix;
using cpu::TileProduct;

// The scratch of one thread.
struct Buffers {
  Buffers(const MatmulKernel::Scratch& sizes, Workspace mine)
      : product(mine.data),
        a(static_cast<std::byte*>(mine.data) + sizes.product),
        b(static_cast<std::byte*>(a) + sizes.a),
        packing{.data = static_cast<std::byte*>(b) + sizes.b, .bytes = 0} {
    const std::size_t before = sizes.product + sizes.a + sizes.b;
    if (mine.bytes > before) packing.bytes = mine.bytes - before;
  }
  void* product;
  void* a;
  void* b;
  Workspace packing;
};

// Matrix number `index` of a batch; Result is Matrix or ConstMatrix.
template <class Result, class View>
Result matrix_of(const View& view, std::int64_t index) {
  const int ndim = view.shape.ndim();
  std::int64_t offset = 0;
  for (int dim = ndim - 3; dim >= 0; --dim) {
    offset += index % view.shape[dim] * view.strides[dim];
    index /= view.shape[dim];
  }
  if (view.data == nullptr) return {};
  return {cpu::advance(view.data, view.dtype, offset), view.dtype, view.strides[ndim - 2],
          view.strides[ndim - 1]};
}

// True if the matrices of a batch, the first of which is `first`, have no gaps inside or between.
template <class View>
bool is_gapless(const View& view, const ConstMatrix& first) {
  const int ndim = view.shape.ndim();
  const std::int64_t rows = view.shape[ndim - 2], columns = view.shape[ndim - 1];
  if (!first.is_dense(rows, columns)) return false;
  std::int64_t step = rows * columns;
  for (int dim = ndim - 3; dim >= 0; --dim) {
    if (view.shape[dim] != 1 && view.strides[dim] != step) return false;
    step *= view.shape[dim];
  }
  return true;
}

// Whether operands have to be converted to f32 before multiply_floats().
bool converts(const MatmulKernel::Args& args) {
#ifdef __AVX512F__
  return args.a.dtype == DType::kF16 || (args.a.dtype == DType::kBF16 && !cpu::multiplies_bf16());
#else
  static_cast<void>(args);
  return false;
#endif
}

// Whether multiply_floats() or Eigen can write into c or `before`.
bool writes_directly(const MatmulKernel::Args& args) {
  if (!MatmulKernel::writes_directly(args)) return false;
#ifdef __AVX512F__
  return !converts(args);
#else
  return args.c.dtype != DType::kBF16 && (!args.bias.defined() || args.bias.dtype == args.c.dtype);
#endif
}

// A matrix copied to a buffer as f32, without gaps; keeps its row or column order.
ConstMatrix copied(const ConstMatrix& x, std::int64_t rows, std::int64_t columns, void* buffer) {
  auto* out = static_cast<float*>(buffer);
  const bool by_rows = x.column_stride == 1;
  const std::int64_t runs = by_rows ? rows : columns, length = by_rows ? columns : rows;
  for (std::int64_t run = 0; run < runs; ++run) {
    const ConstMatrix from = by_rows ? x.at(run, 0) : x.at(0, run);
    cpu::load_run(x.dtype, from.data, 1, length, out + run * length);
  }
  return {buffer, DType::kF32, by_rows ? length : 1, by_rows ? 1 : length};
}

// One launch, split into tiles.
class Job {
 public:
  explicit Job(const MatmulKernel::Args& args)
      : args_(args),
        tiles_(args.tiles()),
        columns_(tiles_.columns(args.n())),
        per_matrix_(tiles_.rows(args.m()) * columns_),
        is_f64_(args.a.dtype == DType::kF64),
        converts_(converts(args)),
        direct_(writes_directly(args)),
        together_(direct_ && !is_f64_ && args.m() > 1 && per_matrix_ == 1 && has_no_gaps()) {}

  const MatmulTiles& tile() const { return tiles_; }
  std::int64_t tiles() const { return args_.batch() * per_matrix_; }
  // Tiles [first, last).
  void run(std::int64_t first, std::int64_t last, const Buffers& buffers) const {
    if (together_) return run_tile(first, last - first, buffers);
    for (std::int64_t tile = first; tile < last; ++tile) run_tile(tile, 1, buffers);
  }

 private:
  bool has_no_gaps() const {
    return is_gapless(args_.a, matrix_of<ConstMatrix>(args_.a, 0)) &&
           is_gapless(args_.b, matrix_of<ConstMatrix>(args_.b, 0)) &&
           is_gapless(args_.c, matrix_of<ConstMatrix>(args_.c, 0));
  }
  void run_tile(std::int64_t tile, std::int64_t count, const Buffers& buffers) const;
  bool is_written_directly(const TileProduct& tile) const;
  void write_directly(TileProduct tile, const Finish& how, const Buffers& buffers) const;
  void write_in_blocks(const TileProduct& tile, const Finish& how, const Buffers& buffers) const;
  // The last row of many is computed as the others are.
  bool is_row(const TileProduct& tile) const { return args_.m() == 1 && cpu::is_row_product(tile); }
  void multiply(const TileProduct& tile, const Buffers& buffers) const {
    if (is_row(tile)) return cpu::multiply_row(tile);
    is_f64_ ? cpu::multiply_by_eigen(tile, buffers.packing)
            : cpu::multiply_floats(tile, buffers.packing);
  }
  void multiply_in_chunks(const TileProduct& tile, const Buffers& buffers) const;

  const MatmulKernel::Args& args_;
  MatmulTiles tiles_;
  std::int64_t columns_;     // tiles per row
  std::int64_t per_matrix_;  // tiles
  bool is_f64_;
  bool converts_;
  bool direct_;
  bool together_;  // several small matrices in one call
};

void Job::run_tile(std::int64_t tile, std::int64_t count, const Buffers& buffers) const {
  const std::int64_t matrix = tile / per_matrix_, place = tile % per_matrix_;
  const std::int64_t row = place / columns_ * tiles_.m, column = place % columns_ * tiles_.n;
  TileProduct product = {.m = std::min(tiles_.m, args_.m() - row),
                         .n = std::min(tiles_.n, args_.n() - column),
                         .k = args_.k(),
                         .a = matrix_of<ConstMatrix>(args_.a, matrix).at(row, 0),
                         .b = matrix_of<ConstMatrix>(args_.b, matrix).at(0, column),
                         .c = {},
                         .count = count};
  const Finish all = {.c = matrix_of<Matrix>(args_.c, matrix),
                      .before = matrix_of<Matrix>(args_.before, matrix),
                      .bias = args_.bias.data,
                      .bias_dtype = args_.bias.dtype,
                      .bias_stride = args_.bias.defined() ? args_.bias.strides[0] : 0,
                      .alpha = args_.alpha,
                      .beta = args_.beta,
                      .activation = args_.activation};
  const Finish how = all.at(row, column);
  product.c = how.before.data != nullptr ? how.before : how.c;
  is_written_directly(product) ? write_directly(product, how, buffers)
                               : write_in_blocks(product, how, buffers);
}

// oneDNN's best code for AVX-512 needs all three matrices without gaps. If only c has gaps,
// computing into scratch and copying the result is faster, unless there is little to compute.
bool Job::is_written_directly(const TileProduct& tile) const {
#ifdef __AVX512F__
  constexpr std::int64_t kWorthACopy = 64;
  const bool spoiled = !is_f64_ && tile.m > 1 && tile.k >= kWorthACopy &&
                       tile.a.is_dense(tile.m, tile.k) && tile.b.is_dense(tile.k, tile.n) &&
                       !tile.c.is_dense(tile.m, tile.n);
  return direct_ && !spoiled;
#else
  static_cast<void>(tile);
  return direct_;
#endif
}

void Job::write_directly(TileProduct tile, const Finish& how, const Buffers& buffers) const {
  tile.bias = how.bias;
  tile.alpha = how.alpha;
  tile.beta = how.beta;
  multiply(tile, buffers);
  if (how.activation != ActivationKind::kNone)
    cpu::activate(how.activation, tile.c, how.c, tile.count * tile.m, tile.n);
}

void Job::write_in_blocks(const TileProduct& tile, const Finish& how,
                          const Buffers& buffers) const {
  for (std::int64_t column = 0; column < tile.n; column += MatmulKernel::kBlockColumns) {
    TileProduct block = tile;
    block.n = std::min(MatmulKernel::kBlockColumns, tile.n - column);
    block.b = tile.b.at(0, column);
    block.c = {buffers.product, is_f64_ ? DType::kF64 : DType::kF32, block.n, 1};
    multiply_in_chunks(block, buffers);
    const Finish part = how.at(0, column);
    if (is_f64_) {
      finish(part, static_cast<const double*>(buffers.product), block.n, tile.m, block.n);
    } else {
      finish(part, static_cast<const float*>(buffers.product), block.n, tile.m, block.n);
    }
  }
}

void Job::multiply_in_chunks(const TileProduct& tile, const Buffers& buffers) const {
  if (tile.k == 0) {
    std::fill_n(static_cast<std::byte*>(tile.c.data),
                tile.m * tile.n * static_cast<std::int64_t>(dtype_size(tile.c.dtype)),
                std::byte{0});
    return;
  }
  // One row uses each element of b once and converts it as it reads.
  if (is_row(tile) || !converts_) return multiply(tile, buffers);
  TileProduct chunk = tile;
  for (std::int64_t k = 0; k < tile.k; k += MatmulKernel::kChunk) {
    chunk.k = std::min(MatmulKernel::kChunk, tile.k - k);
    chunk.a = copied(tile.a.at(0, k), chunk.m, chunk.k, buffers.a);
    chunk.b = copied(tile.b.at(k, 0), chunk.k, chunk.n, buffers.b);
    multiply(chunk, buffers);
    chunk.beta = 1;
  }
}

}  // namespace

void MatmulKernel::cpu(const Args& args, Workspace scratch) {
  const Job job(args);
  const Scratch sizes = MatmulKernel::scratch(args, job.tile());
  const std::size_t share = sizes.total();
  const auto buffers = [&](int thread) {
    auto* mine = static_cast<std::byte*>(scratch.data) + share * static_cast<std::size_t>(thread);
    return Buffers(sizes, {.data = mine, .bytes = std::min(share, scratch.bytes)});
  };
  const int threads = std::max(1, static_cast<int>(scratch.bytes / share));
  const std::int64_t at_once = tiles_at_once(args, job.tile()),
                     pieces = (job.tiles() + at_once - 1) / at_once;
  cpu::parallel_for(pieces, threads, [&](std::int64_t piece, int thread) {
    job.run(piece * at_once, std::min((piece + 1) * at_once, job.tiles()), buffers(thread));
  });
}

}  // namespace tessera
