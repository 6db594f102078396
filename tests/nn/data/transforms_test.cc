// Image transforms, against plain loops.
#include "tessera/nn/data/transforms.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <set>

#include "tessera/tensor/error.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tensor/random_scope.h"

namespace tessera::nn::data {
namespace {

using Catch::Matchers::Contains;

// An image whose values are all different.
Tensor counting(const Shape& shape, DType dtype = DType::kF32) {
  return cast(reshape(arange(shape.numel(), {.dtype = DType::kI64, .device = kCpu}), shape), dtype);
}

double at(const Tensor& image, std::int64_t c, std::int64_t y, std::int64_t x) {
  return cast(image, DType::kF64).select(0, c).select(0, y).select(0, x).item<double>();
}

// The part of `image` of the given size from (top, left) on, with `fill` outside of the image.
std::vector<float> part(const Tensor& image, std::int64_t top, std::int64_t left,
                        std::int64_t height, std::int64_t width, float fill) {
  std::vector<float> values;
  for (std::int64_t c = 0; c < image.dim(0); ++c)
    for (std::int64_t y = top; y < top + height; ++y)
      for (std::int64_t x = left; x < left + width; ++x)
        values.push_back(y >= 0 && y < image.dim(1) && x >= 0 && x < image.dim(2)
                             ? static_cast<float>(at(image, c, y, x))
                             : fill);
  return values;
}

Tensor all_levels() { return counting({1, 16, 16}, DType::kU8); }

TEMPLATE_TEST_CASE("u8 becomes numbers from 0 to 1, rounded once", "", float, double) {
  const Tensor out = ToFloat(dtype_of<TestType>)(all_levels());
  CHECK(out.shape() == Shape{1, 16, 16});
  const std::vector<TestType> values = out.to_vector<TestType>();
  for (int level = 0; level < 256; ++level)
    CHECK(values[static_cast<std::size_t>(level)] == static_cast<TestType>(level / 255.0));
}

TEST_CASE("ToFloat leaves floating images as they are, in its dtype") {
  const Tensor image = counting({2, 3, 1}, DType::kF64);
  CHECK(ToFloat()(image).dtype() == DType::kF32);
  CHECK(ToFloat()(image).to_vector<float>() == std::vector<float>{0, 1, 2, 3, 4, 5});
  CHECK(ToFloat(DType::kF64)(image).storage() == image.storage());
  CHECK(ToFloat(DType::kBF16)(all_levels()).dtype() == DType::kBF16);
  CHECK(ToFloat()(counting({3, 0, 2}, DType::kU8)).shape() == Shape{3, 0, 2});
  CHECK_THROWS_WITH(ToFloat()(counting({1, 1, 1}, DType::kI32)),
                    Contains("[nn.ToFloat] the image is i32; it must be u8 or floating"));
  CHECK_THROWS_WITH(ToFloat(DType::kI64), Contains("[nn.ToFloat] dtype is i64"));
}

TEMPLATE_TEST_CASE("Normalize of u8 counts from 0 to 1, rounded once", "", float, double) {
  const std::vector<double> mean = {0.2860, 0.5}, stddev = {0.3530, 2};
  const Tensor image = cat({all_levels(), flip(all_levels(), {1, 2})}, 0);
  const Tensor out = Normalize(mean, stddev, dtype_of<TestType>)(image);
  const std::vector<TestType> values = out.to_vector<TestType>();
  REQUIRE(values.size() == 512);
  for (int level = 0; level < 256; ++level) {
    CHECK(values[static_cast<std::size_t>(level)] ==
          static_cast<TestType>((level / 255.0 - 0.2860) / 0.3530));
    CHECK(values[static_cast<std::size_t>(511 - level)] ==
          static_cast<TestType>((level / 255.0 - 0.5) / 2));
  }
  // A strided image, and one number for all channels.
  const Tensor strided = image.transpose(1, 2);
  const Tensor one = Normalize({0.25}, {0.5}, dtype_of<TestType>)(strided);
  CHECK(at(one, 1, 3, 5) ==
        static_cast<double>(static_cast<TestType>((at(image, 1, 5, 3) / 255.0 - 0.25) / 0.5)));
}

TEST_CASE("Normalize of floating images keeps their dtype") {
  const Tensor image = counting({3, 2, 5});
  const Tensor out = Normalize({1, 2, 3}, {2, 4, 8}, DType::kF64)(image);
  REQUIRE(out.dtype() == DType::kF32);
  REQUIRE(out.shape() == image.shape());
  for (std::int64_t c = 0; c < 3; ++c)
    for (std::int64_t y = 0; y < 2; ++y)
      for (std::int64_t x = 0; x < 5; ++x)
        CHECK(at(out, c, y, x) ==
              (at(image, c, y, x) - static_cast<double>(c + 1)) / std::pow(2.0, c + 1));
  CHECK(at(Normalize({1}, {4})(image), 2, 1, 4) == 7);
  CHECK(Normalize({1}, {4})(counting({2, 2, 2}, DType::kF64)).dtype() == DType::kF64);
  CHECK_THROWS_WITH(Normalize({1, 2}, {1, 1})(image),
                    Contains("[nn.Normalize] 2 means for an image of 3 channels"));
  CHECK_THROWS_WITH(Normalize({1, 2}, {1}), Contains("2 means and 1 standard deviations"));
  CHECK_THROWS_WITH(Normalize({}, {}), Contains("0 means and 0 standard deviations"));
  CHECK_THROWS_WITH(Normalize({1, 2}, {1, 0}), Contains("deviation of channel 1 is 0"));
  CHECK_THROWS_WITH(Normalize({1}, {1}, DType::kU8), Contains("[nn.Normalize] dtype is u8"));
  CHECK_THROWS_WITH(Normalize({1}, {1})(counting({1, 1, 1}, DType::kI64)),
                    Contains("the image is i64"));
}

TEST_CASE("CenterCrop cuts out the middle and pads smaller images") {
  // Height and width of the image, of the crop, and the first row and column of the result.
  struct Case {
    std::int64_t height, width;
    Size2d size;
    std::int64_t top, left;
  };
  for (const Case& c : {Case{5, 7, {3, 3}, 1, 2}, Case{5, 7, {5, 7}, 0, 0},
                        Case{4, 5, {1, 2}, 2, 2},   // 1.5 is rounded to 2, to even
                        Case{6, 4, {5, 3}, 0, 0},   // 0.5 is rounded to 0
                        Case{2, 3, {5, 4}, -1, 0},  // 1 above and 2 below, 1 right
                        Case{2, 9, {4, 3}, -1, 3}, Case{1, 1, {1, 1}, 0, 0}}) {
    const Tensor image = add(counting({2, c.height, c.width}), 1);
    const Tensor out = CenterCrop(c.size)(image);
    CHECK(out.shape() == Shape{2, c.size.height, c.size.width});
    CHECK(out.to_vector<float>() == part(image, c.top, c.left, c.size.height, c.size.width, 0));
  }
  CHECK(CenterCrop(3)(counting({1, 5, 5}, DType::kU8)).dtype() == DType::kU8);
  CHECK_THROWS_WITH(CenterCrop({0, 3}), Contains("[nn.CenterCrop] the size is 0 x 3"));
}

TEST_CASE("RandomCrop takes all places equally often") {
  random::manual_seed(5);
  const Tensor image = add(counting({2, 3, 4}), 1);
  const RandomCrop crop({.size = {2, 3}, .padding = {1, 0}, .fill = -7});
  // 5 rows with the padding: tops from -1 to 2; lefts 0 and 1.
  std::map<std::vector<float>, std::pair<std::int64_t, std::int64_t>> places;
  for (std::int64_t top = -1; top <= 2; ++top)
    for (std::int64_t left = 0; left <= 1; ++left)
      places[part(image, top, left, 2, 3, -7)] = {top, left};
  REQUIRE(places.size() == 8);
  std::map<std::pair<std::int64_t, std::int64_t>, int> counts;
  for (int i = 0; i < 800; ++i) {
    const Tensor out = crop(image);
    REQUIRE(out.shape() == Shape{2, 2, 3});
    const auto found = places.find(out.to_vector<float>());
    REQUIRE(found != places.end());
    ++counts[found->second];
  }
  CHECK(counts.size() == 8);
  for (const auto& [place, count] : counts) CHECK(std::abs(count - 100) < 45);  // 4.8 deviations
}

TEST_CASE("RandomCrop of the whole image is the image, and larger is an error") {
  const Tensor image = counting({1, 3, 4}, DType::kU8);
  CHECK(RandomCrop({.size = {3, 4}})(image).to_vector<std::uint8_t>() ==
        image.to_vector<std::uint8_t>());
  CHECK_THROWS_WITH(RandomCrop({.size = 4})(image),
                    Contains("[nn.RandomCrop] the image has 3 x 4 pixels with its padding, the "
                             "crop 4 x 4"));
  CHECK(RandomCrop({.size = 4, .padding = {1, 0}})(image).shape() == Shape{1, 4, 4});
  CHECK_THROWS_WITH(RandomCrop({.size = {3, 0}}), Contains("[nn.RandomCrop] the size is 3 x 0"));
  CHECK_THROWS_WITH(RandomCrop({.size = 3, .padding = -1}), Contains("the padding is -1 x -1"));
}

TEST_CASE("RandomHorizontalFlip exchanges left and right") {
  random::manual_seed(6);
  const Tensor image = counting({2, 2, 3});
  const std::vector<float> same = image.to_vector<float>(),
                           flipped = {2, 1, 0, 5, 4, 3, 8, 7, 6, 11, 10, 9};
  int flips = 0;
  for (int i = 0; i < 400; ++i) {
    const std::vector<float> out = RandomHorizontalFlip(0.25)(image).to_vector<float>();
    CHECK((out == same || out == flipped));
    flips += out == flipped;
  }
  CHECK(std::abs(flips - 100) < 42);  // 4.8 deviations
  for (int i = 0; i < 20; ++i) {
    CHECK(RandomHorizontalFlip(0)(image).to_vector<float>() == same);
    CHECK(RandomHorizontalFlip(1)(image).to_vector<float>() == flipped);
  }
  CHECK_THROWS_WITH(RandomHorizontalFlip(1.5), Contains("[nn.RandomHorizontalFlip] p is 1.5"));
  CHECK_THROWS_AS(RandomHorizontalFlip(-0.1), InvalidArgument);
}

TEST_CASE("Compose calls one after another, each with draws of its own") {
  const Tensor image = counting({1, 2, 2});
  const Compose twice{[](const Tensor& x) { return add(x, 1); },
                      [](const Tensor& x) { return mul(x, 2); }};
  CHECK(twice(image).to_vector<float>() == std::vector<float>{2, 4, 6, 8});
  CHECK(Compose(std::vector<Transform>())(image).to_vector<float>() ==
        std::vector<float>{0, 1, 2, 3});
  CHECK_THROWS_WITH(Compose({RandomHorizontalFlip(), Transform()}),
                    Contains("[nn.Compose] transform 1 of 2 is empty"));

  // Two flips draw different numbers: their result is not always the image.
  const Compose flips{RandomHorizontalFlip(), RandomHorizontalFlip()};
  const auto run = [&] {
    std::vector<std::vector<float>> results;
    for (std::uint64_t step = 0; step < 30; ++step) {
      const random::StepScope scope({.seed = 1, .step = step});
      results.push_back(flips(image).to_vector<float>());
    }
    return results;
  };
  const auto first = run();
  CHECK(std::set<std::vector<float>>(first.begin(), first.end()).size() == 2);
  CHECK(run() == first);
}

TEST_CASE("transforms refuse tensors that are no images") {
  const std::vector<std::pair<std::string, Transform>> transforms = {
      {"nn.ToFloat", ToFloat()},
      {"nn.Normalize", Normalize({0}, {1})},
      {"nn.RandomCrop", RandomCrop({.size = 1})},
      {"nn.CenterCrop", CenterCrop(1)},
      {"nn.RandomHorizontalFlip", RandomHorizontalFlip()}};
  for (const auto& [name, transform] : transforms) {
    CHECK_THROWS_WITH(transform(counting({2, 3})),
                      Contains("[" + name +
                               "] expected an image [channels, height, width], got "
                               "shape [2, 3]"));
    CHECK_THROWS_WITH(transform(Tensor()), Contains("[" + name + "] the image is undefined"));
    CHECK_THROWS_WITH(transform(zeros({1, 2, 3}, {.device = kNull})),
                      Contains("[" + name + "] the image is on null"));
  }
}

}  // namespace
}  // namespace tessera::nn::data
