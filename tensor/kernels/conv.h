#pragma once

/// Convolution over two spatial dims, and its derivatives, as matrix products: the input columns
/// that one output position reads ("im2col") are built piece by piece. The pieces depend on the
/// shape alone.

#include <algorithm>

#include "tessera/tensor/kernels/plans/row_scratch.h"
#include "tessera/tensor/kernels/view.h"

namespace tessera {

/// The windows along one spatial dim.
struct ConvAxis {
  std::int64_t in = 1, out = 1, kernel = 1, stride = 1, padding = 0, dilation = 1;

  /// The input index that tap `tap` of output `o` reads; may lie outside [0, in).
  std::int64_t input(std::int64_t o, std::int64_t tap) const {
    return o * stride - padding + tap * dilation;
  }
  /// The input index of `tap` is inside for outputs [first, end).
  std::int64_t first_inside(std::int64_t tap) const {
    return first_not_below(padding - tap * dilation);
  }
  std::int64_t end_inside(std::int64_t tap) const {
    return first_not_below(in + padding - tap * dilation);
  }
  bool is_identity() const { return kernel == 1 && stride == 1 && padding == 0; }

 private:
  // The first output o with o * stride >= x.
  std::int64_t first_not_below(std::int64_t x) const {
    return x <= 0 ? 0 : std::min(out, (x + stride - 1) / stride);
  }
};

/// Extents, and the division of the work. Positions are the outputs of all images, one after
/// another.
struct ConvGeometry {
  /// Positions, columns and output channels of a piece.
  static constexpr std::int64_t kPiece = 256;
  static constexpr std::int64_t kEnoughUnits = 16;
  static constexpr std::int64_t kLargestPlanes = std::int64_t{1} << 20;  ///< elements

  std::int64_t images = 0, groups = 1;
  std::int64_t in_channels = 0, out_channels = 0;  ///< of one group
  ConvAxis h, w;
  DType compute = DType::kF32;

  std::int64_t taps() const { return h.kernel * w.kernel; }
  std::int64_t depth() const { return in_channels * taps(); }  ///< products per output element
  std::int64_t outputs() const { return h.out * w.out; }
  /// True if output (i, j) reads input (i, j) only.
  bool is_pointwise() const { return h.is_identity() && w.is_identity(); }
  std::int64_t plane() const { return h.in * w.in; }
  std::int64_t positions() const { return images * outputs(); }
  static std::int64_t parts(std::int64_t total, std::int64_t piece) {
    return (total + piece - 1) / piece;
  }
  std::int64_t position_pieces() const { return parts(positions(), kPiece); }
  std::int64_t depth_piece() const { return std::min(kPiece, depth()); }

  /// Forward: output channels of one unit of work; fewer if the positions alone give few units.
  std::int64_t channel_piece() const {
    std::int64_t piece = std::min(kPiece, out_channels);
    while (piece > 32 && units(piece) < kEnoughUnits) piece = padded(piece / 2);
    return piece;
  }
  std::int64_t units(std::int64_t channel_piece) const {
    return groups * parts(out_channels, channel_piece) * position_pieces();
  }
  std::size_t forward_share() const {
    const std::int64_t m = channel_piece(), k = depth_piece();
    return bytes(padded(k) * kPiece + m * padded(k) + m * kPiece) +
           product_scratch(compute, m, kPiece, k);
  }

  /// Gradient of the input: images and input channels of one unit.
  std::int64_t image_piece() const {
    return std::clamp<std::int64_t>(kPiece / outputs(), 1, std::max<std::int64_t>(images, 1));
  }
  std::int64_t input_channel_piece() const {
    const std::int64_t most = std::min(kPiece / taps(), kLargestPlanes / (image_piece() * plane()));
    return std::clamp<std::int64_t>(most, 1, in_channels);
  }
  std::int64_t input_units() const {
    return parts(images, image_piece()) * groups * parts(in_channels, input_channel_piece());
  }
  std::size_t input_share() const {
    const std::int64_t channels = input_channel_piece(), k = channels * taps(),
                       o = std::min(kPiece, out_channels);
    return bytes(padded(channels * image_piece() * plane()) + padded(k) * (kPiece + o) +
                 o * kPiece) +
           product_scratch(compute, k, kPiece, o);
  }

