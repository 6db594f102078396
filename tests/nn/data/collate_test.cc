// Examples of many types as batches.
#include "tessera/nn/data/collate.h"

#include <catch2/catch.hpp>
#include <limits>

#include "tessera/tensor/error.h"
#include "tessera/tensor/ops/ops.h"

namespace tessera::nn::data {
namespace {

using Catch::Matchers::Contains;

template <class Example>
auto collated(const std::vector<Example>& examples) {
  return Collate()(std::span<const Example>(examples));
}

TEST_CASE("tensors are stacked, of any strides, shapes and dtypes") {
  const Tensor plain = Tensor::from_vector<double>({1, 2, 3, 4, 5, 6}, {2, 3}, kCpu);
  const Tensor strided = Tensor::from_vector<double>({7, 10, 8, 11, 9, 12}, {3, 2}, kCpu);
  const Tensor batch = collated<Tensor>({plain, strided.transpose(0, 1)});
  CHECK(batch.shape() == Shape{2, 2, 3});
  CHECK(batch.is_contiguous());
  CHECK(batch.to_vector<double>() == std::vector<double>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  for (const DType dtype : kAllDTypes) {
    const Tensor scalars = collated<Tensor>(
        {ones({}, {.dtype = dtype, .device = kCpu}), zeros({}, {.dtype = dtype, .device = kCpu})});
    CHECK(scalars.dtype() == dtype);
    CHECK(cast(scalars, DType::kF64).to_vector<double>() == std::vector<double>{1, 0});
  }
  CHECK(collated<Tensor>({zeros({0, 3}, {.device = kCpu})}).shape() == Shape{1, 0, 3});
}

TEST_CASE("numbers become a tensor of rows") {
  constexpr std::int64_t kLarge = std::numeric_limits<std::int64_t>::max();
  CHECK(collated<std::int64_t>({3, kLarge}).to_vector<std::int64_t>() ==
        std::vector<std::int64_t>{3, kLarge});
  CHECK(collated<int>({-1, 2}).to_vector<std::int64_t>() == std::vector<std::int64_t>{-1, 2});
  CHECK(collated<std::uint8_t>({200}).to_vector<std::int64_t>() == std::vector<std::int64_t>{200});
  CHECK(collated<float>({0.5F}).to_vector<float>() == std::vector<float>{0.5F});
  CHECK(collated<double>({0.1, 2}).to_vector<double>() == std::vector<double>{0.1, 2});
  const auto [flags, numbers] =
      collated<std::tuple<bool, std::int16_t>>({{true, 1}, {false, 2}, {true, 3}});
  CHECK(flags.to_vector<bool>() == std::vector<bool>{true, false, true});
  CHECK(numbers.to_vector<std::int64_t>() == std::vector<std::int64_t>{1, 2, 3});
}

TEST_CASE("examples of several members are collated member by member") {
  const auto tensor = [](float value) { return Tensor::from_vector<float>({value}, {1}, kCpu); };
  const auto pairs = collated<std::pair<Tensor, int>>({{tensor(1), 2}, {tensor(3), 4}});
  STATIC_REQUIRE(std::is_same_v<decltype(pairs), const std::pair<Tensor, Tensor>>);
  CHECK(pairs.first.to_vector<float>() == std::vector<float>{1, 3});
  CHECK(pairs.second.to_vector<std::int64_t>() == std::vector<std::int64_t>{2, 4});

  using Nested = std::tuple<std::string, std::pair<float, std::array<Tensor, 2>>, Tensor>;
  const auto nested = collated<Nested>({{"a", {1, {tensor(2), tensor(3)}}, tensor(4)},
                                        {"b", {5, {tensor(6), tensor(7)}}, tensor(8)}});
  CHECK(std::get<0>(nested) == std::vector<std::string>{"a", "b"});
  CHECK(std::get<1>(nested).first.to_vector<float>() == std::vector<float>{1, 5});
  CHECK(std::get<1>(nested).second[1].to_vector<float>() == std::vector<float>{3, 7});
  CHECK(std::get<2>(nested).shape() == Shape{2, 1});

  const std::vector<Tensor> lists =
      collated<std::vector<Tensor>>({{tensor(1), tensor(2)}, {tensor(3), tensor(4)}});
  const std::vector<Tensor> flags =
      collated<std::vector<bool>>({{true, false, true}, {false, false, true}});
  REQUIRE(flags.size() == 3);
  CHECK(flags[0].to_vector<bool>() == std::vector<bool>{true, false});
  CHECK(flags[1].to_vector<bool>() == std::vector<bool>{false, false});
  CHECK(flags[2].to_vector<bool>() == std::vector<bool>{true, true});
  REQUIRE(lists.size() == 2);
  CHECK(lists[1].to_vector<float>() == std::vector<float>{2, 4});
}

struct Mine {
  std::pair<Tensor, std::vector<std::string>> members;
  std::array<Tensor, 2> list;
  int number = 3;
  void visit_tensors(auto&& f) { f(members, list, number); }
};

TEST_CASE("all tensors of a batch are found, and may be replaced") {
  int found = 0;
  std::tuple<Tensor, Mine, std::vector<Tensor>, double> batch;
  std::get<2>(batch).resize(2);
  visit_batch_tensors(batch, [&](Tensor& tensor) { tensor = full({}, ++found, {.device = kCpu}); });
  CHECK(found == 6);
  CHECK(std::get<0>(batch).item<float>() == 1);
  CHECK(std::get<1>(batch).list[1].item<float>() == 4);
  CHECK(std::get<2>(batch)[1].item<float>() == 6);
}

TEST_CASE("examples that do not match are refused, with their place") {
  const Tensor a = zeros({2, 3}, {.device = kCpu}), b = zeros({2, 4}, {.device = kCpu});
  CHECK_THROWS_WITH(collated<Tensor>({a, a, b}),
                    Contains("[nn.data.collate] example 2 of the batch is f32 [2, 4], the first "
                             "one f32 [2, 3]"));
  CHECK_THROWS_WITH(collated<Tensor>({a, cast(a, DType::kF64)}),
                    Contains("example 1 of the batch is f64 [2, 3]"));
  CHECK_THROWS_WITH(collated<Tensor>({a, Tensor()}),
                    Contains("example 1 of the batch is an undefined tensor"));
  CHECK_THROWS_WITH(collated<Tensor>({zeros({2}, {.device = kNull})}),
                    Contains("example 0 of the batch is on null"));
  CHECK_THROWS_WITH(collated<std::vector<int>>({{1, 2}, {1, 2, 3}}),
                    Contains("example 1 of the batch has a list of 3, the first one of 2"));
  CHECK_THROWS_AS(collated<Tensor>({a, b}), InvalidArgument);
}

}  // namespace
}  // namespace tessera::nn::data
