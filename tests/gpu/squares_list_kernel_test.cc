// The sum of squares of a list of tensors on a GPU: the CPU's bits, which are those of one
// reduction after another.
#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "tessera/tensor/kernels/reduce.h"
#include "tessera/tests/gpu/row_tensors.h"

namespace tessera::testing {
namespace {

struct Part {
  DType dtype;
  std::int64_t elements;
  std::int64_t first = 0;  // offset in memory
};

void compare_list(const std::string& what, const std::vector<Part>& parts) {
  std::vector<HostTensor> tensors;
  SquaresListKernel::Args args;
  for (const Part& part : parts) {
    tensors.push_back(
        HostTensor(part.dtype, {part.elements}, {1}, part.first).random(-3, 3, tensors.size() + 1));
    args.tensors.push_back(tensors.back());
  }
  const HostTensor y(DType::kF64, Shape{});
  args.y = y;
  compare_devices<SquaresListKernel>(what, args);
}

}  // namespace

TEST_CASE("squares of a list: every dtype, mixed, and sizes around blocks and groups") {
  for (const DType dtype : kFloating) {
    std::vector<Part> parts;
    for (const std::int64_t n : {1, 3, 15, 16, 17, 1023, 1024, 1025, 5000, 65536, 65537})
      parts.push_back({dtype, n});
    compare_list(dtype_name(dtype), parts);
  }
  compare_list("mixed", {{DType::kBF16, 700}, {DType::kF32, 70}, {DType::kF64, 7}});
  compare_list("misaligned", {{DType::kBF16, 3000, 1}, {DType::kF32, 3000, 1}});
}

TEST_CASE("squares of a list: tensors without elements, one tensor, none") {
  compare_list("empty ones", {{DType::kF32, 0},
                              {DType::kF32, 5},
                              {DType::kF32, 0},
                              {DType::kBF16, 0},
                              {DType::kF32, 66000},
                              {DType::kF32, 0}});
  compare_list("empty alone", {{DType::kF32, 0}});
  compare_list("none", {});
}

TEST_CASE("squares of a list longer than a launch takes") {
  std::vector<Part> parts;
  for (std::int64_t i = 0; i < 2100; ++i) parts.push_back({DType::kF32, i % 40});
  compare_list("many", parts);
}

TEST_CASE("squares of a large tensor among small ones: groups of groups") {
  compare_list("large", {{DType::kF32, 10}, {DType::kBF16, 4300000}, {DType::kF32, 10}});
}

TEST_CASE("squares of a list that holds a NaN or an infinity") {
  const HostTensor nan = HostTensor(DType::kF32, {40}).filled([](std::int64_t i) {
    return i == 7 ? std::nan("") : 1.0;
  });
  const HostTensor infinite =
      HostTensor(DType::kF16, {40}).filled([](std::int64_t i) { return i == 7 ? -INFINITY : 1.0; });
  const HostTensor y(DType::kF64, Shape{});
  SquaresListKernel::Args args;
  args.y = y;
  args.tensors = {infinite};
  compare_devices<SquaresListKernel>("infinite", args);
  args.tensors = {infinite, nan};
  compare_devices<SquaresListKernel>("NaN", args);
}

}  // namespace tessera::testing
