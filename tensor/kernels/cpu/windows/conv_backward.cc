#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "tessera/tensor/kernels/conv.h"
#include "tessera/tensor/kernels/cpu/matmul/products.h"
#include "tessera/tensor/kernels/cpu/units.h"
#include "tessera/tensor/kernels/cpu/windows/conv_columns.h"
#include "tessera/tensor/kernels/math/scalar_math.h"
#include "tessera/tensor/kernels/types.h"

namespace tessera {
namespace {

constexpr std::int64_t kPiece = ConvGeometry::kPiece;

// Some input channels of a group, full planes of some images: columns of gradients, weight^T dy,
// are added to the elements that they were gathered from. One thread adds to a plane, in one order.
template <class C>
class InputPlanes {
 public:
  InputPlanes(const ConvBackwardInputKernel::Args& args, std::int64_t unit, Workspace scratch)
      : args_(args), g_(args.g) {
    const std::int64_t piece = g_.input_channel_piece(),
                       pieces = ConvGeometry::parts(g_.in_channels, piece);
    channel_ = unit % pieces * piece;
    channels_ = std::min(piece, g_.in_channels - channel_);
    group_ = unit / pieces % g_.groups;
    image_ = unit / pieces / g_.groups * g_.image_piece();
    images_ = std::min(g_.image_piece(), g_.images - image_);
    depth_ = channels_ * g_.taps();
    const std::int64_t most = piece * g_.taps(), out = std::min(kPiece, g_.out_channels);
    spacing_ = padded(most);
    cpu::ScratchCutter cut(scratch);
    planes_ = cut.take<C>(padded(piece * g_.image_piece() * g_.plane()));
    columns_ = cut.take<C>(spacing_ * kPiece);
    weight_ = cut.take<C>(out * spacing_);
    dy_ = cut.take<C>(out * kPiece);
    products_ = cut.rest(product_scratch(g_.compute, most, kPiece, out));
  }

  void run() {
    // Each element of a pointwise convolution has one column, so that products are its sums.
    const bool in_place = g_.is_pointwise() && images_ == 1 && args_.dx.dtype == dtype_of<C>;
    const cpu::Operand<C> planes =
        in_place ? cpu::Operand<C>{args_.dx.as<C>() + plane_of(0, 0), g_.plane(), 1}
                 : cpu::Operand<C>{planes_, images_ * g_.plane(), 1};
    if (!g_.is_pointwise()) std::fill_n(planes_, channels_ * images_ * g_.plane(), C{0});
    const std::int64_t count = images_ * g_.outputs();
    for (std::int64_t at = 0; at < count; at += kPiece)
      add_positions(at, std::min(kPiece, count - at), planes);
    for (std::int64_t c = 0; c < channels_ && !in_place; ++c) {
      for (std::int64_t image = 0; image < images_; ++image) {
        cpu::store_run(args_.dx.dtype,
                       cpu::advance(args_.dx.data, args_.dx.dtype, plane_of(c, image)), 1,
                       g_.plane(), planes_ + (c * images_ + image) * g_.plane());
      }
    }
  }

 private:
  // The first element of one of the planes of dx.
  std::int64_t plane_of(std::int64_t channel, std::int64_t image) const {
    return ((image_ + image) * g_.groups * g_.in_channels + group_ * g_.in_channels + channel_ +
            channel) *
           g_.plane();
  }

  // `channels` channels of dy at n positions from `at` on, counted from the first image.
  cpu::Operand<const C> slopes(std::int64_t first_channel, std::int64_t channels, std::int64_t at,
                               std::int64_t n) const {
    if (images_ == 1 && cpu::has_columns<C>(args_.dy, g_))
      return cpu::columns_of<C>(args_.dy, image_, first_channel, at);
    for (std::int64_t r = 0; r < channels; ++r)
      cpu::load_channel(args_.dy, g_, first_channel + r, image_ * g_.outputs() + at, n,
                        dy_ + r * kPiece);
    return {dy_, kPiece, 1};
  }

  void add_positions(std::int64_t at, std::int64_t n, const cpu::Operand<C>& planes) {
    const cpu::Operand<C> sums = g_.is_pointwise()
                                     ? cpu::Operand<C>{planes.data + at, planes.row_stride, 1}
                                     : cpu::Operand<C>{columns_, kPiece, 1};
    for (std::int64_t o = 0; o < g_.out_channels; o += kPiece) {
      const std::int64_t channels = std::min(kPiece, g_.out_channels - o),
                         first_channel = group_ * g_.out_channels + o;
      const cpu::Block block{.row = first_channel,
                             .rows = channels,
                             .column = channel_ * g_.taps(),
                             .columns = depth_};
      const cpu::Operand<const C> weight =
          cpu::block_of(args_.weight, g_.depth(), block, weight_, spacing_);
      cpu::multiply(cpu::Product<C>{.m = depth_,
                                    .n = n,
                                    .k = channels,
                                    .a = weight.transposed(),
                                    .b = slopes(first_channel, channels, at, n),
                                    .c = sums,
                                    .beta = o == 0 ? 0.0 : 1.0},
                    products_);
    }
    for (std::int64_t r = 0; r < depth_ && !g_.is_pointwise(); ++r)
      cpu::scatter_columns(columns_ + r * kPiece, g_, images_, image_, r,
                           image_ * g_.outputs() + at, n, planes_);
  }

