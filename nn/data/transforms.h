#pragma once

/// Transforms of one image [channels, height, width] on the CPU, for Transformed (datasets.h).
/// Names and definitions are those of torchvision.
///
///     Compose train{RandomCrop({.size = 32, .padding = 4}), RandomHorizontalFlip(), Normalize(mean, stddev)};
///
/// Each is an object that is called with an image and returns one. Objects are immutable, so any
/// number of threads may call one. Random ones draw from random::next_key() under their name: in a
/// DataLoader by seed, epoch and sample, elsewhere like dropout. Each throws InvalidArgument for a
/// tensor that is no image, or on another device.

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <vector>

#include "tessera/tensor/dtype.h"
#include "tessera/tensor/ops/size2d.h"
#include "tessera/tensor/tensor.h"

namespace tessera::nn::data {

using Transform = std::function<Tensor(const Tensor& image)>;

/// One after another.
class Compose {
 public:
  /// Throws InvalidArgument for an empty function.
  Compose(std::initializer_list<Transform> transforms);
  explicit Compose(std::vector<Transform> transforms);
  Tensor operator()(const Tensor& image) const;

 private:
  std::vector<Transform> transforms_;
};

/// u8 values from 0 to 255 become numbers from 0 to 1: x / 255, rounded once. Floating images are
/// converted to `dtype` as they are.
class ToFloat {
 public:
  /// Throws InvalidArgument for a dtype that is not floating.
  explicit ToFloat(DType dtype = DType::kF32);
  Tensor operator()(const Tensor& image) const;

 private:
  DType dtype_;
};

/// (x - mean) / stddev for each channel. A floating image keeps its dtype. A u8 image counts as
/// x / 255, needs no ToFloat, and becomes `dtype`; its values are computed in f64 and rounded once.
class Normalize {
 public:
  /// One number for each channel, or one for all. Throws InvalidArgument for empty lists or lists
  /// of different lengths, a stddev of 0, and a dtype that is not floating.
  Normalize(std::vector<double> mean, std::vector<double> stddev, DType dtype = DType::kF32);
  Tensor operator()(const Tensor& image) const;

 private:
  std::vector<double> mean_;
  std::vector<double> stddev_;
  DType dtype_;
};

struct RandomCropOptions {
  Size2d size;         ///< required, at least 1
  Size2d padding = 0;  ///< added on each side first: height above and below, width left and right
  double fill = 0;     ///< the values of the padding
};
/// A part of the given size at a random place.
class RandomCrop {
 public:
  /// Throws InvalidArgument for a size below 1 or a negative padding.
  explicit RandomCrop(const RandomCropOptions& options);
  /// Also throws InvalidArgument for a padded image smaller than the size.
  Tensor operator()(const Tensor& image) const;

 private:
  RandomCropOptions options_;
};

/// The part of the given size in the middle; a smaller image is padded with zeros.
class CenterCrop {
 public:
  /// Throws InvalidArgument for a size below 1.
  explicit CenterCrop(Size2d size);
  Tensor operator()(const Tensor& image) const;

 private:
  Size2d size_;
};

/// Left and right exchanged, with probability p.
class RandomHorizontalFlip {
 public:
  /// Throws InvalidArgument for p outside [0, 1].
  explicit RandomHorizontalFlip(double p = 0.5);
  Tensor operator()(const Tensor& image) const;

 private:
  double p_;
};

}  // namespace tessera::nn::data
