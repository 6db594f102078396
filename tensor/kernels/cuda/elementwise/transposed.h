#pragma once

/// Copies between layouts that are transposes of each other. In the order of either side, the
/// elements of the other side are far apart, and each memory access moves 32 bytes for one of them.
/// So blocks take square tiles, read them along one dim and write them along the other. Pure
/// functions, tested on the CPU.

#include <cstdint>
#include <optional>

#include "tessera/tensor/host_device.h"
#include "tessera/tensor/kernels/cuda/elementwise/walk.h"
#include "tessera/tensor/shape.h"

namespace tessera::cuda {

inline constexpr int kTileSide = 64;

/// Matrices whose columns are contiguous in x, and whose rows are contiguous in y.
struct Transposed {
  Walk<2> outer;  ///< over the matrices: x, y
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t x_step = 0;  ///< from one column to the next
  std::int64_t y_step = 0;  ///< from one row to the next
  std::int64_t tiles_down = 0;
  std::int64_t tiles_across = 0;
  std::int64_t tiles = 0;
};

/// Returns nothing if the layouts are not transposes, or if the matrices are too small to fill
/// tiles.
inline std::optional<Transposed> find_transposed(Shape shape, const Shape& x, const Shape& y) {
  constexpr std::int64_t kLeast = 16;
  std::array<Shape, 2> strides = {x, y};
  merge_dims_of(shape, strides);
  const int last = shape.ndim() - 1;
  if (last < 1 || strides[1][last] != 1 || strides[0][last] <= 1) return std::nullopt;
  int row = last - 1;
  while (row >= 0 && strides[0][row] != 1) --row;
  if (row < 0 || shape[row] < kLeast || shape[last] < kLeast) return std::nullopt;

  Transposed out;
  out.rows = shape[row];
  out.columns = shape[last];
  out.x_step = strides[0][last];
  out.y_step = strides[1][row];
  out.tiles_down = pieces_of(out.rows, kTileSide);
  out.tiles_across = pieces_of(out.columns, kTileSide);
  const std::int64_t matrices = shape.numel() / (out.rows * out.columns);
  out.tiles = matrices * out.tiles_down * out.tiles_across;
  for (Shape* list : {&shape, &strides[0], &strides[1]}) *list = list->without(last).without(row);
  out.outer = make_walk(shape, strides);
  return out;
}

/// The corner of a tile, and its size inside the matrix.
struct TilePlace {
  std::int64_t x = 0;  ///< in elements
  std::int64_t y = 0;
  std::int64_t rows = 0;  ///< at most kTileSide
  std::int64_t columns = 0;
};

TESSERA_HD TilePlace place_of_tile(const Transposed& t, std::int64_t tile) {
  const std::int64_t line = tile / t.tiles_across, matrix = line / t.tiles_down;
  const std::int64_t column = (tile - line * t.tiles_across) * kTileSide,
                     row = (line - matrix * t.tiles_down) * kTileSide;
  const std::int64_t rows = t.rows - row, columns = t.columns - column;
  return {.x = offset_at(t.outer, 0, matrix) + row + column * t.x_step,
          .y = offset_at(t.outer, 1, matrix) + row * t.y_step + column,
          .rows = rows < kTileSide ? rows : kTileSide,
          .columns = columns < kTileSide ? columns : kTileSide};
}

}  // namespace tessera::cuda
