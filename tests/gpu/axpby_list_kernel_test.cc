// Copies, casts, scalings and sums of a list of tensors on a GPU: the CPU's bits.
#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "tessera/tensor/kernels/axpby_list.h"
#include "tessera/tests/gpu/row_tensors.h"

namespace tessera::testing {
namespace {

struct Part {
  DType from, to;
  std::int64_t elements;
  std::int64_t first = 0;  // offset of both in memory
  double alpha = 1, beta = 0;
  bool in_place = false;
};

void compare_list(const std::string& what, const std::vector<Part>& parts,
                  const HostTensor* factor = nullptr) {
  std::vector<HostTensor> tensors;
  AxpbyListKernel::Args args;
  for (const Part& part : parts) {
    const auto made = [&](DType dtype) {
      return HostTensor(dtype, {part.elements}, {1}, part.first).random(-3, 3, tensors.size() + 1);
    };
    tensors.push_back(made(part.to));
    const HostTensor y = tensors.back();
    if (!part.in_place) tensors.push_back(made(part.from));
    const HostTensor x = tensors.back();
    args.segments.push_back({.x = x, .y = y, .alpha = part.alpha, .beta = part.beta});
  }
  if (factor != nullptr) args.factor = *factor;
  compare_devices<AxpbyListKernel>(what, args);
}

const std::vector<std::int64_t> kSizes = {0, 1, 3, 4, 5, 4095, 4096, 4097, 12000};

}  // namespace

TEST_CASE("axpby of a list: every pair of dtypes, and sizes around packs and blocks") {
  for (const DType from : kFloating) {
    for (const DType to : kFloating) {
      std::vector<Part> parts;
      for (const std::int64_t n : kSizes) {
        parts.push_back({from, to, n});
        parts.push_back({from, to, n, 0, 0.3, 0});
        parts.push_back({from, to, n, 0, 1, 1});
        parts.push_back({from, to, n, 0, -0.7, 1.3});
      }
      compare_list(std::string(dtype_name(from)) + " to " + dtype_name(to), parts);
    }
  }
}

TEST_CASE("axpby of a list: mixed dtypes, misaligned tensors, in place, no tensors") {
  compare_list("mixed", {{DType::kF32, DType::kBF16, 700},
                         {DType::kBF16, DType::kF32, 70, 0, 0.5, 1},
                         {DType::kF64, DType::kF16, 7},
                         {DType::kF16, DType::kF64, 5000, 0, 2}});
  compare_list("misaligned", {{DType::kF32, DType::kBF16, 3000, 1},
                              {DType::kBF16, DType::kF32, 3000, 3, 1, 1},
                              {DType::kF32, DType::kF32, 3000, 2, 0.1}});
  compare_list("in place", {{DType::kF32, DType::kF32, 4100, 0, 0.3, 0, true},
                            {DType::kBF16, DType::kBF16, 33, 1, 0.3, 0.3, true},
                            {DType::kF64, DType::kF64, 5, 0, 1, 0, true}});
  compare_list("none", {});
  compare_list("empty alone", {{DType::kF32, DType::kBF16, 0}});
}

TEST_CASE("axpby of a list longer than a launch takes") {
  std::vector<Part> parts;
  for (std::int64_t i = 0; i < 200; ++i) parts.push_back({DType::kF32, DType::kBF16, i % 40});
  compare_list("many", parts);
}

TEST_CASE("axpby of a list: a factor on the device takes the place of every alpha") {
  for (const DType dtype : kFloating) {
    for (const double value : {0.37, 1.0, 1e-9}) {
      const HostTensor factor =
          HostTensor(dtype, Shape{}).filled([&](std::int64_t) { return value; });
      std::vector<Part> parts;
      for (const DType each : kFloating) {
        for (const std::int64_t n : kSizes) parts.push_back({each, each, n, 0, 1, 0, true});
        parts.push_back({DType::kF32, each, 50, 1, 7, 0.5});
      }
      compare_list(dtype_name(dtype), parts, &factor);
    }
  }
}

TEST_CASE("axpby of a list: NaN and infinities, and what beta 0 does not read") {
  const auto odd = [](double value) {
    return HostTensor(DType::kF32, {40}).filled([value](std::int64_t i) {
      return i == 7 ? value : 1.0;
    });
  };
  const HostTensor nan = odd(std::nan("")), infinite = odd(-INFINITY);
  const HostTensor y = odd(std::nan("")), half(DType::kBF16, {40});
  AxpbyListKernel::Args args;
  args.segments = {{.x = infinite, .y = y}, {.x = nan, .y = half, .alpha = 0.5}};
  compare_devices<AxpbyListKernel>("beta 0", args);
  const HostTensor zero = HostTensor(DType::kF32, Shape{}).filled([](std::int64_t) { return 0.0; });
  args.factor = zero;
  compare_devices<AxpbyListKernel>("factor 0", args);
}

}  // namespace tessera::testing
