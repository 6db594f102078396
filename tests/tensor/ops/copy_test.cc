#include <catch2/catch.hpp>
#include <cmath>
#include <functional>

#include "tessera/tensor/error.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/shape.h"
#include "tessera/tests/support/throws.h"
#include "tessera/tests/tensor/ops/ops_support.h"

namespace tessera {
namespace {

using namespace testing;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

TEST_CASE("cast: every pair of dtypes; floating to integer truncates and clamps") {
  const Tensor x = Tensor::from_vector<double>({-1.75, 2.5, 300, kNaN, kInf, -kInf}, {6});
  CHECK(cast(x, DType::kI64).to_vector<std::int64_t>() ==
        std::vector<std::int64_t>{-1, 2, 300, 0, std::numeric_limits<std::int64_t>::max(),
                                  std::numeric_limits<std::int64_t>::min()});
  CHECK(cast(x, DType::kU8).to_vector<std::uint8_t>() ==
        std::vector<std::uint8_t>{0, 2, 255, 0, 255, 0});
  for (DType from : kAllDTypes) {
    for (DType to : kAllDTypes) {
      const Tensor seven = full({2, 3}, 7, {.dtype = from});
      const Tensor y = cast(seven.transpose(0, 1), to);
      CHECK(y.dtype() == to);
      CHECK(y.shape() == Shape{3, 2});
      const double expected = from == DType::kBool || to == DType::kBool ? 1 : 7;
      CHECK(cast(y, DType::kF64).to_vector<double>() == std::vector<double>(6, expected));
    }
  }
  CHECK(cast(Tensor::from_vector<std::int64_t>({16777217}, {1}), DType::kF32).item<float>() ==
        16777216.0f);
}

TEST_CASE("clone, contiguous, copy_: any layouts") {
  const Tensor x = spread_tensor<float>({5, 3, 7});
  const auto values = x.to_vector<float>();
  for (const Tensor& from : layouts(x)) {
    CHECK(clone(from).to_vector<float>() == values);
    CHECK(clone(from).is_contiguous());
    CHECK(contiguous(from).to_vector<float>() == values);
    CHECK((contiguous(from).storage() == from.storage()) == from.is_contiguous());
    for (const Tensor& to : layouts(zeros_like(x))) {
      const auto before = to.version();
      copy_(to, from);
      CHECK(to.to_vector<float>() == values);
      CHECK(to.version() == before + 1);
    }
  }
  CHECK(clone(Tensor::empty({0, 4})).shape() == Shape{0, 4});
}

// Copies between tensors that are contiguous along different dims go by tiles.
TEST_CASE("copies of permuted tensors: every order of dims, widths and odd sizes") {
  const DType dtype = GENERATE(DType::kU8, DType::kBF16, DType::kF32, DType::kF64);
  const Shape shape = GENERATE(Shape{9, 8, 70}, Shape{67, 3, 130}, Shape{1, 300, 17},
                               Shape{7, 261, 16}, Shape{0, 20, 30});
  CAPTURE(dtype, shape);
  const std::vector<std::vector<int>> orders = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                                {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
  // Numbers below 251 are exact in all of these dtypes.
  const Tensor x =
      cast(remainder(arange(shape.numel()), 251), dtype).view({shape[0], shape[1], shape[2]});
  const auto at = [&](const Tensor& of, std::int64_t i, std::int64_t j, std::int64_t k) {
    return i * of.strides()[0] + j * of.strides()[1] + k * of.strides()[2];
  };
  for (const std::vector<int>& order : orders) {
    const Tensor turned = x.permute({order[0], order[1], order[2]});
    const Tensor copied = clone(turned);
    REQUIRE(copied.is_contiguous());
    const Tensor back = zeros_like(x);
    copy_(back.permute({order[0], order[1], order[2]}), copied);
    CHECK(cast(back, DType::kI64).to_vector<std::int64_t>() ==
          cast(x, DType::kI64).to_vector<std::int64_t>());
    const auto values = cast(copied, DType::kI64).to_vector<std::int64_t>();
    std::int64_t wrong = 0, place = 0;
    for (std::int64_t i = 0; i < turned.dim(0); ++i)
      for (std::int64_t j = 0; j < turned.dim(1); ++j)
        for (std::int64_t k = 0; k < turned.dim(2); ++k)
          wrong += values[static_cast<std::size_t>(place++)] != at(turned, i, j, k) % 251;
    CHECK(wrong == 0);
  }
}

// Runs are copied in vectors from 512 bytes on, also backwards; lines of a few elements across.
TEST_CASE("copies of runs: every length and shift, backwards, and short lines") {
  const DType dtype = GENERATE(DType::kU8, DType::kBF16, DType::kF32, DType::kF64);
  const std::int64_t n = GENERATE(1, 3, 31, 64, 129, 513, 700, 2047);
  CAPTURE(dtype, n);
  const auto values = [](const Tensor& x) {
    return cast(x, DType::kI64).to_vector<std::int64_t>();
  };
  const Tensor x = cast(remainder(arange(3 * n), 251), dtype).view({3, n});
  const std::vector<std::int64_t> plain = values(x);
  const auto moved = [&](auto column, std::int64_t length) {
    std::vector<std::int64_t> out;
    for (std::int64_t i = 0; i < 3; ++i)
      for (std::int64_t j = 0; j < length; ++j)
        out.push_back(plain[static_cast<std::size_t>(i * n + column(j))]);
    return out;
  };
  CHECK(values(flip(x, {1})) == moved([&](std::int64_t j) { return n - 1 - j; }, n));
  for (const std::int64_t shift : {1, 3, 8, 35}) {
    const std::int64_t by = shift % n;
    CHECK(values(roll(x, shift, 1)) == moved([&](std::int64_t j) { return (j - by + n) % n; }, n));
    CHECK(values(clone(x.slice(1, by, n))) ==
          moved([&](std::int64_t j) { return j + by; }, n - by));
  }
  for (const std::int64_t count : {2, 3, 7, 8})
    CHECK(values(repeat_interleave(x, count, 1)) ==
          moved([&](std::int64_t j) { return j / count; }, n * count));
  const Tensor pairs = stack({x, x}, 2);
  CHECK(values(pairs) == moved([&](std::int64_t j) { return j / 2; }, n * 2));
  CHECK(values(clone(pairs.transpose(0, 1)).transpose(0, 1)) == values(pairs));
}

TEST_CASE("axpby_: scale, accumulate with a cast; what beta 0 does not read") {
  const Tensor out = Tensor::from_vector<double>({1, 2}, {2});
  axpby_(out, Tensor::from_vector<float>({0.5f, 0.25f}, {2}), {.alpha = 4, .beta = 10});
  CHECK(out.to_vector<double>() == std::vector<double>{12, 21});
  const Tensor nan = full({2}, kNaN);
  axpby_(nan, Tensor::from_vector<float>({1, 2}, {2}), {.alpha = 0.5});
  CHECK(nan.to_vector<float>() == std::vector<float>{0.5f, 1});
  const Tensor i = Tensor::from_vector<std::int64_t>({10, 20}, {2});
  axpby_(i, i, {.alpha = 2, .beta = -1});
  CHECK(i.to_vector<std::int64_t>() == std::vector<std::int64_t>{10, 20});
  axpby_(i, Tensor::from_vector<float>({0.5f, 0.6f}, {2}), {.alpha = 3, .beta = 1});
  CHECK(i.to_vector<std::int64_t>() == std::vector<std::int64_t>{11, 21});
}

TEST_CASE("reshape and flatten: a view where the layout allows, else a copy") {
  const Tensor x = spread_tensor<float>({4, 3, 2});
  CHECK(reshape(x, {2, -1}).storage() == x.storage());
  CHECK(reshape(x.slice(0, 0, 4, 2), {2, 6}).storage() == x.storage());
  const Tensor turned = x.transpose(0, 2);
  CHECK(reshape(turned, {24}).storage() != x.storage());
  CHECK(reshape(turned, {24}).to_vector<float>() == turned.to_vector<float>());
  CHECK(flatten(x).shape() == Shape{24});
  CHECK(flatten(x, 1).shape() == Shape{4, 6});
  CHECK(flatten(x, 0, -2).shape() == Shape{12, 2});
  CHECK(flatten(full({}, 3)).shape() == Shape{1});
  CHECK(flatten(zeros({2, 0, 3})).shape() == Shape{0});
  CHECK(thrown<InvalidArgument>([&] { flatten(x, 2, 1); }) ==
        "[flatten] dim 2 comes after dim 1; give the outer one first");
  CHECK(thrown<InvalidArgument>([&] { flatten(Tensor()); }) ==
        "[flatten] the tensor is undefined; pass a tensor");
  CHECK(thrown<InvalidArgument>([&] { reshape(Tensor(), {1}); }) ==
        "[reshape] the tensor is undefined; pass a tensor");
}

}  // namespace
}  // namespace tessera
