#include <catch2/catch.hpp>
#include <cmath>
#include <functional>

#include "tessera/tensor/error.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tests/support/throws.h"
#include "tessera/tests/tensor/ops/ops_support.h"

namespace tessera {
namespace {

using namespace testing;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

TEST_CASE("empty_rows: on a GPU rows begin at multiples of 16 bytes") {
  for (DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kU8}) {
    const std::int64_t unit = 16 / static_cast<std::int64_t>(dtype_size(dtype));
    for (std::int64_t width : {std::int64_t{0}, std::int64_t{1}, unit - 1, unit, 3 * unit + 1}) {
      const bool packed = width <= 1 || default_device().is_cpu();
      const std::int64_t pitch = packed ? width : (width + unit - 1) / unit * unit;
      const Tensor x = empty_rows({2, 3, width}, RowPitch::kAligned, {.dtype = dtype});
      INFO(dtype_name(dtype) << width);
      CHECK(pitch_of(width, RowPitch::kAligned, {.dtype = dtype}) == pitch);
      CHECK(x.shape() == Shape{2, 3, width});
      if (width > 1) CHECK(x.strides() == Shape{3 * pitch, pitch, 1});
      CHECK(x.is_contiguous() == (width == pitch));
      CHECK(x.view({6, width}).shape() == Shape{6, width});
      CHECK(empty_rows({2, 3, width}, RowPitch::kPacked, {.dtype = dtype}).is_contiguous());
    }
  }
  CHECK(empty_rows({}, RowPitch::kAligned).shape() == Shape{});
  CHECK(empty_rows({3}, RowPitch::kAligned).shape() == Shape{3});
}

TEST_CASE("zeros, ones, full, zeros_like, arange, fill") {
  CHECK(zeros({2, 2}).to_vector<float>() == std::vector<float>(4, 0));
  CHECK(ones({3}, {.dtype = DType::kI64}).to_vector<std::int64_t>() ==
        std::vector<std::int64_t>(3, 1));
  CHECK(full({}, 2.5, {.dtype = DType::kF64}).item<double>() == 2.5);
  CHECK(zeros_like(full({2}, 3)).to_vector<float>() == std::vector<float>(2, 0));
  CHECK(zeros({0, 3}).numel() == 0);
  CHECK(arange(4).to_vector<std::int64_t>() == std::vector<std::int64_t>{0, 1, 2, 3});
  CHECK(arange(3, {.dtype = DType::kF32}).to_vector<float>() == std::vector<float>{0, 1, 2});
  CHECK(arange(0).numel() == 0);
  const Tensor frame = zeros({3, 3});
  fill_(frame.slice(1, 1, 2), 4);
  CHECK(frame.to_vector<float>() == std::vector<float>{0, 4, 0, 0, 4, 0, 0, 4, 0});
  CHECK(thrown<InvalidArgument>([] { arange(-1); }) ==
        "[arange] the count is -1; it must not be negative");
  CHECK(thrown<InvalidArgument>([] { arange(257, {.dtype = DType::kU8}); }) ==
        "[arange] u8 does not hold 256; use a wider dtype");
  CHECK(thrown<InvalidArgument>([] { fill_(Tensor(), 1); }) ==
        "[fill_] the tensor is undefined; pass a tensor");
  CHECK(thrown<InvalidArgument>([] { zeros_like(Tensor()); }) ==
        "[zeros_like] the tensor is undefined; pass a tensor");
}

TEST_CASE("full converts its number as cast does") {
  for (double number :
       {0.5, -3.7, 300.0, -1.0, 1e10, std::nan(""), HUGE_VAL, -HUGE_VAL, 1.00390625 + 0x1p-40}) {
    const Tensor one = Tensor::scalar(number, {.dtype = DType::kF64});
    for (DType dtype : kAllDTypes) {
      CAPTURE(number, dtype_name(dtype));
      const Tensor filled = full({}, number, {.dtype = dtype}), converted = cast(one, dtype);
      // A GPU may give a NaN other bits.
      const bool nan = std::isnan(number) && is_floating(dtype) && !default_device().is_cpu();
      if (nan) {
        CHECK(std::isnan(cast(filled, DType::kF64).item<double>()));
        CHECK(std::isnan(cast(converted, DType::kF64).item<double>()));
      } else {
        CHECK(bits_of(filled) == bits_of(converted));
      }
    }
  }
}

TEST_CASE("ones_like, full_like, empty_like, empty, zero_") {
  const Tensor x = zeros({2, 3}, {.dtype = DType::kBF16}).transpose(0, 1);
  for (const Tensor& y : {ones_like(x), full_like(x, 2.5), empty_like(x), zeros_like(x)}) {
    CHECK(y.shape() == Shape{3, 2});
    CHECK(y.dtype() == DType::kBF16);
    CHECK(y.is_contiguous());
  }
  CHECK(cast(full_like(x, 2.5), DType::kF32).to_vector<float>() == std::vector<float>(6, 2.5f));
  CHECK(cast(ones_like(x), DType::kF32).to_vector<float>() == std::vector<float>(6, 1));
  CHECK(empty({0, 3}).numel() == 0);
  const Tensor y = full({2, 2}, 3);
  zero_(y.select(1, 0));
  CHECK(y.to_vector<float>() == std::vector<float>{0, 3, 0, 3});
  for (auto op : {ones_like, empty_like}) CHECK_THROWS_AS(op(Tensor()), InvalidArgument);
  CHECK(thrown<InvalidArgument>([] { full_like(Tensor(), 1); }) ==
        "[full_like] the tensor is undefined; pass a tensor");
  CHECK(thrown<InvalidArgument>([] { fill_(zeros({1}).expand({2}), 1); }) ==
        "[fill_] dim 0 of the tensor written to repeats one element 2 times; clone() it first");
}

TEST_CASE("arange with start, end and step; linspace; eye") {
  CHECK(arange(2, 10, 3, {.dtype = DType::kI32}).to_vector<std::int32_t>() ==
        std::vector<std::int32_t>{2, 5, 8});
  CHECK(arange(1, -1, -0.5, {.dtype = DType::kF64}).to_vector<double>() ==
        std::vector<double>{1, 0.5, 0, -0.5});
  CHECK(arange(3, 3, 1).numel() == 0);
  CHECK(arange(3, 3, -1).numel() == 0);
  CHECK(arange(5, 4.9, -1).to_vector<float>() == std::vector<float>{5});
  std::vector<double> tenths;
  for (int i = 0; i < 1000; ++i) tenths.push_back(std::fma(0.1, i, -7));
  CHECK(arange(-7, 92.95, 0.1, {.dtype = DType::kF64}).to_vector<double>() == tenths);
  const auto line = linspace(0.1, 0.7, 7, {.dtype = DType::kF64}).to_vector<double>();
  CHECK(line.front() == 0.1);
  CHECK(line.back() == 0.7);
  for (std::size_t i = 0; i < 7; ++i) CHECK(line[i] == Approx(0.1 * static_cast<double>(i + 1)));
  CHECK(linspace(3, 9, 1).to_vector<float>() == std::vector<float>{3});
  CHECK(linspace(3, 9, 0).numel() == 0);
  CHECK(eye(2).to_vector<float>() == std::vector<float>{1, 0, 0, 1});
  CHECK(eye(2, 3, {.dtype = DType::kBool}).to_vector<bool>() ==
        std::vector<bool>{1, 0, 0, 0, 1, 0});
  CHECK(eye(3, 1).to_vector<float>() == std::vector<float>{1, 0, 0});
  CHECK(eye(0).shape() == Shape{0, 0});
  CHECK(thrown<InvalidArgument>([] { arange(0, 5, -1); }) ==
        "[arange] no steps of -1 lead from 0 to 5; turn the sign of the step, or swap the ends");
  CHECK(thrown<InvalidArgument>([] { arange(5, 4.9, 1); }) ==
        "[arange] no steps of 1 lead from 5 to 4.9; turn the sign of the step, or swap the ends");
  CHECK(thrown<InvalidArgument>([] { arange(4.9, 5, -1); }) ==
        "[arange] no steps of -1 lead from 4.9 to 5; turn the sign of the step, or swap the ends");
  CHECK(thrown<InvalidArgument>([] { arange(0, 5, 0); }) ==
        "[arange] no steps of 0 lead from 0 to 5; turn the sign of the step, or swap the ends");
  CHECK(thrown<InvalidArgument>([] { arange(0, 1e30, 1e-3); }) ==
        "[arange] steps of 0.001 from 0 to 1e+30 are 1e+33; make them longer");
  CHECK(thrown<InvalidArgument>([] { arange(-1, 5, 1, {.dtype = DType::kU8}); }) ==
        "[arange] u8 does not hold -1; use a wider dtype");
  CHECK(thrown<InvalidArgument>([] { linspace(0, 1, -1); }) ==
        "[linspace] the count is -1; it must not be negative");
  CHECK(thrown<InvalidArgument>([] { linspace(0, 1, 2, {.dtype = DType::kI64}); }) ==
        "[linspace] needs a floating dtype, got i64; use arange for whole numbers");
  CHECK(thrown<InvalidArgument>([] { eye(-2); }) ==
        "[eye] the number of rows is -2; it must not be negative");
}

}  // namespace
}  // namespace tessera
