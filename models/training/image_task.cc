#include "tessera/models/training/image_task.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "tessera/autograd/ops/ops.h"
#include "tessera/distributed/mesh/placement.h"
#include "tessera/models/eval_scope.h"
#include "tessera/models/training/task.h"
#include "tessera/nn/training/loss.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/ops.h"

namespace tessera::models {
namespace {

// Mean and standard deviation of all training pixels, scaled to [0, 1].
constexpr double kMean = 0.2860;
constexpr double kDeviation = 0.3530;

template <class T>
std::array<T, 256> normalised_levels() {
  std::array<T, 256> levels;
  for (std::size_t level = 0; level < levels.size(); ++level)
    levels[level] = static_cast<T>((static_cast<double>(level) / 255.0 - kMean) / kDeviation);
  return levels;
}

template <class T>
Tensor pixels_of(const data::ImageSet& set, std::span<const std::int64_t> samples, Device device) {
  static const std::array<T, 256> levels = normalised_levels<T>();
  constexpr auto kPixels = static_cast<std::size_t>(data::kImagePixels);
  std::vector<T> values(samples.size() * kPixels);
  T* out = values.data();
  for (const std::int64_t sample : samples) {
    const std::uint8_t* in = set.pixels.data() + static_cast<std::size_t>(sample) * kPixels;
    for (std::size_t i = 0; i < kPixels; ++i) out[i] = levels[in[i]];
    out += kPixels;
  }
  return Tensor::from_vector(
      values, {static_cast<std::int64_t>(samples.size()), data::kImagePixels}, device);
}

}  // namespace

ImageBatch image_batch(const data::ImageSet& set, std::span<const std::int64_t> samples,
                       const TensorOptions& options) {
  std::vector<std::int64_t> targets;
  targets.reserve(samples.size());
  for (const std::int64_t sample : samples) {
    TESSERA_CHECK(sample >= 0 && sample < set.count(), "image_batch", "sample {} of {} images",
                  sample, set.count());
    targets.push_back(set.labels[static_cast<std::size_t>(sample)]);
  }
  Tensor pixels = dispatch_floating(options.dtype, "image_batch", [&]<class T>() {
    return pixels_of<T>(set, samples, options.device);
  });
  return {.pixels = std::move(pixels),
          .targets = Tensor::from_vector(targets, {static_cast<std::int64_t>(samples.size())},
                                         options.device)};
}

namespace {

// Samples per evaluation pass of a rank; it determines the memory of an evaluation.
constexpr std::int64_t kEvalRows = 1000;

// Counts the rows whose largest logit is that of their target.
std::int64_t count_hits(const Tensor& logits, const Tensor& targets) {
  const auto best = argmax(logits).to_vector<std::int64_t>();
  const auto wanted = targets.to_vector<std::int64_t>();
  std::int64_t hits = 0;
  for (std::size_t row = 0; row < best.size(); ++row) hits += best[row] == wanted[row];
  return hits;
}

}  // namespace

ImageTask::ImageTask(distributed::World& world, Classifier model, const data::ImageSet& train,
                     const data::ImageSet& test, const ImageTaskOptions& options)
    : world_(world),
      model_(std::move(model)),
      train_(train),
      test_(test),
      options_(options),
      order_(train.count(), options.batch, options.seed) {}

BatchShare ImageTask::load(std::int64_t step) {
  const std::span<const std::int64_t> samples = order_.samples_of(step);
  const auto count = static_cast<std::int64_t>(samples.size());
  const distributed::Chunk chunk = distributed::chunk_of(count, world_.size(), world_.rank());
  const auto local = samples.subspan(static_cast<std::size_t>(chunk.begin),
                                     static_cast<std::size_t>(chunk.rows()));
  const ImageBatch batch = image_batch(train_, local, {.dtype = options_.dtype, .device = kCpu});
  pixels_.load(batch.pixels, world_.device());
  targets_.load(batch.targets, world_.device());
  return {.samples = count,
          .first_sample = chunk.begin,
          .rows = chunk.rows(),
          .padded_rows = chunk.padded_rows,
          .count = chunk.rows()};
}

LossSum ImageTask::loss(std::int64_t begin, std::int64_t end) {
  const Variable logits = model_.forward(Variable(pixels_.part(begin, end)));
  return {.sum = cross_entropy(logits, targets_.part(begin, end), Reduction::kSum)};
}

EvalMetrics ImageTask::evaluate() {
  const EvalScope scope(model_.module);
  const distributed::Chunk chunk =
      distributed::chunk_of(test_.count(), world_.size(), world_.rank());
  double loss_sum = 0;
  std::int64_t hits = 0;
  // All ranks run the same number of passes, the last ones possibly without samples, because a pass
  // gathers parameters.
  for (std::int64_t at = 0; at < chunk.padded_rows; at += kEvalRows) {
    const std::int64_t begin = std::min(chunk.begin + at, chunk.end);
    std::vector<std::int64_t> samples(
        static_cast<std::size_t>(std::min(kEvalRows, chunk.end - begin)));
    std::iota(samples.begin(), samples.end(), begin);
    const ImageBatch batch =
        image_batch(test_, samples, {.dtype = options_.dtype, .device = world_.device()});
    const Variable logits = model_.forward(Variable(batch.pixels));
    loss_sum += host_value(cross_entropy(logits, batch.targets, Reduction::kSum).tensor());
    hits += count_hits(logits.tensor(), batch.targets);
  }
  const std::array<double, 2> mine = {loss_sum, static_cast<double>(hits)};
  const std::vector<double> all = gather_figures(*world_.group(), mine);
  double loss = 0, accuracy = 0;
  for (std::size_t rank = 0; rank < all.size(); rank += mine.size()) {
    loss += all[rank];
    accuracy += all[rank + 1];
  }
  const auto count = static_cast<double>(test_.count());
  return {.loss = loss / count, .accuracy = accuracy / count};
}

}  // namespace tessera::models
