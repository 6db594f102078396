#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "tessera/tensor/error.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/lists.h"
#include "tessera/tests/support/throws.h"
#include "tessera/tests/tensor/ops/ops_support.h"

namespace tessera {
namespace {

using namespace testing;

constexpr DType kFloats[] = {DType::kF32, DType::kF64, DType::kBF16, DType::kF16};

Tensor spread_in(DType dtype, std::int64_t n) { return cast(spread_tensor<double>({n}), dtype); }

std::vector<double> numbers_of(const Tensor& x) { return cast(x, DType::kF64).to_vector<double>(); }

TEST_CASE("axpby_ of a list has the bits of one after another, in one launch") {
  for (const AxpbyOptions& factors :
       {AxpbyOptions{}, AxpbyOptions{.alpha = 0.3}, AxpbyOptions{.alpha = -0.7, .beta = 1.3}}) {
    std::vector<AxpbySegment> list;
    std::vector<Tensor> expected;
    for (const DType from : kFloats) {
      for (const DType to : kFloats) {
        for (const std::int64_t n : {0, 1, 7, 513, 40'001}) {
          const Tensor x = spread_in(from, n), out = spread_in(to, n);
          expected.push_back(clone(out));
          axpby_(expected.back(), x, factors);
          list.push_back({.out = out, .x = x, .alpha = factors.alpha, .beta = factors.beta});
        }
      }
    }
    const std::uint64_t version = list.front().out.version();
    CHECK(kernels_of([&] { axpby_(list); }).size() == 1);
    CHECK(list.front().out.version() == version + 1);
    for (std::size_t i = 0; i < list.size(); ++i)
      CHECK(numbers_of(list[i].out) == numbers_of(expected[i]));
  }
}

TEST_CASE("axpby_ of a list: the same for any number of threads; no tensors") {
  std::vector<Tensor> sources;
  for (const std::int64_t n : {3, 100'000, 40'000, 5}) sources.push_back(spread_in(DType::kF32, n));
  CHECK(same_for_any_threads([&] {
    std::vector<AxpbySegment> list;
    for (const Tensor& x : sources) list.push_back({.out = zeros(x.shape()), .x = x, .alpha = 0.3});
    axpby_(list);
    std::vector<double> all;
    for (const AxpbySegment& segment : list) {
      const std::vector<double> values = numbers_of(segment.out);
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }));
  CHECK(kernels_of([] { axpby_(std::vector<AxpbySegment>()); }).size() == 0);
}

TEST_CASE("axpby_ of a list: in place, what beta 0 does not read, other layouts and dtypes") {
  const Tensor x = spread_tensor<float>({4, 6}), scaled = mul(x, 0.5),
               nan = full({4, 6}, std::nan(""));
  const Tensor turned = zeros({6, 4}), numbers = arange(5);
  axpby_({{.out = nan, .x = x},
          {.out = turned.transpose(0, 1), .x = x, .alpha = 2},
          {.out = numbers, .x = numbers, .alpha = 2, .beta = -1}});
  CHECK(equal(nan, x));
  CHECK(equal(turned.transpose(0, 1), mul(x, 2)));
  CHECK(equal(numbers, arange(5)));
  axpby_({{.out = x, .x = x, .alpha = 0.5}});
  CHECK(equal(x, scaled));
  const Tensor line = arange(8, {.dtype = DType::kF32});  // reads what it writes elsewhere
  axpby_({{.out = line.slice(0, 1, 8), .x = line.slice(0, 0, 7)}});
  CHECK(line.to_vector<float>() == std::vector<float>{0, 0, 1, 2, 3, 4, 5, 6});
}

TEST_CASE("mul_ of a list has the bits of one after another, in one launch") {
  for (const DType dtype : kFloats) {
    for (const double value : {0.37, 1.0}) {
      const Tensor factor = full({}, value, {.dtype = dtype});
      std::vector<Tensor> list, expected;
      for (const DType each : kFloats) {
        for (const std::int64_t n : {0, 1, 7, 513, 40'001}) {
          list.push_back(spread_in(each, n));
          expected.push_back(clone(list.back()));
          mul_(expected.back(), factor);
        }
      }
      CHECK(kernels_of([&] { mul_(list, factor); }).size() == 1);
      for (std::size_t i = 0; i < list.size(); ++i)
        CHECK(numbers_of(list[i]) == numbers_of(expected[i]));
    }
  }
  const Tensor x = spread_tensor<float>({4, 6}), before = clone(x);
  mul_(std::vector<Tensor>{x.transpose(0, 1)}, full({1}, 0.5));
  CHECK(equal(x, mul(before, 0.5)));
  mul_(std::vector<Tensor>(), full({}, 2));
}

TEST_CASE("lists: errors") {
  const Tensor x = zeros({3});
  CHECK(thrown<InvalidArgument>([&] {
          axpby_({{.out = x, .x = x}, {.out = x}});
        }) == "[axpby_] a tensor of the list is undefined; pass a tensor");
  CHECK(thrown<InvalidArgument>([&] { axpby_({{.x = x}}); }) ==
        "[axpby_] an output of the list is undefined; pass a tensor");
  CHECK(thrown<InvalidArgument>([&] { mul_(std::vector{x}, zeros({2})); }) ==
        "[mul_] the factor of a list has shape [2]; it must have one element");
  CHECK(thrown<InvalidArgument>([&] { mul_(std::vector{x}, Tensor()); }) ==
        "[mul_] the factor is undefined; pass a tensor");
  CHECK(thrown<InvalidArgument>([&] {
          mul_(std::vector{x, Tensor()}, zeros({}));
        }) == "[mul_] a tensor of the list is undefined; pass a tensor");
}

}  // namespace
}  // namespace tessera
