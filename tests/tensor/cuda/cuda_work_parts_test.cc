// How CUDA kernels split their work: segments of optimizers, windows of pools, chunks of channels.
#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

#include "tessera/tensor/kernels/cuda/elementwise/segment_list.h"
#include "tessera/tensor/kernels/cuda/windows/pool_windows.h"
#include "tessera/tensor/kernels/plans/chunks.h"
#include "tessera/tensor/kernels/view.h"

namespace tessera {
namespace {

struct Part : cuda::SegmentTensors<3> {
  double factor = 0;
};

TEST_CASE("segments: every element is in one block's part") {
  cuda::SegmentList<Part> list;
  const std::vector<std::int64_t> lengths = {0, 1, 4095, 0, 4096, 4097, 1'000'000, 0};
  for (std::int64_t n : lengths) {
    Part part;
    part.numel = n;
    CHECK(list.append(part));
  }
  CHECK(list.count == 5);
  CHECK(list.chunks() == 1 + 1 + 1 + 2 + 245);
  std::vector<std::int64_t> reached(5);  // the end of the visited part of each segment
  for (unsigned chunk = 0; chunk < list.chunks(); ++chunk) {
    const cuda::SegmentPart part = cuda::part_of(list, chunk);
    auto& end = reached[static_cast<std::size_t>(part.segment)];
    CHECK(part.begin == end);
    CHECK(part.begin % cuda::kSegmentPack == 0);
    CHECK(part.end > part.begin);
    CHECK(part.end <= part.begin + cuda::kSegmentChunk);
    end = part.end;
  }
  CHECK(reached == std::vector<std::int64_t>{1, 4095, 4096, 4097, 1'000'000});
}

TEST_CASE("segments: lists fit a launch's parameters, and follow each other when full") {
  using List = cuda::SegmentList<Part>;
  const std::size_t room = cuda::kParameterBytes - cuda::kOtherParameterBytes;
  CHECK(sizeof(List) <= room);
  CHECK(sizeof(List) + sizeof(Part) + sizeof(unsigned) > room - 32);
  const std::vector<int> segments(2 * List::kMost + 5, 3);
  std::vector<int> counts;
  std::int64_t next = 0;
  const auto convert = [&](int length, Part* part) {
    part->numel = length;
    part->factor = static_cast<double>(next++);
    return part->factor != 7;  // one is of another kind
  };
  cuda::for_each_list<List>(segments, convert, [&](const List& list) {
    counts.push_back(list.count);
    CHECK(list.chunks() == static_cast<unsigned>(list.count));
  });
  CHECK(counts == std::vector<int>{List::kMost, List::kMost, 4});
  cuda::for_each_list<List>(std::vector<int>{0, 0}, convert,
                            [](const List&) { FAIL("empty segments are no work"); });
}

TEST_CASE("segments: packs only where all tensors are aligned for them") {
  alignas(16) std::byte memory[64] = {};
  const auto packs = [&](std::size_t first, DType dtype) {
    Part part;
    View view;
    view.dtype = dtype;
    view.data = memory;
    part.set(0, view);
    view.data = memory + first;
    part.set(1, view);
    part.set(2, View{});  // none
    return part.packs;
  };
  CHECK(packs(16, DType::kF32));
  CHECK_FALSE(packs(8, DType::kF32));
  CHECK(packs(8, DType::kBF16));
  CHECK_FALSE(packs(4, DType::kBF16));
  CHECK(packs(16, DType::kF64));
}

void check_axis(const PoolAxis& axis) {
  const cuda::PoolWindows windows(axis);
  for (std::int64_t o = 0; o < axis.out; ++o) {
    CHECK(windows.first_inside(o) == axis.first_inside(o));
    CHECK(windows.end_inside(o) == axis.end_inside(o));
    CHECK(windows.padded_count(o) == axis.padded_count(o));
  }
  for (std::int64_t i = 0; i < axis.in; ++i) {
    CHECK(windows.first_output(i) == axis.first_output(i));
    CHECK(windows.end_output(i) == axis.end_output(i));
  }
}

TEST_CASE("pool windows: what the CPU's geometry says") {
  for (std::int64_t in : {1, 2, 7, 30}) {
    for (std::int64_t out : {1, 3, 7}) check_axis({.in = in, .out = out, .adaptive = true});
    for (std::int64_t kernel : {1, 2, 3, 5}) {
      for (std::int64_t stride : {1, 2, 4}) {
        for (std::int64_t padding = 0; padding <= kernel / 2; ++padding) {
          for (std::int64_t dilation : {1, 2}) {
            PoolAxis axis{.in = in,
                          .kernel = kernel,
                          .stride = stride,
                          .padding = padding,
                          .dilation = dilation};
            const std::int64_t room = in + 2 * padding - dilation * (kernel - 1) - 1;
            if (room < 0) continue;
            axis.out = (room + stride - 1) / stride + 1;  // rounded up
            check_axis(axis);
          }
        }
      }
    }
  }
}

TEST_CASE("pool windows: divisors of means, places of elements") {
  PoolGeometry g{.planes = 2,
                 .h = {.in = 6, .out = 3, .kernel = 3, .stride = 2, .padding = 1},
                 .w = {.in = 5, .out = 3, .kernel = 3, .stride = 2, .padding = 1}};
  for (bool counted : {false, true}) {
    g.count_include_pad = counted;
    const cuda::PoolPlanes planes(g);
    for (std::int64_t i = 0; i < 3; ++i) {
      for (std::int64_t j = 0; j < 3; ++j)
        CHECK(planes.divisor(i, j) == g.window(g.h, i).count * g.window(g.w, j).count);
    }
  }
  const cuda::PoolSide side(6, 5);
  for (std::int64_t i = 0; i < 90; ++i) {
    const cuda::PoolPlace place = side.place(i);
    CHECK(place.plane == i / 30);
    CHECK(place.row == i % 30 / 5);
    CHECK(place.column == i % 5);
  }
  CHECK(cuda::PoolSide(0, 0).place(0).row == 0);
}

TEST_CASE("channel chunks: they cover a channel, and are long where there are many") {
  for (const ChannelShape& shape : {ChannelShape{.samples = 2, .channels = 3, .spatial = 49},
                                    ChannelShape{.samples = 32, .channels = 64, .spatial = 12544},
                                    ChannelShape{.samples = 300, .channels = 5, .spatial = 1},
                                    ChannelShape{.samples = 0, .channels = 5, .spatial = 4}}) {
    const ChannelChunks chunks(shape);
    CHECK(chunks.count * chunks.length >= shape.count());
    CHECK((chunks.count - 1) * chunks.length < std::max<std::int64_t>(1, shape.count()));
    CHECK(chunks.bytes(shape) == static_cast<std::size_t>(16 * shape.channels * chunks.count));
  }
  CHECK(ChannelChunks({.samples = 2, .channels = 3, .spatial = 49}).length == 1024);
  CHECK(ChannelChunks({.samples = 32, .channels = 64, .spatial = 12544}).length == 6 * 1024);
  CHECK(ChannelChunks({.samples = 256, .channels = 64, .spatial = 12544}).length == 8 * 1024);
  CHECK(ChannelChunks({.samples = 256, .channels = 64, .spatial = 1}).length ==
        ChannelChunks::kSamples);
}

}  // namespace
}  // namespace tessera
