// The CUDA kernels that draw random numbers against the CPU's: the same bits.
#include <catch2/catch.hpp>
#include <string>

#include "tessera/tensor/kernels/math/random_math.h"
#include "tessera/tensor/kernels/random.h"
#include "tessera/tests/gpu/comparison.h"

namespace tessera {
namespace {

using testing::compare_devices;
using testing::HostTensor;

constexpr DType kFloating[] = {DType::kF32, DType::kF64, DType::kBF16, DType::kF16};
constexpr std::uint64_t kKey = 0x1234567890abcdefu;

// The positions of a tensor in the sequence of its key.
struct Place {
  const char* name;
  Shape shape;
  Shape strides;  // in memory
  std::int64_t first_position;
  Shape position_strides;
  std::int64_t first = 0;  // in memory
};

const Place kPlaces[] = {
    {"the whole of a row", {2061}, {1}, 0, {1}},
    {"one number", {1}, {1}, 0, {1}},
    {"a 0-d tensor", {}, {}, 6, {}},
    {"nothing", {0, 3}, {3, 1}, 0, {3, 1}},
    {"a short row", {7}, {1}, 0, {1}},
    {"from a multiple of 8 on", {1025}, {1}, 88, {1}},
    {"from a multiple of 4 on", {1025}, {1}, 44, {1}},
    {"from an odd position on", {1025}, {1}, 43, {1}},
    {"misaligned in memory", {1025}, {1}, 16, {1}, 1},
    {"beyond 32 bits", {100}, {1}, (std::int64_t{1} << 34) + 8, {1}},
    {"a box", {6, 12}, {12, 1}, 43, {20, 1}},
    {"an aligned box", {6, 12}, {12, 1}, 52, {24, 1}},
    {"a box of whole runs", {6, 16}, {16, 1}, 64, {32, 1}},
    {"a transposed result", {12, 20}, {1, 12}, 8, {20, 1}},
    {"rows with gaps", {5, 16}, {24, 1}, 0, {16, 1}},
    {"a box of three dims", {2, 3, 5}, {15, 5, 1}, 7, {77, 11, 1}},
};

HostTensor memory_of(DType dtype, const Place& place) {
  return HostTensor(dtype, place.shape, place.strides, place.first);
}

std::string say(DType dtype, const Place& place) {
  return std::string(dtype_name(dtype)) + ", " + place.name;
}

void compare_fill(DType dtype, const Place& place, RandomFillKernel::Args args) {
  const HostTensor y = memory_of(dtype, place);
  args.y = y;
  args.key = kKey;
  args.first_position = place.first_position;
  args.position_strides = place.position_strides;
  compare_devices<RandomFillKernel>(
      say(dtype, place) + ", distribution " + std::to_string(static_cast<int>(args.distribution)),
      args);
}

TEST_CASE("random fill: uniform, normal and truncated normal numbers") {
  for (const Place& place : kPlaces) {
    for (DType dtype : kFloating) {
      RandomFillKernel::Args args;
      args.distribution = Distribution::kUniform;
      compare_fill(dtype, place, args);
      args.offset = -0.3;
      args.scale = 1.7;
      compare_fill(dtype, place, args);
      args.distribution = Distribution::kNormal;
      compare_fill(dtype, place, args);
      args.distribution = Distribution::kTruncatedNormal;
      args.low = -1.5;
      args.high = 0.75;
      compare_fill(dtype, place, args);
    }
  }
}

TEST_CASE("random fill: coins and whole numbers of every dtype") {
  for (const Place& place : kPlaces) {
    for (DType dtype : kAllDTypes) {
      RandomFillKernel::Args args;
      args.distribution = Distribution::kBernoulli;
      args.scale = 0.3;
      compare_fill(dtype, place, args);
      args.distribution = Distribution::kIntegers;
      args.offset = dtype == DType::kU8 ? 3 : -3;
      args.range = 17;
      compare_fill(dtype, place, args);
      args.range = std::uint64_t{1} << 63;
      if (dtype == DType::kI64) compare_fill(dtype, place, args);
    }
  }
}

TEST_CASE("dropout: the same elements stay") {
  for (const Place& place : kPlaces) {
    for (DType dtype : kFloating) {
      for (double p : {0.0, 0.1, 0.5, 1.0}) {
        DropoutKernel::Args args;
        const HostTensor x = memory_of(dtype, place).random();
        const HostTensor y = memory_of(dtype, place);
        args.x = x;
        args.y = y;
        args.key = kKey;
        args.first_position = place.first_position;
        args.position_strides = place.position_strides;
        args.p = p;
        args.scale = p < 1 ? 1 / (1 - p) : 0;
        compare_devices<DropoutKernel>(say(dtype, place) + ", p " + std::to_string(p), args);
        args.y = x;
        compare_devices<DropoutKernel>("in place, " + say(dtype, place), args);
      }
    }
  }
}

TEST_CASE("dropout: a number equal to p stays") {
  for (float p : random::uniforms(random::philox(kKey, std::uint64_t{2}), float{}).n) {
    DropoutKernel::Args args;
    const HostTensor x = HostTensor(DType::kF32, {16}).random(1, 2);
    const HostTensor y(DType::kF32, {16});
    args.x = x;
    args.y = y;
    args.key = kKey;
    args.position_strides = {1};
    args.p = p;
    compare_devices<DropoutKernel>("p is drawn", args);
  }
}

}  // namespace
}  // namespace tessera
