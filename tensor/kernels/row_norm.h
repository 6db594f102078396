#pragma once

/// Normalisation of rows: layer, RMS and group norm. Each row is shifted and scaled by its own
/// statistics, then each channel by a weight and a bias.
///
/// Rows are [samples, groups], a row's elements [channels, spatial]; group g has the channels [g *
/// channels, (g + 1) * channels) of weight and bias. Layer and RMS norm have one group, and each
/// element is a channel. All tensors are contiguous. Statistics are in x's compute type; weight and
/// bias, and their gradients, are each in that or in x's dtype. Weight and bias may be undefined: 1
/// and 0.

#include <algorithm>

#include "tessera/tensor/kernels/plans/row_scratch.h"
#include "tessera/tensor/kernels/view.h"

namespace tessera {

struct RowNormShape {
  std::int64_t samples = 0;
  std::int64_t groups = 1;
  std::int64_t channels = 0;  ///< of one group
  std::int64_t spatial = 1;

  std::int64_t rows() const { return samples * groups; }
  std::int64_t length() const { return channels * spatial; }  ///< of a row
};

struct RowNormKernel {
  static constexpr const char* kName = "row_norm";
  /// y = (x - mean) * rstd * weight + bias. If `centered`, mean is the row's and rstd = 1 /
  /// sqrt(variance + eps); else mean is 0 and not written, and rstd = 1 / sqrt(mean of squares +
  /// eps). x and y are [rows, length], mean and rstd [rows].
  ///
  /// With a `residual` the normalised value is sum = x + residual, rounded to x's dtype and written
  /// to `sum`: the same bits as an addition followed by a norm. residual and sum are like x; either
  /// both are given or neither. `sum` may be x or the residual.
  struct Args {
    ConstView x;
    ConstView weight;
    ConstView bias;
    View y;
    View mean;
    View rstd;
    RowNormShape shape;
    bool centered = true;
    double eps = 0;
    ConstView residual{};
    View sum{};

    std::size_t element() const { return dtype_size(rstd.dtype); }
    /// Bytes for a weight and a bias, if they are missing or not as the kernel needs them.
    std::size_t affine_bytes() const {
      const std::int64_t all = 2 * shape.groups * shape.channels;
      return row_scratch_share(static_cast<std::size_t>(all) * element());
    }
    /// Bytes for x and the residual.
    std::size_t row_bytes() const {
      const std::size_t rows = residual.defined() ? 2 : 1;
      return rows * static_cast<std::size_t>(shape.length()) * element();
    }
  };
  template <class F>
  static void visit(const Args& a, F&& f) {
    f(a.x);
    if (a.weight.defined()) f(a.weight);
    if (a.bias.defined()) f(a.bias);
    f(a.y);
    if (a.mean.defined()) f(a.mean);
    f(a.rstd);
    if (a.residual.defined()) f(a.residual);
    if (a.sum.defined()) f(a.sum);
  }
  static std::size_t workspace(const Args& a) {
    const bool in_place = rows_in_place(a.y);
    return a.affine_bytes() +
           (in_place ? 0 : row_scratch(a.shape.rows(), a.shape.length(), a.row_bytes()));
  }
  static void cpu(const Args& a, Workspace scratch);
  static void cuda(CudaStream stream, const Args& a, Workspace scratch);
};

struct RowNormBackwardKernel {
  static constexpr const char* kName = "row_norm_backward";
  /// With h = (x - mean) * rstd and g = dy * weight:
  ///   dx = rstd * (g - mean(g) - h * mean(g * h)), means over the row; mean(g) only if centered
  ///   dweight = sum of dy * h, dbias = sum of dy, over samples and spatial
  /// dx, dweight and dbias may each be undefined; mean is undefined unless centered.
  ///
  /// `added`, like dx, is another gradient of x: it is added to dx after dx was rounded to its
  /// dtype, and the sum is rounded again: the same bits as an addition afterwards.
  ///
  /// Sums over samples are split into blocks of samples_per_block(), which depends on the shape
  /// alone, and added in order, in f64.
  struct Args {
    ConstView dy;
    ConstView x;
    ConstView mean;
    ConstView rstd;
    ConstView weight;
    View dx;
    View dweight;
    View dbias;
    RowNormShape shape;
    ConstView added{};  ///< undefined where dx is

