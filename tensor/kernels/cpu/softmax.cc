#include "tessera/tensor/kernels/softmax.h"

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "tessera/tensor/kernels/cpu/exp_run.h"
#include "tessera/tensor/kernels/cpu/rows.h"
#include "tessera/tensor/kernels/math/convert_element.h"
#include "tessera/tensor/kernels/types.h"

namespace tessera {
namespace {

// `exps` has room for the exponentials; it, x and y may be one array.
template <class C, class T>
void softmax_row(const C* x, C* exps, T* y, std::int64_t n) {
  const C largest = cpu::row_max(x, n);
  cpu::exp_run(n, x, largest, exps);
  const auto total = static_cast<C>(cpu::row_sum<C>(n, [=](std::int64_t i) { return exps[i]; }));
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) y[i] = convert_element<T>(exps[i] / total);
}

// x may be y.
template <class C, class T>
void log_softmax_row(const C* x, T* y, std::int64_t n) {
  const C largest = cpu::row_max(x, n);
  const auto total = static_cast<C>(cpu::sum_of_exps(n, x, largest));
  const C log_total = scalar::log(total);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) y[i] = convert_element<T>((x[i] - largest) - log_total);
}

// dy may be dx.
template <class T>
void softmax_backward_row(const T* dy, const T* y, T* dx, std::int64_t n) {
  using C = cpu::ComputeType<T>;
  const auto dot = static_cast<C>(cpu::row_sum<C>(
      n, [=](std::int64_t i) { return scalar::mul(static_cast<C>(dy[i]), static_cast<C>(y[i])); }));
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i)
    dx[i] = convert_element<T>(scalar::mul(static_cast<C>(y[i]), static_cast<C>(dy[i]) - dot));
}

template <class T>
void log_softmax_backward_row(const T* dy, const T* y, T* dx, std::int64_t n) {
  using C = cpu::ComputeType<T>;
  const auto total =
      static_cast<C>(cpu::row_sum<C>(n, [=](std::int64_t i) { return static_cast<C>(dy[i]); }));
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    const C exp = scalar::exp(static_cast<C>(y[i]));
    dx[i] = convert_element<T>(scalar::fma(-exp, total, static_cast<C>(dy[i])));
  }
}

// The work that a thread takes at a time: a tile of rows that are adjacent in the result.
struct Tiles {
  std::int64_t beside, per_group, n;

  template <class C>
  Tiles(const cpu::RowOutput<C>& out, const View& view) : n(view.shape.back()) {
    const bool strided = view.strides.back() != 1 && n > 1;
    beside = strided ? out.beside() : 1;
    per_group = (beside + kRowTile - 1) / kRowTile;
  }
  std::int64_t pitch() const { return beside > 1 ? row_pitch(n) : n; }
  std::int64_t count(std::int64_t rows) const { return rows / beside * per_group; }
  std::int64_t first(std::int64_t tile) const {
    return tile / per_group * beside + tile % per_group * kRowTile;
  }
  std::int64_t rows(std::int64_t tile) const {
    return std::min(kRowTile, beside - tile % per_group * kRowTile);
  }
};

// The rows of a tile: read together if they are adjacent, else one by one.
template <class T>
class TileInput {
 public:
  TileInput(const cpu::RowInput<T>& input, const Tiles& tiles, std::int64_t tile, T* buffer)
      : input_(input),
        first_(tiles.first(tile)),
        pitch_(tiles.pitch()),
        buffer_(buffer),
        read_(tiles.beside > 1 && input.beside() == tiles.beside) {
    if (read_) input.read_tile(first_, tiles.rows(tile), buffer, pitch_);
  }
  const T* row(std::int64_t w) const {
    T* mine = cpu::buffer_row(buffer_, static_cast<int>(w), pitch_);
    return read_ ? mine : input_.read(first_ + w, mine);
  }

 private:
  const cpu::RowInput<T>& input_;
  std::int64_t first_, pitch_;
  T* buffer_;
  bool read_;
};

}  // namespace

void SoftmaxKernel::cpu(const Args& a, Workspace scratch) {
  cpu::with_row_type(a.y.dtype, cpu::has_plain_rows(a.y), [&]<class T>() {
    using C = cpu::ComputeType<T>;
    const std::int64_t n = a.x.shape.back();
    if (a.x.numel() == 0) return;
    const cpu::RowInput<C> x(a.x);
    const cpu::RowOutput<T> y(a.y);
    const Tiles tiles(y, a.y);
    const auto compute_row = [&](const C* from, C* exps, T* to) {
      a.log ? log_softmax_row(from, to, n) : softmax_row(from, exps, to, n);
    };
    const auto compute_tile = [&](std::int64_t tile, C* buffer) {
      const std::int64_t first = tiles.first(tile), rows = tiles.rows(tile);
      if constexpr (!std::is_same_v<T, C>) {
        compute_row(x.read(first, buffer), buffer, y.place(first, nullptr));
      } else {
        C* place = tiles.beside > 1 ? buffer : y.place(first, buffer);
        const TileInput<C> in(x, tiles, tile, place);
        for (std::int64_t w = 0; w < rows; ++w) {
          C* to = place + w * tiles.pitch();
          compute_row(in.row(w), to, to);
        }
        tiles.beside > 1 ? y.commit_tile(first, rows, place, tiles.pitch())
                         : y.commit(first, place);
      }
    };
    cpu::parallel_buffered_rows<C>(tiles.count(a.x.numel() / n),
                                   n * std::min(tiles.beside, kRowTile), scratch, a.buffer_bytes(),
                                   compute_tile);
  });
}

void SoftmaxBackwardKernel::cpu(const Args& a, Workspace scratch) {
  const bool plain =
      cpu::has_plain_rows(a.dy) && cpu::has_plain_rows(a.y) && cpu::has_plain_rows(a.dx);
  cpu::with_row_type(a.dx.dtype, plain, [&]<class T>() {
    const std::int64_t n = a.dx.shape.back();
    if (a.dx.numel() == 0) return;
    const cpu::RowInput<T> dy(a.dy), y(a.y);
    const cpu::RowOutput<T> dx(a.dx);
    const Tiles tiles(dx, a.dx);
    const std::int64_t part = row_buffer_length(a.dx);
    const auto compute_tile = [&](std::int64_t tile, T* buffer) {
      const std::int64_t first = tiles.first(tile), rows = tiles.rows(tile);
      T* place = tiles.beside > 1 ? buffer : dx.place(first, buffer);
      const TileInput<T> slopes(dy, tiles, tile, cpu::buffer_row(buffer, 1, part));
      const TileInput<T> values(y, tiles, tile, cpu::buffer_row(buffer, 2, part));
      for (std::int64_t w = 0; w < rows; ++w) {
        T* to = place + w * tiles.pitch();
        a.log ? log_softmax_backward_row(slopes.row(w), values.row(w), to, n)
              : softmax_backward_row(slopes.row(w), values.row(w), to, n);
      }
      tiles.beside > 1 ? dx.commit_tile(first, rows, place, tiles.pitch())
                       : dx.commit(first, place);
    };
    cpu::parallel_buffered_rows<T>(tiles.count(a.dx.numel() / n),
                                   n * std::min(tiles.beside, kRowTile), scratch, a.buffer_bytes(),
                                   compute_tile);
  });
}

}  // namespace tessera
