// Data sets made of tensors, subsets, and functions on examples.
#include "tessera/nn/data/datasets.h"

#include <catch2/catch.hpp>

#include "tessera/tensor/error.h"
#include "tessera/tensor/ops/ops.h"

namespace tessera::nn::data {
namespace {

using Catch::Matchers::Contains;

Tensor rows(std::int64_t count) {
  return reshape(arange(2 * count, {.dtype = DType::kI64, .device = kCpu}), {count, 2});
}

TEST_CASE("a data set of tensors has their rows") {
  const Tensor x = rows(3), y = arange(3, {.dtype = DType::kF32, .device = kCpu});
  const TensorDataset data(x, y, x.transpose(0, 1).transpose(0, 1));
  CHECK(data.size() == 3);
  const auto [a, b, c] = data.get(2);
  CHECK(a.to_vector<std::int64_t>() == std::vector<std::int64_t>{4, 5});
  CHECK(b.shape() == Shape{});
  CHECK(b.item<float>() == 2);
  CHECK(c.storage() == x.storage());  // a view
  CHECK_THROWS_WITH(data.get(3), Contains("[nn.TensorDataset] example 3 of 3"));
  CHECK_THROWS_WITH(data.get(-1), Contains("example -1 of 3"));
  CHECK(TensorDataset(zeros({0, 4}, {.device = kCpu})).size() == 0);
  CHECK_THROWS_WITH(TensorDataset(x, rows(4)),
                    Contains("tensor 1 has shape [4, 2], the first one [3, 2]"));
  CHECK_THROWS_WITH(TensorDataset(x, Tensor()), Contains("tensor 1 is undefined"));
  CHECK_THROWS_WITH(TensorDataset(zeros({}, {.device = kCpu})), Contains("equally many rows"));
  CHECK_THROWS_WITH(TensorDataset(zeros({3}, {.device = kNull})), Contains("tensor 0 is on null"));
}

TEST_CASE("many threads read one data set of tensors") {
  const Tensor x = rows(200), y = arange(200, {.dtype = DType::kI64, .device = kCpu});
  DataLoader loader(TensorDataset(x, y), {.batch_size = 3, .shuffle = true, .workers = 4});
  std::int64_t total = 0;
  for (auto [values, labels] : loader) {
    CHECK(values.select(1, 0).to_vector<std::int64_t>() ==
          mul(labels, 2).to_vector<std::int64_t>());
    total += sum(labels).item<std::int64_t>();
  }
  CHECK(total == 199 * 100);
}

TEST_CASE("a subset has the examples at its indices") {
  const TensorDataset data(rows(5));
  const Subset subset(data, {4, 1, 1});
  CHECK(subset.size() == 3);
  CHECK(std::get<0>(subset.get(0)).to_vector<std::int64_t>() == std::vector<std::int64_t>{8, 9});
  CHECK(std::get<0>(subset.get(2)).to_vector<std::int64_t>() == std::vector<std::int64_t>{2, 3});
  CHECK(Subset(data, {}).size() == 0);
  CHECK_THROWS_WITH(subset.get(3), Contains("[nn.Subset] example 3 of 3"));
  CHECK_THROWS_WITH(Subset(data, {0, 5}), Contains("index 1 is 5; the data set has 5 examples"));
  CHECK_THROWS_AS(Subset(data, {-1}), InvalidArgument);
}

TEST_CASE("a function is applied to the example, or to its first member") {
  const TensorDataset data(rows(3), arange(3, {.dtype = DType::kI64, .device = kCpu}));
  const Transformed negative(data, [](const Tensor& x) { return neg(x); });
  const auto [values, label] = negative.get(1);
  CHECK(values.to_vector<std::int64_t>() == std::vector<std::int64_t>{-2, -3});
  CHECK(label.item<std::int64_t>() == 1);
  CHECK(negative.size() == 3);

  const Transformed sums(data, [](const std::tuple<Tensor, Tensor>& example) {
    return sum(std::get<0>(example)).item<std::int64_t>();
  });
  CHECK(sums.get(2) == 9);

  struct Pairs {
    std::int64_t size() const { return 1; }
    std::pair<int, std::string> get(std::int64_t) const { return {3, "three"}; }
  };
  const auto pair = Transformed(Pairs{}, [](int x) { return x + 0.5; }).get(0);
  STATIC_REQUIRE(std::is_same_v<decltype(pair), const std::pair<double, std::string>>);
  CHECK(pair == std::pair<double, std::string>{3.5, "three"});

  // On a subset of a data set that it owns, through a loader.
  DataLoader loader(Transformed(Subset(TensorDataset(rows(4)), {3, 0}),
                                [](const Tensor& x) { return mul(x, 10); }),
                    {.batch_size = 2, .workers = 1});
  for (auto [x] : loader)
    CHECK(x.to_vector<std::int64_t>() == std::vector<std::int64_t>{60, 70, 0, 10});
}

}  // namespace
}  // namespace tessera::nn::data
