#pragma once

/// Between images and the im2col matrices of convolution. A matrix has a column for each output
/// position, of which positions [first, first + n) are taken.

#include <algorithm>
#include <cstdint>

#include "tessera/tensor/kernels/conv.h"
#include "tessera/tensor/kernels/cpu/convert.h"
#include "tessera/tensor/kernels/cpu/matmul/products.h"
#include "tessera/tensor/kernels/view.h"

namespace tessera::cpu {

/// How the outputs of one image are walked: by rows, or as one row if rows follow each other in
/// memory.
struct OutputRows {
  std::int64_t rows;
  std::int64_t length;
};

inline OutputRows output_rows(const ConvGeometry& g, bool as_one) {
  return as_one ? OutputRows{1, g.outputs()} : OutputRows{g.h.out, g.w.out};
}

/// body(image, i, j, count, done) for runs of positions in one row of one image: outputs (i, j) ...
/// (i, j + count - 1), `done` positions after `first`.
template <class Body>
void for_each_run(const OutputRows& r, std::int64_t first, std::int64_t n, const Body& body) {
  const std::int64_t outputs = r.rows * r.length;
  std::int64_t image = first / outputs, i = first % outputs / r.length, j = first % r.length;
  for (std::int64_t done = 0; done < n;) {
    const std::int64_t count = std::min(n - done, r.length - j);
    body(image, i, j, count, done);
    done += count;
    j = 0;
    if (++i == r.rows) {
      i = 0;
      ++image;
    }
  }
}

/// Row `row` = (channel, a, b) of a group's columns: for each position the element of x [images,
/// channels, h, w] that tap (a, b) reads in that channel, counted from `first_channel`.
template <class T, class C>
void gather_columns_of(const ConstView& x, const ConvGeometry& g, std::int64_t first_channel,
                       std::int64_t row, std::int64_t first, std::int64_t n, C* out) {
  const std::int64_t channel = first_channel + row / g.taps(), a = row % g.taps() / g.w.kernel,
                     b = row % g.w.kernel;
  const bool as_one = g.is_pointwise() && x.strides[2] == g.w.in * x.strides[3];
  const std::int64_t left = g.w.first_inside(b), right = as_one ? g.outputs() : g.w.end_inside(b);
  const std::int64_t step = g.w.stride * x.strides[3];
  for_each_run(output_rows(g, as_one), first, n,
               [&](std::int64_t image, std::int64_t i, std::int64_t j, std::int64_t count,
                   std::int64_t done) {
                 const std::int64_t y = g.h.input(i, a);
                 const std::int64_t begin = std::clamp(left, j, j + count);
                 const std::int64_t end =
                     y >= 0 && y < g.h.in ? std::clamp(right, begin, j + count) : begin;
                 C* to = out + done - j;
                 for (std::int64_t o = j; o < begin; ++o) to[o] = 0;
                 if (begin < end) {
                   const std::int64_t at = image * x.strides[0] + channel * x.strides[1] +
                                           y * x.strides[2] + g.w.input(begin, b) * x.strides[3];
                   load_short_run(x.as<T>() + at, step, end - begin, to + begin);
                 }
                 for (std::int64_t o = end; o < j + count; ++o) to[o] = 0;
               });
}

template <class C>
void gather_columns(const ConstView& x, const ConvGeometry& g, std::int64_t first_channel,
                    std::int64_t row, std::int64_t first, std::int64_t n, C* out) {
  with_stored_type<C>(
      x.dtype, [&]<class T>() { gather_columns_of<T>(x, g, first_channel, row, first, n, out); });
}

/// The inverse: adds each column's element to planes [channels, images, h, w] that begin at image
/// `first_image`.
template <class C>
void scatter_columns(const C* from, const ConvGeometry& g, std::int64_t images,
                     std::int64_t first_image, std::int64_t row, std::int64_t first, std::int64_t n,
                     C* planes) {
  const std::int64_t channel = row / g.taps(), a = row % g.taps() / g.w.kernel,
                     b = row % g.w.kernel;
  const bool as_one = g.is_pointwise();
  const std::int64_t left = g.w.first_inside(b), step = g.w.stride,
                     right = as_one ? g.outputs() : g.w.end_inside(b);
  for_each_run(output_rows(g, as_one), first, n,
               [&](std::int64_t image, std::int64_t i, std::int64_t j, std::int64_t count,
                   std::int64_t done) {
                 const std::int64_t y = g.h.input(i, a);
                 if (y < 0 || y >= g.h.in) return;
                 const std::int64_t begin = std::clamp(left, j, j + count),
                                    end = std::clamp(right, begin, j + count);
                 const C* source = from + done + begin - j;
                 C* to = planes + (channel * images + image - first_image) * g.plane() +
                         y * g.w.in + g.w.input(begin, b);
                 if (step == 1) {
                   for (std::int64_t o = 0; o < end - begin; ++o) to[o] += source[o];
                 } else {
                   for (std::int64_t o = 0; o < end - begin; ++o) to[o * step] += source[o];
                 }
               });
}

/// One channel of y [images, channels, h, w], one element for each position.
template <class C>
void load_channel(const ConstView& y, const ConvGeometry& g, std::int64_t channel,
                  std::int64_t first, std::int64_t n, C* out) {
  const bool as_one = y.strides[2] == g.w.out * y.strides[3];
  for_each_run(output_rows(g, as_one), first, n,
               [&](std::int64_t image, std::int64_t i, std::int64_t j, std::int64_t count,
                   std::int64_t done) {
                 const std::int64_t at = image * y.strides[0] + channel * y.strides[1] +
                                         i * y.strides[2] + j * y.strides[3];
                 load_short_run(y, at, y.strides[3], count, out + done);
               });
}

/// The inverse, for contiguous y.
template <class C>
void store_channel(const C* from, const ConvGeometry& g, std::int64_t channel, std::int64_t first,
                   std::int64_t n, const View& y) {
  for_each_run(
      output_rows(g, true), first, n,
      [&](std::int64_t image, std::int64_t, std::int64_t j, std::int64_t count, std::int64_t done) {
        const std::int64_t at = image * y.strides[0] + channel * g.outputs() + j;
        store_run(y.dtype, advance(y.data, y.dtype, at), 1, count, from + done);
      });
}

/// The pieces in which positions are taken. Those of a pointwise convolution do not cross images, so
/// that planes can be used as columns where they are, unless images are small.
class Positions {
 public:
  explicit Positions(const ConvGeometry& g) : all_(g.positions()), outputs_(g.outputs()) {
    if (g.is_pointwise() && outputs_ >= ConvGeometry::kPiece / 2) {
      per_image_ = ConvGeometry::parts(outputs_, ConvGeometry::kPiece);
      length_ = padded(ConvGeometry::parts(outputs_, per_image_));
      pieces_ = g.images * per_image_;
    } else {
      pieces_ = g.position_pieces();
    }
  }
  bool by_image() const { return per_image_ > 0; }
  std::int64_t pieces() const { return pieces_; }
  std::int64_t first(std::int64_t piece) const {
    if (!by_image()) return piece * ConvGeometry::kPiece;
    return piece / per_image_ * outputs_ + std::min(outputs_, piece % per_image_ * length_);
  }
  std::int64_t count(std::int64_t piece) const {
    return (piece + 1 == pieces_ ? all_ : first(piece + 1)) - first(piece);
  }

