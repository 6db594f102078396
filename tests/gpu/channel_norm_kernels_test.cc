// The CUDA kernels of batch norm against the CPU's.

#include "tessera/tensor/kernels/channel_norm.h"
#include "tessera/tensor/kernels/plans/chunks.h"
#include "tessera/tests/gpu/comparison.h"

namespace tessera {
namespace {

using testing::compare_devices;
using testing::HostTensor;
using testing::Tolerance;

constexpr DType kDtypes[] = {DType::kF32, DType::kBF16, DType::kF16, DType::kF64};

// Samples, channels, spatial: with and without packs, more than one chunk, one element, no
// elements.
const ChannelShape kShapes[] = {
    {.samples = 3, .channels = 5, .spatial = 64},   {.samples = 2, .channels = 3, .spatial = 49},
    {.samples = 5, .channels = 2, .spatial = 1000}, {.samples = 1, .channels = 1, .spatial = 4100},
    {.samples = 70, .channels = 37, .spatial = 1},  {.samples = 301, .channels = 3, .spatial = 1},
    {.samples = 1, .channels = 40, .spatial = 1},   {.samples = 1, .channels = 2, .spatial = 2},
    {.samples = 0, .channels = 4, .spatial = 6},    {.samples = 4, .channels = 0, .spatial = 1}};

Tolerance sums_tolerance(DType dtype) {
  return dtype == DType::kF64 ? Tolerance{1e-12, 1e-11} : Tolerance{2e-5, 2e-5};
}

std::string text(const ChannelShape& s, DType dtype) {
  return std::string(dtype_name(dtype)) + " [" + std::to_string(s.samples) + ", " +
         std::to_string(s.channels) + ", " + std::to_string(s.spatial) + "]";
}

HostTensor elements(const ChannelShape& s, DType dtype, std::uint64_t seed,
                    std::int64_t first = 0) {
  const Shape shape{s.rows(), s.row_length()};
  return HostTensor(dtype, shape, contiguous_strides(shape), first).random(1, 3, seed);
}
HostTensor per_channel(const ChannelShape& s, DType dtype, std::uint64_t seed) {
  return HostTensor(compute_dtype(dtype), {s.channels}).random(0.5, 1.5, seed);
}
HostTensor count_of(double count) {
  return HostTensor(DType::kF64, {}).filled([&](std::int64_t) { return count; });
}

}  // namespace

TEST_CASE("channel statistics on the GPU") {
  for (const ChannelShape& s : kShapes) {
    for (DType dtype : kDtypes) {
      for (std::int64_t first : {0, 1}) {
        const HostTensor x = elements(s, dtype, 1, first), mean = per_channel(s, dtype, 2),
                         m2 = per_channel(s, dtype, 3), count = count_of(7);
        compare_devices<ChannelStatisticsKernel>(
            text(s, dtype), {.x = x, .mean = mean, .m2 = m2, .count = count, .shape = s},
            sums_tolerance(dtype));
      }
    }
  }
}

TEST_CASE("channel statistics on the GPU: a large mean takes nothing away") {
  const ChannelShape s{.samples = 4, .channels = 3, .spatial = 2500};
  HostTensor x = HostTensor(DType::kF32, {12, 2500}).filled([](std::int64_t i) {
    return 1e6 + static_cast<double>(i * 7919 % 16);
  });
  const HostTensor mean = per_channel(s, DType::kF32, 2), m2 = per_channel(s, DType::kF32, 3),
                   count = count_of(0);
  compare_devices<ChannelStatisticsKernel>(
      "far from 0", {.x = x, .mean = mean, .m2 = m2, .count = count, .shape = s}, {1e-5, 0});
}

TEST_CASE("channel statistics on the GPU: chunks of several thousand elements") {
  const ChannelShape s{.samples = 3, .channels = 1, .spatial = 3'000'000};
  REQUIRE(ChannelChunks(s).length > ChannelChunks::kElements);
  const HostTensor x = elements(s, DType::kBF16, 1), mean = per_channel(s, DType::kBF16, 2),
                   m2 = per_channel(s, DType::kBF16, 3), count = count_of(0);
  compare_devices<ChannelStatisticsKernel>(
      "long", {.x = x, .mean = mean, .m2 = m2, .count = count, .shape = s}, {2e-5, 0});
}

TEST_CASE("channel sums on the GPU") {
  for (const ChannelShape& s : kShapes) {
    for (DType dtype : kDtypes) {
      for (std::int64_t first : {0, 1}) {
        const HostTensor x = elements(s, dtype, 1), dy = elements(s, dtype, 4, first),
                         mean = per_channel(s, dtype, 2), rstd = per_channel(s, dtype, 3),
                         sum = per_channel(s, dtype, 5), along = per_channel(s, dtype, 6);
        compare_devices<ChannelSumsKernel>(text(s, dtype),
                                           {.dy = dy,
                                            .x = x,
                                            .mean = mean,
                                            .rstd = rstd,
                                            .sum_dy = sum,
                                            .sum_dy_normal = along,
                                            .shape = s},
                                           sums_tolerance(dtype));
      }
    }
  }
}

TEST_CASE("channel finish on the GPU: the bits of the CPU") {
  for (DType dtype : {DType::kF32, DType::kF64}) {
    for (DType running_dtype : kDtypes) {
      for (double n : {0.0, 1.0, 2.0, 640.0}) {
        const ChannelShape s{.samples = 1, .channels = 300};
        const HostTensor mean = per_channel(s, dtype, 1), m2 = per_channel(s, dtype, 2),
                         rstd = per_channel(s, dtype, 3), count = count_of(n),
                         running_mean = HostTensor(running_dtype, {300}).random(0, 1, 4),
                         running_var = HostTensor(running_dtype, {300}).random(0, 1, 5);
        ChannelFinishKernel::Args args;
        args.m2 = m2;
        args.rstd = rstd;
        args.momentum = 0.1;
        args.eps = 1e-5;
        compare_devices<ChannelFinishKernel>("without a count", args);
        args.mean = mean;
        args.count = count;
        args.running_mean = running_mean;
        args.running_var = running_var;
        compare_devices<ChannelFinishKernel>("count " + std::to_string(n), args);
      }
    }
  }
}

TEST_CASE("channel norm on the GPU: the bits of the CPU, with weight and bias and without") {
  for (const ChannelShape& s : kShapes) {
    for (DType dtype : kDtypes) {
      for (std::int64_t first : {0, 1}) {
        const HostTensor x = elements(s, dtype, 1, first), y = elements(s, dtype, 9),
                         mean = per_channel(s, dtype, 2), rstd = per_channel(s, dtype, 3),
                         weight = per_channel(s, dtype, 4), bias = per_channel(s, dtype, 5);
        ChannelNormKernel::Args args;
        args.x = x;
        args.mean = mean;
        args.rstd = rstd;
        args.y = y;
        args.shape = s;
        compare_devices<ChannelNormKernel>(text(s, dtype) + " plain", args);
        args.weight = weight;
        args.bias = bias;
        compare_devices<ChannelNormKernel>(text(s, dtype), args);
      }
    }
  }
}

TEST_CASE("channel norm backward on the GPU: the bits of the CPU, with sums and without") {
  for (const ChannelShape& s : kShapes) {
    for (DType dtype : kDtypes) {
      const HostTensor x = elements(s, dtype, 1), dy = elements(s, dtype, 8),
                       dx = elements(s, dtype, 9), mean = per_channel(s, dtype, 2),
                       rstd = per_channel(s, dtype, 3), weight = per_channel(s, dtype, 4),
                       sum = per_channel(s, dtype, 5), along = per_channel(s, dtype, 6),
                       count = count_of(static_cast<double>(s.count()));
      ChannelNormBackwardKernel::Args args;
      args.dy = dy;
      args.x = x;
      args.mean = mean;
      args.rstd = rstd;
      args.dx = dx;
      args.shape = s;
      compare_devices<ChannelNormBackwardKernel>(text(s, dtype) + " plain", args);
      args.weight = weight;
      args.sum_dy = sum;
      args.sum_dy_normal = along;
      args.count = count;
      compare_devices<ChannelNormBackwardKernel>(text(s, dtype), args);
    }
  }
}

}  // namespace tessera
