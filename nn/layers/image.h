#pragma once

/// Operations of tensor/ops/image.h, and padding, as layers: shapes, options and errors are theirs.

#include <cstdint>

#include "tessera/nn/layer.h"
#include "tessera/tensor/ops/image.h"
#include "tessera/tensor/ops/shape.h"

namespace tessera::nn {

/// interpolate().
class Upsample final : public Layer<Upsample> {
 public:
  using Options = InterpolateOptions;
  explicit Upsample(const InterpolateOptions& options) : options_(options) {}
  Variable forward(const Variable& x);

 private:
  InterpolateOptions options_;
};

/// unfold(): every window as a column.
class Unfold final : public Layer<Unfold> {
 public:
  using Options = UnfoldOptions;
  explicit Unfold(const UnfoldOptions& options) : options_(options) {}
  Variable forward(const Variable& x);

 private:
  UnfoldOptions options_;
};

struct FoldOptions {
  Size2d output = 0;  ///< required, >= 1: extents of the image
  UnfoldOptions windows = {};
};
/// fold(): the adjoint of Unfold.
class Fold final : public Layer<Fold> {
 public:
  using Options = FoldOptions;
  explicit Fold(const FoldOptions& options) : options_(options) {}
  Variable forward(const Variable& x);

 private:
  FoldOptions options_;
};

struct PixelShuffleOptions {
  std::int64_t upscale_factor = 0;  ///< required, >= 1
};
class PixelShuffle final : public Layer<PixelShuffle> {
 public:
  using Options = PixelShuffleOptions;
  explicit PixelShuffle(const PixelShuffleOptions& options) : options_(options) {}
  Variable forward(const Variable& x);

 private:
  PixelShuffleOptions options_;
};

struct PixelUnshuffleOptions {
  std::int64_t downscale_factor = 0;  ///< required, >= 1
};
class PixelUnshuffle final : public Layer<PixelUnshuffle> {
 public:
  using Options = PixelUnshuffleOptions;
  explicit PixelUnshuffle(const PixelUnshuffleOptions& options) : options_(options) {}
  Variable forward(const Variable& x);

 private:
  PixelUnshuffleOptions options_;
};

struct ChannelShuffleOptions {
  std::int64_t groups = 0;  ///< required, >= 1, divides the channels
};
class ChannelShuffle final : public Layer<ChannelShuffle> {
 public:
  using Options = ChannelShuffleOptions;
  explicit ChannelShuffle(const ChannelShuffleOptions& options) : options_(options) {}
  Variable forward(const Variable& x);

 private:
  ChannelShuffleOptions options_;
};

/// Elements added on each side; negative ones crop.
struct ConstantPad1dOptions {
  std::int64_t left = 0;
  std::int64_t right = 0;
  double value = 0;
};
/// pad() of the last dim: PyTorch's ZeroPad1d, with a value ConstantPad1d. x [..., length].
class ConstantPad1d final : public Layer<ConstantPad1d> {
 public:
  using Options = ConstantPad1dOptions;
  explicit ConstantPad1d(const ConstantPad1dOptions& options) : options_(options) {}
  Variable forward(const Variable& x);

 private:
  ConstantPad1dOptions options_;
};

struct ConstantPad2dOptions {
  std::int64_t left = 0;
  std::int64_t right = 0;
  std::int64_t top = 0;
  std::int64_t bottom = 0;
  double value = 0;
};
/// pad() of the last two dims: PyTorch's ZeroPad2d, with a value ConstantPad2d. x [..., height, width].
class ConstantPad2d final : public Layer<ConstantPad2d> {
 public:
  using Options = ConstantPad2dOptions;
  explicit ConstantPad2d(const ConstantPad2dOptions& options) : options_(options) {}
  Variable forward(const Variable& x);

 private:
  ConstantPad2dOptions options_;
};

/// Elements added on each side; negative ones crop.
struct Pad1dOptions {
  std::int64_t left = 0;
  std::int64_t right = 0;
};
struct Pad2dOptions {
  std::int64_t left = 0;
  std::int64_t right = 0;
  std::int64_t top = 0;
  std::int64_t bottom = 0;
};

namespace detail {

/// pad() of the last dim by a mode. x [..., length].
template <class Derived, PadMode kMode>
class ModePad1d : public Layer<Derived> {
 public:
  using Options = Pad1dOptions;
  explicit ModePad1d(const Pad1dOptions& options) : options_(options) {}
  Variable forward(const Variable& x);

 private:
  Pad1dOptions options_;
};

/// pad() of the last two dims by a mode. x [..., height, width].
template <class Derived, PadMode kMode>
class ModePad2d : public Layer<Derived> {
 public:
  using Options = Pad2dOptions;
  explicit ModePad2d(const Pad2dOptions& options) : options_(options) {}
  Variable forward(const Variable& x);

 private:
  Pad2dOptions options_;
};

}  // namespace detail

class ReflectionPad1d final : public detail::ModePad1d<ReflectionPad1d, PadMode::kReflect> {
 public:
  using ModePad1d::ModePad1d;
};
class ReflectionPad2d final : public detail::ModePad2d<ReflectionPad2d, PadMode::kReflect> {
 public:
  using ModePad2d::ModePad2d;
};
class ReplicationPad1d final : public detail::ModePad1d<ReplicationPad1d, PadMode::kReplicate> {
 public:
  using ModePad1d::ModePad1d;
};
class ReplicationPad2d final : public detail::ModePad2d<ReplicationPad2d, PadMode::kReplicate> {
 public:
  using ModePad2d::ModePad2d;
};
class CircularPad1d final : public detail::ModePad1d<CircularPad1d, PadMode::kCircular> {
 public:
  using ModePad1d::ModePad1d;
};
class CircularPad2d final : public detail::ModePad2d<CircularPad2d, PadMode::kCircular> {
 public:
  using ModePad2d::ModePad2d;
};

extern template class detail::ModePad1d<ReflectionPad1d, PadMode::kReflect>;
extern template class detail::ModePad2d<ReflectionPad2d, PadMode::kReflect>;
extern template class detail::ModePad1d<ReplicationPad1d, PadMode::kReplicate>;
extern template class detail::ModePad2d<ReplicationPad2d, PadMode::kReplicate>;
extern template class detail::ModePad1d<CircularPad1d, PadMode::kCircular>;
extern template class detail::ModePad2d<CircularPad2d, PadMode::kCircular>;

}  // namespace tessera::nn