 private:
  std::int64_t all_, outputs_, per_image_ = 0, length_ = ConvGeometry::kPiece, pieces_ = 0;
};

/// Whether the planes of x, or of dy, are the columns of a pointwise convolution where they are.
template <class C>
bool has_columns(const ConstView& x, const ConvGeometry& g) {
  return g.is_pointwise() && x.dtype == dtype_of<C> && x.strides[1] >= g.plane() &&
         (g.h.in == 1 || x.strides[2] == g.w.in) && (g.w.in == 1 || x.strides[3] == 1);
}
/// Those of one image from a channel and a position on: a row for each channel.
template <class C>
Operand<const C> columns_of(const ConstView& x, std::int64_t image, std::int64_t channel,
                            std::int64_t position) {
  const std::int64_t at = image * x.strides[0] + channel * x.strides[1] + position;
  return {x.as<C>() + at, x.strides[1], 1};
}

struct Block {
  std::int64_t row = 0;
  std::int64_t rows = 0;
  std::int64_t column = 0;
  std::int64_t columns = 0;
};

/// A block of a contiguous matrix of `depth` columns: in place, or converted in `buffer`, rows
/// `spacing` elements apart.
template <class C>
Operand<const C> block_of(const ConstView& matrix, std::int64_t depth, const Block& b, C* buffer,
                          std::int64_t spacing) {
  const std::int64_t first = b.row * depth + b.column;
  if (matrix.dtype == dtype_of<C>) return {matrix.as<C>() + first, depth, 1};
  for (std::int64_t r = 0; r < b.rows; ++r) {
    const void* from = advance(matrix.data, matrix.dtype, first + r * depth);
    load_run(matrix.dtype, from, 1, b.columns, buffer + r * spacing);
  }
  return {buffer, spacing, 1};
}

}  // namespace tessera::cpu
