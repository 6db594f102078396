#include "tessera/tensor/kernels/conv.h"

#include <algorithm>
#include <cstdint>

#include "tessera/tensor/kernels/cpu/matmul/products.h"
#include "tessera/tensor/kernels/cpu/units.h"
#include "tessera/tensor/kernels/cpu/windows/conv_columns.h"
#include "tessera/tensor/kernels/types.h"

namespace tessera {
namespace {

constexpr std::int64_t kPiece = ConvGeometry::kPiece;

// Some output channels of a group at some positions: y = bias + weight columns, with the inner dim
// in pieces.
template <class C>
class OutputTile {
 public:
  OutputTile(const ConvKernel::Args& args, const cpu::Positions& positions, std::int64_t unit,
             Workspace scratch)
      : args_(args), g_(args.g), spacing_(padded(g_.depth_piece())) {
    const std::int64_t rows = g_.channel_piece(),
                       channel_pieces = ConvGeometry::parts(g_.out_channels, rows);
    first_ = positions.first(unit % positions.pieces());
    count_ = positions.count(unit % positions.pieces());
    const std::int64_t rest = unit / positions.pieces();
    image_ = first_ / std::max<std::int64_t>(1, g_.outputs());
    by_image_ = positions.by_image();
    group_ = rest / channel_pieces;
    channel_ = rest % channel_pieces * rows;
    channels_ = std::min(rows, g_.out_channels - channel_);
    cpu::ScratchCutter cut(scratch);
    columns_ = cut.take<C>(spacing_ * kPiece);
    weight_ = cut.take<C>(rows * spacing_);
    tile_ = cut.take<C>(rows * kPiece);
    products_ = cut.rest(product_scratch(g_.compute, rows, kPiece, g_.depth_piece()));
  }

  void run() {
    const std::int64_t first_channel = group_ * g_.out_channels + channel_;
    const cpu::Operand<C> y = result(first_channel);
    for (std::int64_t o = 0; o < channels_; ++o) {
      C bias = 0;
      const ConstView& b = args_.bias;
      if (b.defined())
        cpu::load_run(b.dtype, cpu::advance(b.data, b.dtype, first_channel + o), 1, 1, &bias);
      std::fill_n(y.data + o * y.row_stride, count_, bias);
    }
    for (std::int64_t k = 0; k < g_.depth(); k += kPiece) add_depth(k, first_channel, y);
    for (std::int64_t o = 0; o < channels_ && y.data == tile_; ++o) {
      cpu::store_channel(tile_ + o * kPiece, g_, first_channel + o, first_, count_, args_.y);
    }
  }

 private:
  // The tile: a part of y, or scratch.
  cpu::Operand<C> result(std::int64_t first_channel) const {
    const View& y = args_.y;
    if (!by_image_ || y.dtype != dtype_of<C>) return {tile_, kPiece, 1};
    const std::int64_t at =
        image_ * y.strides[0] + first_channel * g_.outputs() + first_ - image_ * g_.outputs();
    return {y.as<C>() + at, g_.outputs(), 1};
  }

  // `depth` rows of the columns from row k on: where they are in x, or gathered.
  cpu::Operand<const C> columns(std::int64_t k, std::int64_t depth) const {
    const std::int64_t first_channel = group_ * g_.in_channels;
    if (by_image_ && cpu::has_columns<C>(args_.x, g_))
      return cpu::columns_of<C>(args_.x, image_, first_channel + k, first_ - image_ * g_.outputs());
    for (std::int64_t r = 0; r < depth; ++r) {
      cpu::gather_columns(args_.x, g_, first_channel, k + r, first_, count_, columns_ + r * kPiece);
    }
    return {columns_, kPiece, 1};
  }

  void add_depth(std::int64_t k, std::int64_t first_channel, const cpu::Operand<C>& y) {
    const std::int64_t depth = std::min(kPiece, g_.depth() - k);
    const cpu::Block block{.row = first_channel, .rows = channels_, .column = k, .columns = depth};
    const cpu::Operand<const C> weight =
        cpu::block_of(args_.weight, g_.depth(), block, weight_, spacing_);
    cpu::multiply(cpu::Product<C>{.m = channels_,
                                  .n = count_,
                                  .k = depth,
                                  .a = weight,
                                  .b = columns(k, depth),
                                  .c = y,
                                  .beta = 1},
                  products_);
  }

  const ConvKernel::Args& args_;
  const ConvGeometry& g_;
  std::int64_t spacing_, first_, count_, image_, group_, channel_, channels_;
  bool by_image_;
  C* columns_;
  C* weight_;
  C* tile_;
  Workspace products_;
};

}  // namespace

void ConvKernel::cpu(const Args& a, Workspace scratch) {
  with_floating_type(a.g.compute, [&]<class C>() {
    const cpu::Positions positions(a.g);
    const std::int64_t channel_pieces = ConvGeometry::parts(a.g.out_channels, a.g.channel_piece());
    cpu::parallel_units(
        a.g.groups * channel_pieces * positions.pieces(), a.g.forward_share(), scratch,
        [&](std::int64_t unit, Workspace mine) { OutputTile<C>(a, positions, unit, mine).run(); });
  });
}

}  // namespace tessera
