#include "tessera/models/training/image_task.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "tessera/autograd/ops/ops.h"
#include "tessera/distributed/mesh/placement.h"
#include "tessera/distributed/parameters/mesh_impl.h"
#include "tessera/models/eval_scope.h"
#include "tessera/models/training/task.h"
#include "tessera/nn/training/accuracy.h"
#include "tessera/nn/training/loss.h"
#include "tessera/nn/training/running_mean.h"
#include "tessera/tensor/check.h"

namespace tessera::models {
namespace {

// Mean and standard deviation of all training pixels, scaled to [0, 1].
constexpr double kMean = 0.2860;
constexpr double kDeviation = 0.3530;

// Samples per evaluation pass of a rank, by default.
constexpr std::int64_t kEvalRows = 1000;

const data::ImageSet& checked(const data::ImageSet& train) {
  TESSERA_CHECK(train.size() > 0, "models.ImageTask", "0 samples; at least 1 is needed");
  return train;
}

}  // namespace

NormalizedImages::NormalizedImages(const data::ImageSet& set, DType dtype)
    : set_(&set), normalize_({kMean}, {kDeviation}, dtype) {}

std::pair<Tensor, std::int64_t> NormalizedImages::get(std::int64_t index) const {
  const auto [image, label] = set_->get(index);
  return {normalize_(image).view({data::kImagePixels}), label};
}

ImageBatch image_batch(const data::ImageSet& set, std::span<const std::int64_t> samples,
                       const TensorOptions& options) {
  for (const std::int64_t sample : samples)
    TESSERA_CHECK(sample >= 0 && sample < set.size(), "image_batch", "sample {} of {} images",
                  sample, set.size());
  auto [pixels, targets] =
      nn::data::batch_of(NormalizedImages(set, options.dtype), samples, options.device);
  return {.pixels = std::move(pixels), .targets = std::move(targets)};
}

ImageTask::ImageTask(distributed::World& world, Classifier model, const data::ImageSet& train,
                     const data::ImageSet& test, const ImageTaskOptions& options)
    : world_(world),
      model_(std::move(model)),
      train_(train),
      test_(test),
      options_(options),
      loader_(NormalizedImages(checked(train), options.dtype), {.batch_size = options.batch,
                                                                .shuffle = true,
                                                                .pad = false,
                                                                .seed = options.seed,
                                                                .ranks = world.size(),
                                                                .rank = world.rank(),
                                                                .device = kCpu}) {
  TESSERA_CHECK(options.eval_batch >= 0, "models.ImageTask",
                "eval_batch is {}; give 1 or more, or 0 for the default", options.eval_batch);
}

BatchShare ImageTask::load(std::int64_t step) {
  const auto [pixels, targets] = loader_.load(step);
  pixels_.load(pixels, world_.device());
  targets_.load(targets, world_.device());
  return share_at(loader_.position());
}

LossSum ImageTask::loss(std::int64_t begin, std::int64_t end) {
  const Variable logits = model_.forward(Variable(pixels_.part(begin, end)));
  return {.sum = cross_entropy(logits, targets_.part(begin, end), LossReduction::kSum)};
}

std::string ImageTask::data_fingerprint() const {
  return fmt::format("{} images ({:016x}) in batches of {}, seed {}", train_.size(),
                     data::fingerprint_of(train_), options_.batch, options_.seed);
}

EvalMetrics ImageTask::evaluate() {
  const EvalScope scope(model_.module);
  const distributed::Chunk chunk =
      distributed::chunk_of(test_.size(), world_.size(), world_.rank());
  const std::int64_t rows_at_once = options_.eval_batch > 0
                                        ? (options_.eval_batch + world_.size() - 1) / world_.size()
                                        : kEvalRows;
  nn::RunningMean loss, accuracy;
  // All ranks run the same number of passes, the last ones possibly without samples, because a pass
  // gathers parameters.
  for (std::int64_t at = 0; at < chunk.padded_rows; at += rows_at_once) {
    const std::int64_t begin = std::min(chunk.begin + at, chunk.end);
    std::vector<std::int64_t> samples(
        static_cast<std::size_t>(std::min(rows_at_once, chunk.end - begin)));
    std::iota(samples.begin(), samples.end(), begin);
    const ImageBatch batch =
        image_batch(test_, samples, {.dtype = options_.dtype, .device = world_.device()});
    const Variable logits = model_.forward(Variable(batch.pixels));
    const auto rows = static_cast<double>(batch.rows());
    loss.add_sum(host_value(cross_entropy(logits, batch.targets, LossReduction::kSum).tensor()),
                 rows);
    accuracy.add_sum(host_value(nn::accuracy(logits, batch.targets, LossReduction::kSum)), rows);
  }
  const auto mean_over_ranks = [&](const nn::RunningMean& mean) {
    const distributed::DeviceMesh& mesh = world_.mesh();
    return mean.over_ranks(mesh, mesh.axes().front(), world_.device()).mean();
  };
  return {.loss = mean_over_ranks(loss), .accuracy = mean_over_ranks(accuracy)};
}

}  // namespace tessera::models
