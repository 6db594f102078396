#pragma once

/// Converts stored images into model inputs: normalised tensors.

#include <cstdint>
#include <span>

#include "tessera/models/data/fashion_mnist.h"
#include "tessera/tensor/tensor.h"

namespace tessera::models {

struct ImageBatch {
  Tensor pixels;   ///< [rows, 784], mean 0 and standard deviation 1 over the training images
  Tensor targets;  ///< [rows], i64

  std::int64_t rows() const { return targets.dim(0); }
};

/// The samples of `set` at the given positions, in that order; the list may be empty.
/// `options.dtype` is f32 or f64.
ImageBatch image_batch(const data::ImageSet& set, std::span<const std::int64_t> samples,
                       const TensorOptions& options);

}  // namespace tessera::models
