#pragma once

/// The parts of batch norm: statistics of each channel, and the computations with them.
///
/// x, y, dy and dx hold [samples, channels, spatial], contiguous, in one floating dtype; their
/// views have the shape [rows(), row_length()] of ChannelShape. Values per channel are contiguous
/// [channels], in x's compute type; weight and bias may be undefined: 1 and 0. count is 0-d, f64:
/// the number of elements of a channel, possibly including those of other ranks.
///
/// The elements of a channel, in memory order, are split into blocks of kBlock, or of kRows if each
/// sample has one element. Blocks are summed in the compute type and combined in order, in f64.

#include "tessera/tensor/kernels/plans/row_scratch.h"
#include "tessera/tensor/kernels/view.h"

namespace tessera {

struct ChannelShape {
  static constexpr std::int64_t kBlock = 1024;
  static constexpr std::int64_t kRows = 128;

  std::int64_t samples = 0;
  std::int64_t channels = 0;
  std::int64_t spatial = 1;

  std::int64_t count() const { return samples * spatial; }
  std::int64_t block_length() const { return spatial == 1 ? kRows : kBlock; }
  std::int64_t blocks() const { return (count() + block_length() - 1) / block_length(); }
  /// Two sums of 8 bytes for each block and channel.
  std::size_t partial_bytes() const {
    return static_cast<std::size_t>(2 * blocks() * channels) * 8;
  }

  /// The rows of elementwise work: contiguous elements.
  std::int64_t rows() const { return spatial == 1 ? samples : samples * channels; }
  std::int64_t row_length() const { return spatial == 1 ? channels : spatial; }
};

struct ChannelStatisticsKernel {
  static constexpr const char* kName = "channel_statistics";
  /// mean and m2, the sum of squared differences from the mean; 0 if there are no elements. Also
  /// writes count.
  struct Args {
    ConstView x;
    View mean;
    View m2;
    View count;
    ChannelShape shape;
  };
  template <class F>
  static void visit(const Args& a, F&& f) {
    f(a.x);
    f(a.mean);
    f(a.m2);
    f(a.count);
  }
  static std::size_t workspace(const Args& a) { return a.shape.partial_bytes(); }
  static std::size_t cuda_workspace(const Args& a);
  static void cpu(const Args& a, Workspace scratch);
  static void cuda(CudaStream stream, const Args& a, Workspace scratch);
};

struct ChannelFinishKernel {
  static constexpr const char* kName = "channel_finish";
  /// rstd = 1 / sqrt(m2 / count + eps). If running statistics (any floating dtype, contiguous) are
  /// given: running = (1 - momentum) running + momentum new, with the variance m2 / (count - 1). A
  /// count below 2 does not change the running variance. count undefined: 1.
  struct Args {
    ConstView mean = {};
    ConstView m2 = {};
    ConstView count = {};
    View rstd = {};
    View running_mean = {};
    View running_var = {};
    double momentum = 0;
    double eps = 0;
  };
  template <class F>
  static void visit(const Args& a, F&& f) {
    if (a.mean.defined()) f(a.mean);
    f(a.m2);
    if (a.count.defined()) f(a.count);
    f(a.rstd);
    if (a.running_mean.defined()) f(a.running_mean);
    if (a.running_var.defined()) f(a.running_var);
  }
  static std::size_t workspace(const Args&) { return 0; }
  static void cpu(const Args& a, Workspace);
  static void cuda(CudaStream stream, const Args& a, Workspace);
};

struct ChannelNormKernel {
  static constexpr const char* kName = "channel_norm";
  /// y = (x - mean) * rstd * weight + bias.
  struct Args {
    ConstView x;
    ConstView mean;
    ConstView rstd;
    ConstView weight;
    ConstView bias;
    View y;
    ChannelShape shape;

    std::size_t row_bytes() const {
      return static_cast<std::size_t>(shape.row_length()) * dtype_size(mean.dtype);
    }
    /// Scratch for a weight of ones and a bias of zeros.
    std::size_t affine_bytes() const {
      return row_scratch_share(static_cast<std::size_t>(2 * shape.channels) *
                               dtype_size(mean.dtype));
    }
  };
  template <class F>
  static void visit(const Args& a, F&& f) {
    f(a.x);
    f(a.mean);
    f(a.rstd);
    if (a.weight.defined()) f(a.weight);
    if (a.bias.defined()) f(a.bias);
    f(a.y);
  }
  static std::size_t workspace(const Args& a) {
    return a.affine_bytes() + row_scratch(a.shape.rows(), a.shape.row_length(), a.row_bytes());
  }
  static void cpu(const Args& a, Workspace scratch);
  static void cuda(CudaStream stream, const Args& a, Workspace);
};

struct ChannelSumsKernel {
  static constexpr const char* kName = "channel_sums";
  /// The sums of dy and of dy * (x - mean) * rstd: the gradients of bias and weight.
  struct Args {
    ConstView dy;
    ConstView x;
    ConstView mean;
    ConstView rstd;
    View sum_dy;
    View sum_dy_normal;
    ChannelShape shape;
  };
  template <class F>
  static void visit(const Args& a, F&& f) {
    f(a.dy);
    f(a.x);
    f(a.mean);
    f(a.rstd);
    f(a.sum_dy);
    f(a.sum_dy_normal);
  }
  static std::size_t workspace(const Args& a) { return a.shape.partial_bytes(); }
  static std::size_t cuda_workspace(const Args& a);
  static void cpu(const Args& a, Workspace scratch);
  static void cuda(CudaStream stream, const Args& a, Workspace scratch);
};

struct ChannelNormBackwardKernel {
  static constexpr const char* kName = "channel_norm_backward";
  /// dx = weight * rstd * (dy - sum_dy / count - (x - mean) * rstd * sum_dy_normal / count).
  /// Without the sums, if the statistics did not come from x, dx = weight * rstd * dy.
  struct Args {
    ConstView dy;
    ConstView x;
    ConstView mean;
    ConstView rstd;
    ConstView weight;
    ConstView sum_dy;
    ConstView sum_dy_normal;
    ConstView count;
    View dx;
    ChannelShape shape;

    /// Scratch for rows of dy, x and dx.
    std::size_t row_bytes() const {
      return static_cast<std::size_t>(3 * shape.row_length()) * dtype_size(mean.dtype);
    }
    /// Scratch for weight * rstd and both means of each channel.
    std::size_t factor_bytes() const {
      return row_scratch_share(static_cast<std::size_t>(3 * shape.channels) *
                               dtype_size(mean.dtype));
    }
  };
  template <class F>
  static void visit(const Args& a, F&& f) {
    f(a.dy);
    f(a.x);
    f(a.mean);
    f(a.rstd);
    if (a.weight.defined()) f(a.weight);
    if (a.sum_dy.defined()) f(a.sum_dy);
    if (a.sum_dy_normal.defined()) f(a.sum_dy_normal);
    if (a.count.defined()) f(a.count);
    f(a.dx);
  }
  static std::size_t workspace(const Args& a) {
    return a.factor_bytes() + row_scratch(a.shape.rows(), a.shape.row_length(), a.row_bytes());
  }
  static void cpu(const Args& a, Workspace scratch);
  static void cuda(CudaStream stream, const Args& a, Workspace);
};

}  // namespace tessera
