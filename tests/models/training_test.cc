#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "tessera/models/training/batch_order.h"
#include "tessera/models/training/image_task.h"
#include "tessera/models/training/metrics.h"
#include "tessera/tensor/error.h"

namespace tessera::models {
namespace {

using Catch::Matchers::Contains;

std::vector<std::int64_t> copy(std::span<const std::int64_t> samples) {
  return {samples.begin(), samples.end()};
}

TEST_CASE("an epoch has every sample once, its last batch is the rest") {
  BatchOrder order(10, 4, 3);
  REQUIRE(order.steps_per_epoch() == 3);
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<std::int64_t> seen;
    for (std::int64_t step = 1; step <= 3; ++step) {
      const auto samples = copy(order.samples_of(3 * epoch + step));
      CHECK(samples.size() == (step == 3 ? 2 : 4));
      seen.insert(seen.end(), samples.begin(), samples.end());
    }
    std::sort(seen.begin(), seen.end());
    std::vector<std::int64_t> all(10);
    std::iota(all.begin(), all.end(), 0);
    CHECK(seen == all);
  }
}

TEST_CASE("the order depends on seed and epoch and on nothing else") {
  BatchOrder first(100, 100, 1), second(100, 100, 1), other(100, 100, 2);
  const auto epoch1 = copy(first.samples_of(1));
  const auto epoch2 = copy(first.samples_of(2));
  CHECK(epoch1 != epoch2);
  CHECK(copy(second.samples_of(2)) == epoch2);  // without the first epoch before
  CHECK(copy(first.samples_of(1)) == epoch1);   // going back
  CHECK(copy(other.samples_of(1)) != epoch1);
}

TEST_CASE("a batch larger than the data is all of it") {
  BatchOrder order(5, 8, 1);
  CHECK(order.steps_per_epoch() == 1);
  CHECK(order.samples_of(4).size() == 5);
}

TEST_CASE("a batch order refuses what cannot be ordered") {
  CHECK_THROWS_WITH(BatchOrder(0, 4, 1), Contains("[batch_order] 0 samples"));
  CHECK_THROWS_WITH(BatchOrder(4, 0, 1), Contains("[batch_order] the batch is 0"));
  CHECK_THROWS_WITH(BatchOrder(4, 1, 1).samples_of(0), Contains("steps count from 1"));
}

data::ImageSet three_images() {
  data::ImageSet set{.pixels = std::vector<std::uint8_t>(3 * 784), .labels = {4, 0, 9}};
  for (std::size_t i = 0; i < set.pixels.size(); ++i)
    set.pixels[i] = static_cast<std::uint8_t>(i * 7);
  return set;
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
