// Type promotion against a full table.

#include "tessera/tensor/ops/promotion.h"

#include <array>
#include <catch2/catch.hpp>
#include <string>

#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"

namespace tessera {
namespace {

constexpr DType kF32 = DType::kF32, kF64 = DType::kF64, kI64 = DType::kI64, kU8 = DType::kU8,
                kBF16 = DType::kBF16, kF16 = DType::kF16, kI32 = DType::kI32, kBool = DType::kBool;

constexpr std::array kOrder = {kBool, kU8, kI32, kI64, kF16, kBF16, kF32, kF64};

// Rows and columns in kOrder, as computed by PyTorch's torch.promote_types.
constexpr DType kTable[8][8] = {
    {kBool, kU8, kI32, kI64, kF16, kBF16, kF32, kF64},
    {kU8, kU8, kI32, kI64, kF16, kBF16, kF32, kF64},
    {kI32, kI32, kI32, kI64, kF16, kBF16, kF32, kF64},
    {kI64, kI64, kI64, kI64, kF16, kBF16, kF32, kF64},
    {kF16, kF16, kF16, kF16, kF16, kF32, kF32, kF64},
    {kBF16, kBF16, kBF16, kBF16, kF32, kBF16, kF32, kF64},
    {kF32, kF32, kF32, kF32, kF32, kF32, kF32, kF64},
    {kF64, kF64, kF64, kF64, kF64, kF64, kF64, kF64},
};

TEST_CASE("promotion: every pair of dtypes") {
  for (std::size_t i = 0; i < 8; ++i) {
    for (std::size_t j = 0; j < 8; ++j) {
      INFO(dtype_name(kOrder[i]) << " with " << dtype_name(kOrder[j]));
      CHECK(promote(kOrder[i], kOrder[j]) == kTable[i][j]);
      const Tensor a = ones({2}, {.dtype = kOrder[i]}), b = ones({3, 1}, {.dtype = kOrder[j]});
      CHECK(result_dtype({a, b}) == kTable[i][j]);
      CHECK(mul(a, b).dtype() == kTable[i][j]);
      CHECK(cast(mul(a, b), kF64).to_vector<double>() == std::vector<double>(6, 1.0));
      CHECK(eq(a, b).dtype() == kBool);
      CHECK(div(a, b).dtype() == (is_floating(kTable[i][j]) ? kTable[i][j] : kF32));
    }
  }
}

int kind(DType dtype) { return is_floating(dtype) ? 2 : dtype == kBool ? 0 : 1; }

TEST_CASE("promotion: 0-d tensors and numbers change only the kind") {
  for (DType with_dims : kOrder) {
    const Tensor x = ones({2}, {.dtype = with_dims});
    for (DType zero_d : kOrder) {
      INFO(dtype_name(with_dims) << " with 0-d " << dtype_name(zero_d));
      const Tensor y = ones({}, {.dtype = zero_d});
      const DType expected = kind(zero_d) > kind(with_dims) ? zero_d : with_dims;
      CHECK(result_dtype({x, y}) == expected);
      CHECK(result_dtype({y, x}) == expected);
      CHECK(add(y, x).dtype() == expected);
    }
    CHECK(result_dtype({x, 1}) == (with_dims == kBool ? kI64 : with_dims));
    CHECK(result_dtype({x, true}) == with_dims);
    CHECK(result_dtype({0.5, x}) == (is_floating(with_dims) ? with_dims : kF32));
  }
  const Tensor zero_d = ones({}, {.dtype = kBF16});
  CHECK(result_dtype({zero_d, 0.5}) == kBF16);
  CHECK(result_dtype({ones({}, {.dtype = kI32}), 2}) == kI32);
  CHECK(result_dtype({ones({2}, {.dtype = kI32}), ones({}, {.dtype = kF64}), 0.5}) == kF64);
  CHECK(result_dtype({1, 0.5}) == kF32);
  CHECK(result_dtype({true, false}) == kBool);
}

TEST_CASE("promotion: a number before an operator counts as the number after it does") {
  const Tensor x = Tensor::from_vector<std::int32_t>({7, -2}, {2});
  CHECK((2 * x).to_vector<std::int32_t>() == std::vector<std::int32_t>{14, -4});
  CHECK((std::int64_t{1} + x).to_vector<std::int32_t>() == std::vector<std::int32_t>{8, -1});
  CHECK((1 - x).to_vector<std::int32_t>() == std::vector<std::int32_t>{-6, 3});
  CHECK((0.5 * x).to_vector<float>() == std::vector<float>{3.5F, -1});
  CHECK((1 / x).to_vector<float>() == std::vector<float>{1.0F / 7, -0.5F});
  // An i64 beyond what f64 or f32 hold stays exact.
  const Tensor large = Tensor::from_vector<std::int64_t>({(std::int64_t{1} << 62) + 1}, {1});
  CHECK((1 + large).to_vector<std::int64_t>() ==
        std::vector<std::int64_t>{(std::int64_t{1} << 62) + 2});
}

TEST_CASE("promotion: bools add and multiply as or and and") {
  const Tensor a = Tensor::from_vector<bool>({true, true, false}, {3}),
               b = Tensor::from_vector<bool>({true, false, false}, {3});
  CHECK(add(a, b).to_vector<bool>() == std::vector<bool>{true, true, false});
  CHECK(mul(a, b).to_vector<bool>() == std::vector<bool>{true, false, false});
  CHECK(add(a, 1).to_vector<std::int64_t>() == std::vector<std::int64_t>{2, 2, 1});
}

}  // namespace
}  // namespace tessera
