#include "tessera/models/training/image_batch.h"

#include <array>

#include "tessera/tensor/check.h"

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

}  // namespace tessera::models
