#pragma once

/// Classification of images, the task of the fully connected networks; and stored images as model
/// inputs: normalised tensors.

#include <cstdint>
#include <functional>
#include <span>
#include <utility>

#include "tessera/distributed/launch/world.h"
#include "tessera/models/data/fashion_mnist.h"
#include "tessera/models/training/task.h"
#include "tessera/nn/data/data_loader.h"
#include "tessera/nn/data/transforms.h"
#include "tessera/tensor/tensor.h"

namespace tessera::models {

/// A data set of stored images as model inputs: pixels [784], mean 0 and standard deviation 1 over
/// the training images, and the class.
class NormalizedImages {
 public:
  /// The images must outlive it. `dtype`, of the pixels, is floating.
  NormalizedImages(const data::ImageSet& set, DType dtype);
  std::int64_t size() const { return set_->size(); }
  std::pair<Tensor, std::int64_t> get(std::int64_t index) const;

 private:
  const data::ImageSet* set_;
  nn::data::Normalize normalize_;
};

/// Several of them.
struct ImageBatch {
  Tensor pixels;   ///< [rows, 784]
  Tensor targets;  ///< [rows], i64

  std::int64_t rows() const { return targets.dim(0); }
};

/// The samples of `set` at the given positions, in that order; the list may be empty.
/// `options.dtype` is floating.
ImageBatch image_batch(const data::ImageSet& set, std::span<const std::int64_t> samples,
                       const TensorOptions& options);

/// Classification of images: the task of the fully connected networks.

/// A model from pixels [rows, 784] to logits [rows, classes].
struct Classifier {
  nn::Module& module;
  std::function<Variable(const Variable& pixels)> forward;
};

struct ImageTaskOptions {
  std::int64_t batch = 256;   ///< samples per step, over all ranks
  std::uint64_t seed = 1;     ///< of the sample order
  DType dtype = DType::kF32;  ///< of the pixels and of the model
  /// Samples of a pass of evaluate(), over all ranks; it determines the memory of an evaluation.
  /// 0: 1000 on each rank.
  std::int64_t eval_batch = 0;
};

class ImageTask final : public Task {
 public:
  /// The images must outlive the task. Throws InvalidArgument for a batch below 1, a negative
  /// eval_batch, and a training set without images.
  ImageTask(distributed::World& world, Classifier model, const data::ImageSet& train,
            const data::ImageSet& test, const ImageTaskOptions& options);

  nn::Module& module() override { return model_.module; }
  std::int64_t steps_per_epoch() const override { return loader_.size(); }
  BatchShare load(std::int64_t step) override;
  std::vector<Tensor> inputs() const override { return {pixels_.all(), targets_.all()}; }
  LossSum loss(std::int64_t begin, std::int64_t end) override;
  std::string data_fingerprint() const override;
  /// Returns loss and accuracy over the test images.
  EvalMetrics evaluate() override;

 private:
  distributed::World& world_;
  Classifier model_;
  const data::ImageSet& train_;
  const data::ImageSet& test_;
  ImageTaskOptions options_;
  nn::data::DataLoader<NormalizedImages> loader_;
  DeviceRows pixels_;  // this rank's samples of the step
  DeviceRows targets_;
};

}  // namespace tessera::models