    bool centered() const { return mean.defined(); }
    std::int64_t samples_per_block() const {
      const std::int64_t n = std::max<std::int64_t>(1, shape.length());
      const std::int64_t enough = std::max(rows_per_turn(n), 8 * shape.channels / n);
      return std::clamp<std::int64_t>(enough, 1, 256);
    }
    std::int64_t blocks() const {
      return (shape.samples + samples_per_block() - 1) / samples_per_block();
    }
    std::size_t element() const { return dtype_size(rstd.dtype); }
    /// dweight and dbias of each block, then a weight that is missing or of 16 bits.
    std::size_t partial_bytes() const {
      const std::int64_t all = (2 * blocks() + 1) * shape.groups * shape.channels;
      return row_scratch_share(static_cast<std::size_t>(all) * element());
    }
    /// A row of dy, x, dx and `added`.
    std::size_t row_bytes() const {
      const std::size_t rows = added.defined() ? 4 : 3;
      return rows * static_cast<std::size_t>(shape.length()) * element();
    }
    std::int64_t task_length() const { return samples_per_block() * shape.length(); }

    /// A GPU computes all gradients in one pass if the threads of a block can keep a row, and the
    /// sums over samples of its channels, in registers.
    bool cuda_one_pass() const {
      const std::int64_t most = dtype_size(dy.dtype) == 2 ? 8192 : 4096;
      return shape.groups == 1 && shape.spatial == 1 && shape.channels <= most;
    }
    /// Blocks of that pass, each with every so many-th sample: on each of the 132 processors of an
    /// H100 three with a pack of a row for each thread, or two with more, for long rows. On every GPU as many, for equal bits.
    std::int64_t cuda_blocks() const {
      const auto row = static_cast<std::int64_t>(dtype_size(dy.dtype)) * shape.length();
      return (row <= 4096 ? 3 : 2) * 132;
    }
    /// Other norms: samples are split into chunks, enough to keep a GPU busy, few enough to add up.
    std::int64_t cuda_samples_per_chunk() const {
      const std::int64_t all = std::max<std::int64_t>(1, shape.groups * shape.channels);
      const std::int64_t tiles = shape.spatial == 1 ? (all + 127) / 128 : all;
      const std::int64_t chunks = std::clamp<std::int64_t>(1024 / tiles, 1, 64);
      const std::int64_t least = shape.spatial == 1 ? 16 : 1;
      return std::max(least, (shape.samples + chunks - 1) / chunks);
    }
    std::int64_t cuda_chunks() const {
      if (cuda_one_pass()) return std::min(cuda_blocks(), shape.samples);
      return (shape.samples + cuda_samples_per_chunk() - 1) / cuda_samples_per_chunk();
    }
  };
  template <class F>
  static void visit(const Args& a, F&& f) {
    f(a.dy);
    f(a.x);
    if (a.mean.defined()) f(a.mean);
    f(a.rstd);
    if (a.weight.defined()) f(a.weight);
    if (a.dx.defined()) f(a.dx);
    if (a.dweight.defined()) f(a.dweight);
    if (a.dbias.defined()) f(a.dbias);
    if (a.added.defined()) f(a.added);
  }
  static std::size_t workspace(const Args& a) {
    return a.partial_bytes() +
           row_scratch(a.blocks() * a.shape.groups, a.task_length(), a.row_bytes());
  }
  /// dweight and dbias of each chunk.
  static std::size_t cuda_workspace(const Args& a) {
    if (!a.dweight.defined() && !a.dbias.defined()) return 0;
    return static_cast<std::size_t>(2 * a.cuda_chunks() * a.shape.groups * a.shape.channels) *
           a.element();
  }
  static void cpu(const Args& a, Workspace scratch);
  static void cuda(CudaStream stream, const Args& a, Workspace scratch);
};

}  // namespace tessera