  /// Gradient of the weight: its tiles, and, if they are few, parts of the positions that are
  /// summed separately and then added in order.
  std::int64_t weight_channels() const { return std::min(kPiece, out_channels); }
  std::int64_t weight_tiles() const {
    return groups * parts(out_channels, weight_channels()) * parts(depth(), depth_piece());
  }
  std::int64_t position_parts() const {
    return std::clamp<std::int64_t>(parts(kEnoughUnits, weight_tiles()), 1,
                                    std::max<std::int64_t>(position_pieces(), 1));
  }
  std::int64_t weight_tile_size() const { return weight_channels() * padded(depth_piece()); }
  /// Bytes for the sums of the parts; a single part needs none.
  std::size_t partials() const {
    return position_parts() == 1 ? 0
                                 : bytes(position_parts() * weight_tiles() * weight_tile_size());
  }
  std::size_t weight_share() const {
    const std::int64_t m = weight_channels(), k = depth_piece();
    return bytes(weight_tile_size() + padded(k) * kPiece + m * kPiece) +
           product_scratch(compute, m, k, kPiece);
  }

 private:
  std::size_t bytes(std::int64_t elements) const {
    return static_cast<std::size_t>(padded(elements)) * dtype_size(compute);
  }
};

struct ConvKernel {
  static constexpr const char* kName = "conv";
  /// x [images, channels, h, w] has any strides; weight [out channels, in channels of a group,
  /// taps] and y are contiguous, bias [out channels] is contiguous or undefined. One floating
  /// dtype; only the number of images may be 0.
  struct Args {
    ConstView x;
    ConstView weight;
    ConstView bias;
    View y;
    ConvGeometry g;
  };
  template <class F>
  static void visit(const Args& a, F&& f) {
    f(a.x);
    f(a.weight);
    if (a.bias.defined()) f(a.bias);
    f(a.y);
  }
  static std::size_t workspace(const Args& a) {
    return units_workspace(a.g.units(a.g.channel_piece()), a.g.forward_share());
  }
  static std::size_t cuda_workspace(const Args& a);
  static void cpu(const Args& a, Workspace scratch);
  static void cuda(CudaStream stream, const Args& a, Workspace scratch);
};

struct ConvBackwardInputKernel {
  static constexpr const char* kName = "conv_backward_input";
  /// dy like y above, with any strides; weight and dx contiguous.
  struct Args {
    ConstView dy;
    ConstView weight;
    View dx;
    ConvGeometry g;
  };
  template <class F>
  static void visit(const Args& a, F&& f) {
    f(a.dy);
    f(a.weight);
    f(a.dx);
  }
  static std::size_t workspace(const Args& a) {
    return units_workspace(a.g.input_units(), a.g.input_share());
  }
  static std::size_t cuda_workspace(const Args& a);
  static void cpu(const Args& a, Workspace scratch);
  static void cuda(CudaStream stream, const Args& a, Workspace scratch);
};

struct ConvBackwardWeightKernel {
  static constexpr const char* kName = "conv_backward_weight";
  /// dweight = its gradient + beta * dweight, contiguous; dy and x have any strides.
  struct Args {
    ConstView dy;
    ConstView x;
    View dweight;
    double beta = 0;
    ConvGeometry g;
  };
  template <class F>
  static void visit(const Args& a, F&& f) {
    f(a.dy);
    f(a.x);
    f(a.dweight);
  }
  static std::size_t workspace(const Args& a) {
    return a.g.partials() +
           units_workspace(a.g.weight_tiles() * a.g.position_parts(), a.g.weight_share());
  }
  static std::size_t cuda_workspace(const Args& a);
  static void cpu(const Args& a, Workspace scratch);
  static void cuda(CudaStream stream, const Args& a, Workspace scratch);
};

}  // namespace tessera
