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
  OutputTile(const ConvKernel::Args& args, std::int64_t unit, Workspace scratch)
      : args_(args), g_(args.g), spacing_(padded(g_.depth_piece())) {
    const std::int64_t rows = g_.channel_piece(),
                       channel_pieces = ConvGeometry::parts(g_.out_channels, rows);
    first_ = unit % g_.position_pieces() * kPiece;
    count_ = std::min(kPiece, g_.positions() - first_);
    const std::int64_t rest = unit / g_.position_pieces();
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
    for (std::int64_t o = 0; o < channels_; ++o) {
      C bias = 0;
      const ConstView& b = args_.bias;
      if (b.defined())
        cpu::load_run(b.dtype, cpu::advance(b.data, b.dtype, first_channel + o), 1, 1, &bias);
      std::fill_n(tile_ + o * kPiece, count_, bias);
    }
    for (std::int64_t k = 0; k < g_.depth(); k += kPiece) add_depth(k, first_channel);
    for (std::int64_t o = 0; o < channels_; ++o) {
      cpu::store_channel(tile_ + o * kPiece, g_, first_channel + o, first_, count_, args_.y);
    }
  }

 private:
  void add_depth(std::int64_t k, std::int64_t first_channel) {
    const std::int64_t depth = std::min(kPiece, g_.depth() - k);
    for (std::int64_t r = 0; r < depth; ++r) {
      cpu::gather_columns(args_.x, g_, group_ * g_.in_channels, k + r, first_, count_,
                          columns_ + r * kPiece);
    }
    const cpu::Block block{.row = first_channel, .rows = channels_, .column = k, .columns = depth};
    const cpu::Operand<const C> weight =
        cpu::block_of(args_.weight, g_.depth(), block, weight_, spacing_);
    cpu::multiply(cpu::Product<C>{.m = channels_,
                                  .n = count_,
                                  .k = depth,
                                  .a = weight,
                                  .b = {columns_, kPiece, 1},
                                  .c = {tile_, kPiece, 1},
                                  .beta = 1},
                  products_);
  }

  const ConvKernel::Args& args_;
  const ConvGeometry& g_;
  std::int64_t spacing_, first_, count_, group_, channel_, channels_;
  C* columns_;
  C* weight_;
  C* tile_;
  Workspace products_;
};

}  // namespace

void ConvKernel::cpu(const Args& a, Workspace scratch) {
  with_floating_type(a.g.compute, [&]<class C>() {
    cpu::parallel_units(
        a.g.units(a.g.channel_piece()), a.g.forward_share(), scratch,
        [&](std::int64_t unit, Workspace mine) { OutputTile<C>(a, unit, mine).run(); });
  });
}

}  // namespace tessera
