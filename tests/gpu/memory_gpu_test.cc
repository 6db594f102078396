// Memory of a GPU: counters, reuse in stream order, limits; copies to and from the host.
#include <catch2/catch.hpp>
#include <numeric>
#include <thread>
#include <vector>

#include "tessera/tensor/cuda/memory.h"
#include "tessera/tensor/error.h"
#include "tessera/tensor/memory/allocator.h"
#include "tessera/tensor/memory/transfer.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tensor/streams/stream.h"
#include "tessera/tests/support/close.h"
#include "tessera/tests/support/throws.h"

namespace tessera {
namespace {

using testing::all_equal;
using testing::thrown;

constexpr Device kGpu{DeviceType::kCuda, 0};

Tensor counted(std::int64_t n) {
  std::vector<float> values(static_cast<std::size_t>(n));
  std::iota(values.begin(), values.end(), 1.0f);
  return Tensor::from_vector<float>(values, {n});
}

TEST_CASE("gpu memory: counted by category, rounded up to 512 bytes") {
  const auto context = std::make_shared<RankContext>(0, 1, 1);
  const RankScope scope(context);
  MemoryCounters& counters = context->memory();
  {
    const DeviceStream& stream = current_stream(kGpu);
    const MemoryBlock a = MemoryBlock::take(1, stream, MemoryCategory::kParameter);
    const MemoryBlock b = MemoryBlock::take(513, stream, MemoryCategory::kGathered);
    const MemoryBlock none = MemoryBlock::take(0, stream, MemoryCategory::kOther);
    CHECK(a.counted_bytes() == 512);
    CHECK(counters.current()[MemoryCategory::kParameter] == 512);
    CHECK(counters.current()[MemoryCategory::kGathered] == 1024);
    CHECK(counters.current().total() == 1536);
    CHECK(reinterpret_cast<std::uintptr_t>(a.data()) % 256 == 0);
    CHECK_FALSE(none.empty());
    CHECK(cuda_memory(kGpu).in_use >= 1536);
    CHECK(cuda_memory(kGpu).reserved >= cuda_memory(kGpu).in_use);
  }
  CHECK(counters.current().total() == 0);
  CHECK(counters.peak_total() == 1536);
}

TEST_CASE("gpu memory: what a stream gave back it gets again, though work still uses it") {
  const DeviceStream stream = DeviceStream::create(kGpu, StreamKind::kQueued, "s");
  const StreamGuard guard(stream);
  stream_sleep(stream, 20);
  const Tensor sum = zeros({100000}, {.device = kGpu});
  for (int i = 1; i <= 20; ++i) {
    const Tensor x = full({100000}, i, {.device = kGpu});  // returned while the GPU sleeps
    axpby_(sum, x, {.alpha = 1, .beta = 1});
  }
  CHECK(all_equal(to_device(sum, kCpu), full({100000}, 210)).ok);
}

TEST_CASE("gpu memory: kept until the cache is emptied") {
  const std::size_t before = cuda_memory(kGpu).reserved;
  { const Tensor x = Tensor::empty({64 << 20}, {.dtype = DType::kU8, .device = kGpu}); }
  current_stream(kGpu).synchronize();
  CHECK(cuda_memory(kGpu).reserved >= std::size_t{64} << 20);
  empty_cuda_cache(kGpu);
  CHECK(cuda_memory(kGpu).reserved <= before);
}

TEST_CASE("gpu memory: no room is an OutOfMemory, and counts nothing") {
  const auto context = std::make_shared<RankContext>(0, 1, 1);
  const RankScope scope(context);
  const DeviceStream& stream = current_stream(kGpu);
  const std::string text = thrown<OutOfMemory>(
      [&] { MemoryBlock::take(std::size_t{1} << 44, stream, MemoryCategory::kActivation); });
  CHECK(text.find("no room on cuda:0 for 17592186044416 bytes of category activation, taken on "
                  "stream \"default\"") != std::string::npos);
  CHECK(context->memory().current().total() == 0);
  fill_(Tensor::empty({5}, {.device = kGpu}), 1);  // the GPU is usable
  stream.synchronize();
}

TEST_CASE("gpu memory: a block outlives its stream and its thread") {
  Tensor x;
  std::thread([&] {
    x = full({1000}, 3, {.device = kGpu});
    current_stream(kGpu).synchronize();
  }).join();
  CHECK(all_equal(to_device(x, kCpu), full({1000}, 3)).ok);
}

TEST_CASE("gpu copies: every dtype there and back") {
  for (DType dtype : kAllDTypes) {
    for (std::int64_t n : {0, 1, 3, 1025}) {
      const Tensor x = cast(counted(n), dtype);
      const Tensor there = to_device(x, kGpu);
      CHECK(there.device() == kGpu);
      CHECK(there.dtype() == dtype);
      CHECK(all_equal(to_device(there, kCpu), x).ok);
    }
  }
  CHECK(Tensor::scalar(2.5, {.device = kGpu}).item<float>() == 2.5f);
  CHECK(Tensor::from_vector<bool>({true, false}, {2}, kGpu).to_vector<bool>() ==
        std::vector<bool>{true, false});
}

TEST_CASE("gpu copies: longer than all pinned memory that is kept") {
  const Tensor x = counted((100 << 20) / 4 + 3);
  CHECK(all_equal(to_device(to_device(x, kGpu), kCpu), x).ok);
}

TEST_CASE("gpu copies: the host's values may change at once") {
  const DeviceStream& stream = current_stream(kGpu);
  stream_sleep(stream, 20);
  const Tensor x = counted(5000);
  const Tensor there = to_device(x, kGpu);
  fill_(x, -1);
  CHECK(all_equal(to_device(there, kCpu), counted(5000)).ok);
}

TEST_CASE("gpu copies: views, read through their strides") {
  const Tensor x = counted(60).view({3, 4, 5});
  const Tensor there = to_device(x, kGpu);
  const Tensor view = there.permute({2, 0, 1}).slice(2, 1, 4, 2);
  const Tensor expected = x.permute({2, 0, 1}).slice(2, 1, 4, 2);
  CHECK(view.to_vector<float>() == expected.to_vector<float>());
  CHECK(all_equal(to_device(view, kCpu), contiguous(expected)).ok);
  CHECK(there.slice(0, 2, 2).to_vector<float>().empty());
  CHECK(there.select(0, 1).select(0, 2).select(0, 3).item<float>() == 34);
  CHECK(view.str().find("f32 [5, 3, 2] on cuda:0") != std::string::npos);
  CHECK(to_device(x.transpose(0, 2), kGpu).to_vector<float>() ==
        x.transpose(0, 2).to_vector<float>());
}

TEST_CASE("gpu copies: fill_, copy_, cast and clone equal the CPU's") {
  for (DType from : kAllDTypes) {
    const Tensor x = cast(counted(77).view({7, 11}), from);
    const Tensor gpu_x = to_device(x, kGpu);
    for (DType to : kAllDTypes) {
      INFO(dtype_name(from) << " to " << dtype_name(to));
      CHECK(all_equal(to_device(cast(gpu_x.transpose(0, 1), to), kCpu), cast(x.transpose(0, 1), to))
                .ok);
      const Tensor y = zeros({14, 11}, {.dtype = to}), gpu_y = to_device(y, kGpu);
      copy_(y.slice(0, 0, 14, 2), x);
      copy_(gpu_y.slice(0, 0, 14, 2), gpu_x);
      CHECK(all_equal(to_device(gpu_y, kCpu), y).ok);
    }
    CHECK(all_equal(to_device(full({5, 3}, 1, {.dtype = from, .device = kGpu}), kCpu),
                    full({5, 3}, 1, {.dtype = from}))
              .ok);
  }
}

TEST_CASE("gpu copies: a chain of scaled sums rounds as on the CPU") {
  const Tensor x = counted(1000), y = counted(1000);
  const Tensor gpu_x = to_device(x, kGpu), gpu_y = to_device(y, kGpu);
  for (int i = 0; i < 10; ++i) {
    axpby_(y, x, {.alpha = 0.3, .beta = -1.1});
    axpby_(gpu_y, gpu_x, {.alpha = 0.3, .beta = -1.1});
  }
  CHECK(all_equal(to_device(gpu_y, kCpu), y).ok);
}

}  // namespace
}  // namespace tessera
