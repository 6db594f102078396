#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "tessera/models/training/image_task.h"
#include "tessera/models/training/metrics.h"
#include "tessera/tensor/error.h"

namespace tessera::models {
namespace {

using Catch::Matchers::Contains;

data::ImageSet three_images() {
  data::ImageSet set{.pixels = std::vector<std::uint8_t>(3 * 784), .labels = {4, 0, 9}};
  for (std::size_t i = 0; i < set.pixels.size(); ++i)
    set.pixels[i] = static_cast<std::uint8_t>(i * 7);
  return set;
}

TEST_CASE("images are a data set, as stored and normalised") {
  const data::ImageSet set = three_images();
  const auto [image, label] = set.get(2);
  CHECK(image.shape() == Shape{1, 28, 28});
  CHECK(image.to_vector<std::uint8_t>() ==
        std::vector<std::uint8_t>(set.pixels.begin() + 2 * 784, set.pixels.end()));
  CHECK(label == 9);
  CHECK_THROWS_WITH(set.get(3), Contains("[image_set] image 3 of 3"));
  CHECK_THROWS_WITH(set.get(-1), Contains("image -1 of 3"));
  const NormalizedImages normalized(set, DType::kF64);
  CHECK(normalized.size() == 3);
  CHECK(normalized.get(1).second == 0);
  CHECK(normalized.get(1).first.shape() == Shape{784});
  CHECK(normalized.get(1).first.to_vector<double>()[5] ==
        (set.pixels[784 + 5] / 255.0 - 0.2860) / 0.3530);
}

TEMPLATE_TEST_CASE("a batch holds the samples asked for, normalised", "", float, double) {
  const data::ImageSet set = three_images();
  const std::vector<std::int64_t> samples = {2, 0, 2};
  const ImageBatch batch = image_batch(set, samples, {.dtype = dtype_of<TestType>});
  REQUIRE(batch.rows() == 3);
  REQUIRE(batch.pixels.shape() == Shape{3, 784});
  CHECK(batch.targets.to_vector<std::int64_t>() == std::vector<std::int64_t>{9, 4, 9});
  const auto pixels = batch.pixels.to_vector<TestType>();
  bool equal = true;
  for (std::size_t row = 0; row < 3; ++row)
    for (std::size_t i = 0; i < 784; ++i) {
      const double stored = set.pixels[static_cast<std::size_t>(samples[row]) * 784 + i];
      equal = equal &&
              pixels[row * 784 + i] == static_cast<TestType>((stored / 255.0 - 0.2860) / 0.3530);
    }
  CHECK(equal);
}

TEST_CASE("a batch may be empty and may not reach outside") {
  const data::ImageSet set = three_images();
  const ImageBatch empty = image_batch(set, {}, {});
  CHECK(empty.pixels.shape() == Shape{0, 784});
  CHECK(empty.rows() == 0);
  const std::vector<std::int64_t> outside = {3};
  CHECK_THROWS_WITH(image_batch(set, outside, {}), Contains("[image_batch] sample 3 of 3 images"));
  CHECK_THROWS_AS(image_batch(set, {}, {.dtype = DType::kI64}), InvalidArgument);
}

TEST_CASE("metrics are written in full") {
  const StepMetrics step{.step = 7,
                         .loss = 1.0 / 3.0,
                         .grad_norm = 2.0 / 3.0,
                         .learning_rate = 0.1,
                         .samples = 96,
                         .step_ms = 1.23456,
                         .peak_bytes = 1024,
                         .gathered_peak_bytes = 512,
                         .comm_bytes = 99,
                         .collectives = 5};
  CHECK(
      json_line(step, DType::kF32) ==
      R"({"step":7,"loss":0.333333333,"grad_norm":0.666666667,"lr":0.1,"samples":96,"step_ms":1.235,)"
      R"("peak_bytes":1024,"gathered_peak_bytes":512,"comm_bytes":99,"collectives":5})");
  CHECK_THAT(json_line(step, DType::kF64),
             Contains(R"("loss":0.33333333333333331,"grad_norm":0.66666666666666663,)"));
  const EvalMetrics eval{.step = 7, .loss = 0.25, .accuracy = 0.5};
  CHECK(json_line(eval, DType::kF32) == R"({"eval":{"step":7,"loss":0.25,"accuracy":0.5}})");
}

TEST_CASE("metrics of language models have tokens, and what is not finite is null") {
  const StepMetrics step{.step = 2,
                         .loss = 1.5,
                         .auxiliary_loss = 0.25,
                         .grad_norm = std::numeric_limits<double>::infinity(),
                         .learning_rate = 0.5,
                         .samples = 3,
                         .tokens = 30,
                         .step_ms = 20,
                         .loss_scale = 1024,
                         .skipped = true};
  CHECK(step.tokens_per_second() == 1500);
  CHECK(
      json_line(step, DType::kF32) ==
      R"({"step":2,"loss":1.5,"auxiliary_loss":0.25,"grad_norm":null,"lr":0.5,"samples":3,)"
      R"("tokens":30,"tokens_per_s":1500.0,"step_ms":20.000,"peak_bytes":0,)"
      R"("gathered_peak_bytes":0,"comm_bytes":0,"collectives":0,"loss_scale":1024,"skipped":true})");
  const EvalMetrics eval{.step = 2, .loss = std::nan(""), .bits_per_byte = 0.75};
  CHECK(json_line(eval, DType::kF32) == R"({"eval":{"step":2,"loss":null,"bits_per_byte":0.75}})");
}

}  // namespace
}  // namespace tessera::models
