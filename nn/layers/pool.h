#pragma once

/// Pooling as layers: the largest element or the mean of each window.
///
///     1d: x [N, C, L] -> y [N, C, L']          2d: x [N, C, H, W] -> y [N, C, H', W']
///
/// Without N in x none in y.
///
/// Windows, extents and errors: tensor/ops/pool.h, whose options these take. Any floating dtype,
/// 16-bit means are summed in f32 and rounded once. Left out of PyTorch's options: return_indices
/// (call max_pool2d of tensor/ops/pool.h), divisor_override, and sizes of None in adaptive pools.

#include <concepts>
#include <cstdint>

#include "tessera/nn/layer.h"
#include "tessera/tensor/ops/pool.h"

namespace tessera::nn {

class MaxPool1d final : public Layer<MaxPool1d> {
 public:
  using Options = MaxPool1dOptions;
  /// All four: throw InvalidArgument for a kernel below 1.
  explicit MaxPool1d(const MaxPool1dOptions& options);
  MaxPool1d(std::integral auto, const auto&...) = delete;  ///< {.kernel = 2}
  Variable forward(const Variable& x);

 private:
  MaxPool1dOptions options_;
};

class MaxPool2d final : public Layer<MaxPool2d> {
 public:
  using Options = MaxPool2dOptions;
  explicit MaxPool2d(const MaxPool2dOptions& options);
  MaxPool2d(std::integral auto, const auto&...) = delete;  ///< {.kernel = 2}
  Variable forward(const Variable& x);

 private:
  MaxPool2dOptions options_;
};

class AvgPool1d final : public Layer<AvgPool1d> {
 public:
  using Options = AvgPool1dOptions;
  explicit AvgPool1d(const AvgPool1dOptions& options);
  AvgPool1d(std::integral auto, const auto&...) = delete;  ///< {.kernel = 2}
  Variable forward(const Variable& x);

 private:
  AvgPool1dOptions options_;
};

class AvgPool2d final : public Layer<AvgPool2d> {
 public:
  using Options = AvgPool2dOptions;
  explicit AvgPool2d(const AvgPool2dOptions& options);
  AvgPool2d(std::integral auto, const auto&...) = delete;  ///< {.kernel = 2}
  Variable forward(const Variable& x);

 private:
  AvgPool2dOptions options_;
};

/// As many windows as asked, which cut the input evenly.
struct AdaptivePool1dOptions {
  std::int64_t output = 0;  ///< required, >= 1: extent of y
};
struct AdaptivePool2dOptions {
  Size2d output = 0;  ///< required, >= 1: extents of y
};

class AdaptiveMaxPool1d final : public Layer<AdaptiveMaxPool1d> {
 public:
  using Options = AdaptivePool1dOptions;
  /// All four: throw InvalidArgument for an output below 1.
  explicit AdaptiveMaxPool1d(const AdaptivePool1dOptions& options);
  explicit AdaptiveMaxPool1d(std::integral auto) = delete;  ///< {.output = 1}
  Variable forward(const Variable& x);

 private:
  AdaptivePool1dOptions options_;
};

class AdaptiveMaxPool2d final : public Layer<AdaptiveMaxPool2d> {
 public:
  using Options = AdaptivePool2dOptions;
  explicit AdaptiveMaxPool2d(const AdaptivePool2dOptions& options);
  explicit AdaptiveMaxPool2d(std::integral auto) = delete;  ///< {.output = 1}
  Variable forward(const Variable& x);

 private:
  AdaptivePool2dOptions options_;
};

class AdaptiveAvgPool1d final : public Layer<AdaptiveAvgPool1d> {
 public:
  using Options = AdaptivePool1dOptions;
  explicit AdaptiveAvgPool1d(const AdaptivePool1dOptions& options);
  explicit AdaptiveAvgPool1d(std::integral auto) = delete;  ///< {.output = 1}
  Variable forward(const Variable& x);

 private:
  AdaptivePool1dOptions options_;
};

class AdaptiveAvgPool2d final : public Layer<AdaptiveAvgPool2d> {
 public:
  using Options = AdaptivePool2dOptions;
  explicit AdaptiveAvgPool2d(const AdaptivePool2dOptions& options);
  explicit AdaptiveAvgPool2d(std::integral auto) = delete;  ///< {.output = 1}
  Variable forward(const Variable& x);

 private:
  AdaptivePool2dOptions options_;
};

}  // namespace tessera::nn
