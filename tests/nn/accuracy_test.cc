// Accuracies against a plain count, and means of numbers that come in pieces.
#include "tessera/nn/training/accuracy.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "tessera/nn/training/running_mean.h"
#include "tessera/tensor/error.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tensor/random.h"

namespace tessera::nn {
namespace {

using Catch::Matchers::Contains;

struct Sample {
  Tensor logits, labels;
};

// All logits of a row differ.
Sample make_sample(const Shape& rows, std::int64_t classes, DType dtype, DType labels_dtype) {
  Shape shape = rows;
  shape.push_back(classes);
  const Tensor logits = Tensor::empty(shape, {.dtype = DType::kF32});
  random::fill_normal(logits, random::named_key(1, "logits"), random::whole(shape), 0, 1);
  const Tensor labels = Tensor::empty(rows, {.dtype = DType::kI64});
  random::fill_integers(labels, random::named_key(1, "labels"), random::whole(rows), 0, classes);
  return {cast(logits, dtype), cast(labels, labels_dtype)};
}

// Rows in which fewer than k other logits are larger than that of the label.
std::vector<bool> right_rows(const Sample& sample, std::int64_t k) {
  const auto logits = cast(sample.logits, DType::kF64).to_vector<double>();
  const auto labels = cast(sample.labels, DType::kI64).to_vector<std::int64_t>();
  const auto classes = static_cast<std::size_t>(sample.logits.dim(-1));
  std::vector<bool> right;
  for (std::size_t row = 0; row < labels.size(); ++row) {
    std::int64_t larger = 0;
    const double own = logits[row * classes + static_cast<std::size_t>(labels[row])];
    for (std::size_t c = 0; c < classes; ++c) larger += logits[row * classes + c] > own;
    right.push_back(larger < k);
  }
  return right;
}

TEST_CASE("accuracies count the rows whose label has one of the largest logits") {
  const DType dtype = GENERATE(DType::kF32, DType::kF64);
  const DType labels_dtype = GENERATE(DType::kI64, DType::kI32);
  for (const Shape& rows : {Shape{37}, Shape{3, 5}, Shape{1}, Shape{}}) {
    for (const std::int64_t classes : {1, 2, 7}) {
      const Sample sample = make_sample(rows, classes, dtype, labels_dtype);
      for (std::int64_t k = 1; k <= classes; ++k) {
        const std::vector<bool> right = right_rows(sample, k);
        const auto count = static_cast<float>(std::count(right.begin(), right.end(), true));
        const auto check = [&](const auto& compute) {
          CHECK(compute(LossReduction::kNone).template to_vector<bool>() == right);
          CHECK(compute(LossReduction::kNone).shape() == rows);
          CHECK(compute(LossReduction::kSum).template item<float>() == count);
          CHECK(compute(LossReduction::kMean).template item<float>() ==
                Approx(count / static_cast<float>(right.size())));
        };
        check([&](LossReduction r) { return top_k_accuracy(sample.logits, sample.labels, k, r); });
        check([&](LossReduction r) {
          return top_k_accuracy(Variable(sample.logits, true), sample.labels, k, r);
        });
        if (k > 1) continue;
        check([&](LossReduction r) { return accuracy(sample.logits, sample.labels, r); });
        check([&](LossReduction r) {
          return accuracy(Variable(sample.logits, true), sample.labels, r);
        });
      }
    }
  }
}

TEST_CASE("accuracies of strided logits, of no rows, and of labels that are no class") {
  const Sample sample = make_sample({6}, 4, DType::kF32, DType::kI64);
  const Tensor strided = contiguous(sample.logits.transpose(0, 1)).transpose(0, 1);
  CHECK(top_k_accuracy(strided, sample.labels, 2).item<float>() ==
        top_k_accuracy(sample.logits, sample.labels, 2).item<float>());
  const Tensor none = zeros({0, 4}), no_labels = zeros({0}, {.dtype = DType::kI64});
  CHECK(std::isnan(accuracy(none, no_labels).item<float>()));
  CHECK(top_k_accuracy(none, no_labels, 3, LossReduction::kSum).item<float>() == 0);
  CHECK(accuracy(none, no_labels, LossReduction::kNone).shape() == Shape{0});
  const Tensor outside = full({6}, -100, {.dtype = DType::kI64});
  CHECK(accuracy(sample.logits, outside).item<float>() == 0);
}

TEST_CASE("accuracies refuse operands that do not match") {
  const Tensor logits = zeros({3, 4}), labels = zeros({3}, {.dtype = DType::kI64});
  CHECK_THROWS_WITH(accuracy(logits, zeros({4}, {.dtype = DType::kI64})),
                    Contains("[nn.accuracy] logits of shape [3, 4] need labels of that shape "
                             "without classes, got [4]"));
  CHECK_THROWS_WITH(accuracy(zeros({}), labels), Contains("logits of shape []"));
  CHECK_THROWS_WITH(accuracy(cast(logits, DType::kI64), labels), Contains("the logits are i64"));
  CHECK_THROWS_WITH(accuracy(logits, zeros({3})), Contains("the labels are f32"));
  CHECK_THROWS_WITH(accuracy(zeros({3, 0}), labels), Contains("[3, 0] have no classes"));
  CHECK_THROWS_WITH(accuracy(Tensor(), labels), Contains("the logits are undefined"));
  CHECK_THROWS_WITH(accuracy(logits, Tensor()), Contains("the labels are undefined"));
  CHECK_THROWS_WITH(top_k_accuracy(logits, labels, 0),
                    Contains("[nn.top_k_accuracy] k is 0 of 4 classes"));
  CHECK_THROWS_WITH(top_k_accuracy(logits, labels, 5), Contains("k is 5 of 4 classes"));
  CHECK_THROWS_AS(top_k_accuracy(logits, cast(labels, DType::kF32), 1), InvalidArgument);
}

TEST_CASE("a running mean is that of all numbers") {
  RunningMean mean;
  CHECK(std::isnan(mean.mean()));
  mean.add(2.0);
  mean.add(5.0, 3);
  mean.add_sum(0.5, 4);
  CHECK(mean.sum() == 17.5);
  CHECK(mean.count() == 8);
  CHECK(mean.mean() == 17.5 / 8);
  mean.add(std::numeric_limits<double>::quiet_NaN(), 0);  // a rank without samples
  CHECK(mean.mean() == 17.5 / 8);
  mean.add(Tensor::scalar(0.25, {.dtype = DType::kBF16}), 2);
  mean.add(Variable(Tensor::scalar(1)), 2);
  CHECK(mean.mean() == 20.0 / 12);
  CHECK_THROWS_WITH(mean.add(1.0, -1), Contains("[nn.RunningMean] the count is -1"));
  CHECK_THROWS_AS(mean.add_sum(1, -2), InvalidArgument);
  CHECK_THROWS_AS(mean.add(zeros({2}), 2), InvalidArgument);
  CHECK(mean.count() == 12);
  const RunningMean all = mean.over_ranks(local_mesh());
  CHECK(all.sum() == mean.sum());
  CHECK(all.count() == mean.count());
  mean.reset();
  CHECK(mean.count() == 0);
  CHECK(std::isnan(mean.over_ranks(local_mesh()).mean()));
}

}  // namespace
}  // namespace tessera::nn
