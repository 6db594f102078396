#include "tessera/nn/data/transforms.h"

#include <array>
#include <cmath>
#include <utility>

#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/shape.h"
#include "tessera/tensor/random_scope.h"

namespace tessera::nn::data {
namespace {

constexpr std::size_t kLevels = 256;

void check_image(const char* where, const Tensor& image) {
  TESSERA_CHECK(image.defined(), where, "the image is undefined");
  TESSERA_CHECK(image.ndim() == 3, where,
                "expected an image [channels, height, width], got shape {}; unsqueeze(0) adds the "
                "channel to [height, width]",
                image.shape().str());
  TESSERA_CHECK(image.device().is_cpu(), where, "the image is on {}; transforms work on the CPU",
                image.device().str());
}

void check_dtype(const char* where, DType dtype) {
  TESSERA_CHECK(is_floating(dtype), where, "dtype is {}; it must be floating", dtype_name(dtype));
}

void check_size(const char* where, Size2d size) {
  TESSERA_CHECK(size.height >= 1 && size.width >= 1, where,
                "the size is {} x {}; it must be at least 1 x 1", size.height, size.width);
}

// (x / 255 - mean) / stddev of a u8 image, of each channel, or of all channels. Each of the 256
// values is computed once.
Tensor normalized_levels(const Tensor& image, const std::vector<double>& mean,
                         const std::vector<double>& stddev, DType dtype) {
  const std::vector<std::uint8_t> in = image.to_vector<std::uint8_t>();
  const auto channels = static_cast<std::size_t>(image.dim(0));
  const std::size_t pixels = channels == 0 ? 0 : in.size() / channels;
  const Tensor out = Tensor::empty(image.shape(), {.dtype = dtype, .device = kCpu});
  dispatch_floating(dtype, "nn.data.transforms", [&]<class T>() {
    auto* to = static_cast<T*>(out.storage().data());
    std::array<T, kLevels> levels;
    for (std::size_t channel = 0; channel < channels; ++channel) {
      if (channel < mean.size())
        for (std::size_t level = 0; level < levels.size(); ++level)
          levels[level] = static_cast<T>((static_cast<double>(level) / 255.0 - mean[channel]) /
                                         stddev[channel]);
      for (std::size_t i = channel * pixels; i < (channel + 1) * pixels; ++i) to[i] = levels[in[i]];
    }
  });
  return out;
}

void check_floating_image(const char* where, const Tensor& image) {
  TESSERA_CHECK(is_floating(image.dtype()), where, "the image is {}; it must be u8 or floating",
                dtype_name(image.dtype()));
}

// An integer in [0, bound), all equally likely.
std::int64_t draw_below(const char* layer, std::int64_t bound) {
  const Tensor drawn = Tensor::empty({}, {.dtype = DType::kI64, .device = kCpu});
  random::fill_integers(drawn, random::next_key(layer).key(), random::whole({}), 0, bound);
  return drawn.item<std::int64_t>();
}

}  // namespace

Compose::Compose(std::initializer_list<Transform> transforms)
    : Compose(std::vector<Transform>(transforms)) {}

Compose::Compose(std::vector<Transform> transforms) : transforms_(std::move(transforms)) {
  for (std::size_t i = 0; i < transforms_.size(); ++i)
    TESSERA_CHECK(transforms_[i] != nullptr, "nn.Compose", "transform {} of {} is empty", i,
                  transforms_.size());
}

Tensor Compose::operator()(const Tensor& image) const {
  Tensor out = image;
  for (const Transform& transform : transforms_) out = transform(out);
  return out;
}

ToFloat::ToFloat(DType dtype) : dtype_(dtype) { check_dtype("nn.ToFloat", dtype); }

Tensor ToFloat::operator()(const Tensor& image) const {
  check_image("nn.ToFloat", image);
  if (image.dtype() == DType::kU8) return normalized_levels(image, {0}, {1}, dtype_);
  check_floating_image("nn.ToFloat", image);
  return image.dtype() == dtype_ ? image : cast(image, dtype_);
}

Normalize::Normalize(std::vector<double> mean, std::vector<double> stddev, DType dtype)
    : mean_(std::move(mean)), stddev_(std::move(stddev)), dtype_(dtype) {
  constexpr const char* kWhere = "nn.Normalize";
  check_dtype(kWhere, dtype);
  TESSERA_CHECK(mean_.size() == stddev_.size() && !mean_.empty(), kWhere,
                "{} means and {} standard deviations; give one of each for each channel",
                mean_.size(), stddev_.size());
  for (std::size_t channel = 0; channel < stddev_.size(); ++channel)
    TESSERA_CHECK(stddev_[channel] != 0, kWhere, "the standard deviation of channel {} is 0",
                  channel);
}

Tensor Normalize::operator()(const Tensor& image) const {
  constexpr const char* kWhere = "nn.Normalize";
  check_image(kWhere, image);
  const auto channels = static_cast<std::int64_t>(mean_.size());
  TESSERA_CHECK(channels == 1 || channels == image.dim(0), kWhere,
                "{} means for an image of {} channels", channels, image.dim(0));
  if (image.dtype() == DType::kU8) return normalized_levels(image, mean_, stddev_, dtype_);
  check_floating_image(kWhere, image);
  const auto factors = [&](const std::vector<double>& values) {
    return cast(Tensor::from_vector(values, {channels, 1, 1}, kCpu), image.dtype());
  };
  return div(sub(image, factors(mean_)), factors(stddev_));
}

RandomCrop::RandomCrop(const RandomCropOptions& options) : options_(options) {
  check_size("nn.RandomCrop", options.size);
  TESSERA_CHECK(options.padding.height >= 0 && options.padding.width >= 0, "nn.RandomCrop",
                "the padding is {} x {}; it must be 0 or more", options.padding.height,
                options.padding.width);
}

Tensor RandomCrop::operator()(const Tensor& image) const {
  constexpr const char* kWhere = "nn.RandomCrop";
  const auto& [size, padding, fill] = options_;
  check_image(kWhere, image);
  const std::int64_t height = image.dim(1) + 2 * padding.height;
  const std::int64_t width = image.dim(2) + 2 * padding.width;
  TESSERA_CHECK(height >= size.height && width >= size.width, kWhere,
                "the image has {} x {} pixels with its padding, the crop {} x {}; pad more, or "
                "crop less",
                height, width, size.height, size.width);
  const std::int64_t top = draw_below(kWhere, height - size.height + 1) - padding.height;
  const std::int64_t left = draw_below(kWhere, width - size.width + 1) - padding.width;
  return pad(image,
             {{-top, top + size.height - image.dim(1)}, {-left, left + size.width - image.dim(2)}},
             fill);
}

CenterCrop::CenterCrop(Size2d size) : size_(size) { check_size("nn.CenterCrop", size); }

Tensor CenterCrop::operator()(const Tensor& image) const {
  check_image("nn.CenterCrop", image);
  // As in torchvision: half of an odd surplus is rounded to an even number, half of an odd lack
  // down.
  const auto sides = [](std::int64_t have, std::int64_t want) {
    const std::int64_t before =
        have >= want
            ? -static_cast<std::int64_t>(std::nearbyint(static_cast<double>(have - want) / 2))
            : (want - have) / 2;
    return Padding{.before = before, .after = want - have - before};
  };
  return pad(image, {sides(image.dim(1), size_.height), sides(image.dim(2), size_.width)});
}

RandomHorizontalFlip::RandomHorizontalFlip(double p) : p_(p) {
  TESSERA_CHECK(p >= 0 && p <= 1, "nn.RandomHorizontalFlip",
                "p is {}; a probability lies in [0, 1]", p);
}

Tensor RandomHorizontalFlip::operator()(const Tensor& image) const {
  constexpr const char* kWhere = "nn.RandomHorizontalFlip";
  check_image(kWhere, image);
  const Tensor drawn = Tensor::empty({}, {.dtype = DType::kBool, .device = kCpu});
  random::fill_bernoulli(drawn, random::next_key(kWhere).key(), random::whole({}), p_);
  return drawn.item<bool>() ? flip(image, {2}) : image;
}

}  // namespace tessera::nn::data