  const ConvBackwardInputKernel::Args& args_;
  const ConvGeometry& g_;
  std::int64_t channel_, channels_, group_, image_, images_, depth_, spacing_;
  C* planes_;
  C* columns_;
  C* weight_;
  C* dy_;
  Workspace products_;
};

// A tile of the weight's gradient, dy columns^T, summed over a part of the positions.
template <class C>
class WeightTile {
 public:
  WeightTile(const ConvBackwardWeightKernel::Args& args, std::int64_t tile)
      : args_(args), g_(args.g), spacing_(padded(g_.depth_piece())) {
    const std::int64_t depths = ConvGeometry::parts(g_.depth(), kPiece),
                       channel_pieces = ConvGeometry::parts(g_.out_channels, kPiece);
    k_ = tile % depths * kPiece;
    depth_ = std::min(kPiece, g_.depth() - k_);
    group_ = tile / depths / channel_pieces;
    channel_ = group_ * g_.out_channels + tile / depths % channel_pieces * kPiece;
    channels_ = std::min(kPiece, (group_ + 1) * g_.out_channels - channel_);
  }

  // Sums `part` of the positions into `sums`.
  void add_part(std::int64_t part, C* sums, cpu::ScratchCutter cut) const {
    C* columns = cut.take<C>(spacing_ * kPiece);
    C* dy = cut.take<C>(g_.weight_channels() * kPiece);
    const Workspace products =
        cut.rest(product_scratch(g_.compute, g_.weight_channels(), g_.depth_piece(), kPiece));
    std::fill_n(sums, channels_ * spacing_, C{0});
    const cpu::Positions positions(g_);
    const std::int64_t pieces = positions.pieces(), parts = g_.position_parts();
    for (std::int64_t p = pieces * part / parts; p < pieces * (part + 1) / parts; ++p) {
      const std::int64_t first = positions.first(p), n = positions.count(p);
      cpu::Operand<const C> a{dy, kPiece, 1}, b{columns, kPiece, 1};
      const std::int64_t image = first / g_.outputs(), at = first % g_.outputs();
      if (positions.by_image() && cpu::has_columns<C>(args_.x, g_)) {
        b = cpu::columns_of<C>(args_.x, image, group_ * g_.in_channels + k_, at);
      } else {
        for (std::int64_t r = 0; r < depth_; ++r)
          cpu::gather_columns(args_.x, g_, group_ * g_.in_channels, k_ + r, first, n,
                              columns + r * kPiece);
      }
      if (positions.by_image() && cpu::has_columns<C>(args_.dy, g_)) {
        a = cpu::columns_of<C>(args_.dy, image, channel_, at);
      } else {
        for (std::int64_t o = 0; o < channels_; ++o)
          cpu::load_channel(args_.dy, g_, channel_ + o, first, n, dy + o * kPiece);
      }
      cpu::multiply(cpu::Product<C>{.m = channels_,
                                    .n = depth_,
                                    .k = n,
                                    .a = a,
                                    .b = b.transposed(),
                                    .c = {sums, spacing_, 1},
                                    .beta = 1},
                    products);
    }
  }

  // Adds the partial sums, `distance` elements apart, in order, and stores the tile.
  void store(C* sums, std::int64_t parts, std::int64_t distance) const {
    const View& to = args_.dweight;
    for (std::int64_t o = 0; o < channels_; ++o) {
      C* row = sums + o * spacing_;
      for (std::int64_t p = 1; p < parts; ++p) {
        const C* more = row + p * distance;
        for (std::int64_t i = 0; i < depth_; ++i) row[i] += more[i];
      }
      void* at = cpu::advance(to.data, to.dtype, (channel_ + o) * g_.depth() + k_);
      if (args_.beta != 0) {
        C before[kPiece];
        cpu::load_run(to.dtype, at, 1, depth_, before);
        const auto beta = static_cast<C>(args_.beta);
        for (std::int64_t i = 0; i < depth_; ++i) row[i] = scalar::fma(beta, before[i], row[i]);
      }
      cpu::store_run(to.dtype, at, 1, depth_, row);
    }
  }

 private:
  const ConvBackwardWeightKernel::Args& args_;
  const ConvGeometry& g_;
  std::int64_t spacing_, k_, depth_, group_, channel_, channels_;
};

template <class C>
void weight_gradient(const ConvBackwardWeightKernel::Args& a, Workspace scratch) {
  const ConvGeometry& g = a.g;
  const std::int64_t tiles = g.weight_tiles(), parts = g.position_parts(),
                     distance = tiles * g.weight_tile_size();
  auto* const partials = static_cast<C*>(scratch.data);
  const Workspace shares{static_cast<std::byte*>(scratch.data) + g.partials(),
                         scratch.bytes - g.partials()};
  cpu::parallel_units(tiles * parts, g.weight_share(), shares,
                      [&](std::int64_t unit, Workspace mine) {
                        const std::int64_t tile = unit % tiles, part = unit / tiles;
                        const WeightTile<C> work(a, tile);
                        cpu::ScratchCutter cut(mine);
                        C* sums = cut.take<C>(g.weight_tile_size());
                        if (parts > 1)
                          sums = partials + part * distance + tile * g.weight_tile_size();
                        work.add_part(part, sums, cut);
                        if (parts == 1) work.store(sums, 1, 0);
                      });
  if (parts == 1) return;
  cpu::parallel_units(tiles, g.weight_share(), shares, [&](std::int64_t tile, Workspace) {
    WeightTile<C>(a, tile).store(partials + tile * g.weight_tile_size(), parts, distance);
  });
}

}  // namespace

void ConvBackwardInputKernel::cpu(const Args& a, Workspace scratch) {
  with_floating_type(a.g.compute, [&]<class C>() {
    cpu::parallel_units(
        a.g.input_units(), a.g.input_share(), scratch,
        [&](std::int64_t unit, Workspace mine) { InputPlanes<C>(a, unit, mine).run(); });
  });
}

void ConvBackwardWeightKernel::cpu(const Args& a, Workspace scratch) {
  with_floating_type(a.g.compute, [&]<class C>() { weight_gradient<C>(a, scratch); });
}

}  // namespace tessera
