// Tensors as text.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include "tessera/tensor/tensor.h"

namespace tessera {
namespace {

// 0, 1, 2, ... in row-major order.
Tensor counting(const Shape& shape) {
  std::vector<std::int64_t> values(static_cast<std::size_t>(shape.numel()));
  std::iota(values.begin(), values.end(), std::int64_t{0});
  return Tensor::from_vector(values, shape);
}

// The text of a tensor on the default device, whose name replaces {}.
std::string here(std::string text) {
  const std::size_t at = text.find("{}");
  return text.replace(at, 2, default_device().str());
}

TEST_CASE("print: small tensors") {
  CHECK(counting({2, 3}).str() == here("tensor i64 [2, 3] on {}\n[[0, 1, 2],\n [3, 4, 5]]"));
  CHECK(counting({2, 3}).transpose(0, 1).str() ==
        here("tensor i64 [3, 2] on {}\n[[0, 3],\n [1, 4],\n [2, 5]]"));
  CHECK(Tensor::scalar(1.0 / 3).str() == here("tensor f32 [] on {}\n0.333333"));
  CHECK(Tensor::from_vector<std::uint8_t>({}, {0}).str() == here("tensor u8 [0] on {}\n[]"));
  CHECK(counting({2, 1, 2}).str() == here("tensor i64 [2, 1, 2] on {}\n[[[0, 1]],\n [[2, 3]]]"));
  Tensor named = Tensor::empty_named({1}, {}, MemoryCategory::kParameter, "w", false);
  CHECK(named.str() == here("tensor \"w\" f32 [1] on {}, released"));
  TensorStorage storage = named.storage();
  storage.materialize();
  storage.begin_fill();
  CHECK(named.str() == here("tensor \"w\" f32 [1] on {}, being filled"));
}

TEST_CASE("print: big tensors leave out their middle") {
  CHECK(counting({1000}).str() ==
        here("tensor i64 [1000] on {}\n[  0,   1,   2, ..., 997, 998, 999]"));
  const std::string text = counting({100, 4}).str();
  CHECK(
      text ==
      here(
          "tensor i64 [100, 4] on {}\n[[  0,   1,   2,   3],\n [  4,   5,   6,   7],\n [  8,   9,  "
          "10,  11],\n ...,\n "
          "[388, 389, 390, 391],\n [392, 393, 394, 395],\n [396, 397, 398, 399]]"));
}

TEST_CASE("print: one form of number for all, even columns, long lines broken") {
  const auto values = [](const std::vector<float>& x) {
    const std::string text = Tensor::from_vector(x, {static_cast<std::int64_t>(x.size())}).str();
    return text.substr(text.find('\n') + 1);
  };
  CHECK(values({1, -2, 30}) == "[ 1., -2., 30.]");
  CHECK(values({0.25F, -1.5F, 12}) == "[ 0.2500, -1.5000, 12.0000]");
  CHECK(values({1e-7F, 1}) == "[1.0000e-07, 1.0000e+00]");
  CHECK(values({123456, 0.5F}) == "[1.2346e+05, 5.0000e-01]");
  CHECK(values({NAN, 1, -INFINITY}) == "[ nan,   1., -inf]");
  CHECK(values({}) == "[]");
  CHECK(values({0, 0}) == "[0., 0.]");
  const std::string line = values(std::vector<float>(30, 0.5F));
  CHECK(line.find(",\n ") != std::string::npos);
  for (std::size_t at = 0; at < line.size();) {
    const std::size_t end = std::min(line.find('\n', at), line.size());
    CHECK(end - at <= 100);
    at = end + 1;
  }
  CHECK(Tensor::from_vector<bool>({true, false}, {2}).str() ==
        here("tensor bool [2] on {}\n[ true, false]"));
  CHECK(Tensor::from_vector<BFloat16>({BFloat16(0.5F), BFloat16(2.0F)}, {2}).str() ==
        here("tensor bf16 [2] on {}\n[0.5000, 2.0000]"));
  std::ostringstream out;
  out << counting({2});
  CHECK(out.str() == counting({2}).str());
  std::ostringstream others;
  others << Shape{2, 3} << ' ' << DType::kBF16 << ' ' << kCpu;
  CHECK(others.str() == "[2, 3] bf16 cpu");
}

TEST_CASE("debug_str: strides, offset, storage, version") {
  const Tensor x = Tensor::empty_named({4, 3}, {.dtype = DType::kF16}, MemoryCategory::kOther, "w");
  const Tensor view = x.transpose(0, 1).slice(0, 1, 3);
  view.bump_version();
  CHECK(view.debug_str() == here("tensor f16 [2, 4] strides [1, 3] offset 1 on {}, storage #") +
                                std::to_string(x.storage().id()) + " \"w\" of 24 bytes, version 1");
  CHECK(Tensor().debug_str() == "tensor (undefined)");
}

}  // namespace
}  // namespace tessera
