// Memory of CUDA graphs: blocks that a body allocates and returns, and blocks around a capture.
#include <cuda_runtime_api.h>

#include <catch2/catch.hpp>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tessera/tensor/cuda/graph.h"
#include "tessera/tensor/cuda/memory.h"
#include "tessera/tensor/cuda/queue.h"
#include "tessera/tensor/error.h"
#include "tessera/tensor/memory/allocator.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tensor/streams/stream.h"
#include "tessera/tests/gpu/graph_tensors.h"
#include "tessera/tests/support/throws.h"

namespace tessera {
namespace {

using Catch::Matchers::Contains;
using cuda::CudaGraph;
using testing::filled;
using testing::kGpu;
using testing::on_gpu;
using testing::thrown;
using testing::value_of;

TEST_CASE("gpu graph: blocks are used again in the body, by their own stream") {
  const DeviceStream compute = on_gpu("compute"), side = on_gpu("side");
  CudaGraph graph;
  const void *first = nullptr, *second = nullptr, *on_side = nullptr, *smaller = nullptr;
  graph.capture(compute.cuda_queue(), [&] {
    const auto take = [](const DeviceStream& stream, std::size_t bytes) {
      return MemoryBlock::take(bytes, stream, MemoryCategory::kOther).data();
    };
    first = take(compute, 8192);
    second = take(compute, 7168);
    on_side = take(side, 8192);
    smaller = take(compute, 1024);
  });
  CHECK(first == second);
  CHECK(on_side != first);
  CHECK(smaller != first);
  CHECK(graph.memory_bytes() == 8192 + 8192 + 1024);
}

TEST_CASE("gpu graph: memory may be used anew where no replay comes back to it") {
  const DeviceStream compute = on_gpu("compute"), side = on_gpu("side");
  const MemoryBlock before = MemoryBlock::take(512, compute, MemoryCategory::kOther);
  CHECK(before.belongs_to(compute));
  CHECK_FALSE(before.belongs_to(side));
  MemoryBlock inside;
  CudaGraph graph, next;
  graph.capture(compute.cuda_queue(), [&] {
    inside = MemoryBlock::take(512, compute, MemoryCategory::kOther);
    CHECK(inside.belongs_to(compute));
    CHECK_FALSE(before.belongs_to(compute));
  });
  CHECK_FALSE(inside.belongs_to(compute));
  CHECK(before.belongs_to(compute));
  next.capture(compute.cuda_queue(), [&] {
    CHECK_FALSE(inside.belongs_to(compute));
    compute.cuda_queue().sleep(0);
  });
}

TEST_CASE("gpu graph: its memory goes back with the graph and the last of its blocks") {
  const DeviceStream compute = on_gpu("compute");
  const StreamGuard guard(compute);
  compute.synchronize();
  const std::size_t before = cuda_memory(kGpu).in_use;
  Tensor kept;
  {
    CudaGraph graph;
    graph.capture(compute.cuda_queue(), [&] { kept = mul(filled(3), 2); });
    graph.replay(compute.cuda_queue());
  }
  CHECK(value_of(kept) == 6);
  CHECK(cuda_memory(kGpu).in_use > before);
  kept = {};
  compute.synchronize();
  CHECK(cuda_memory(kGpu).in_use == before);
}

TEST_CASE("gpu graph: blocks from before, which go back during the capture, stay for replays") {
  const DeviceStream compute = on_gpu("compute");
  const StreamGuard guard(compute);
  compute.synchronize();
  const std::size_t before = cuda_memory(kGpu).in_use;
  {
    auto x = std::make_unique<Tensor>(filled(3)), y = std::make_unique<Tensor>(filled(4));
    Tensor out;
    CudaGraph graph;
    graph.capture(compute.cuda_queue(), [&] {
      out = add(*x, *y);
      x.reset();
      std::thread([gone = std::move(y)] {}).join();
    });
    const Tensor noise = filled(-1), more = filled(-2);
    graph.replay(compute.cuda_queue());
    CHECK(value_of(out) == 7);
  }
  compute.synchronize();
  CHECK(cuda_memory(kGpu).in_use == before);
}

// The exception that `work` throws on another thread.
std::exception_ptr elsewhere(const std::function<void()>& work) {
  std::exception_ptr error;
  std::thread([&] {
    try {
      work();
    } catch (...) {
      error = std::current_exception();
    }
  }).join();
  return error;
}

TEST_CASE("gpu graph: the cache is emptied while a graph is captured, by any thread") {
  const DeviceStream compute = on_gpu("compute"), side = on_gpu("side");
  const StreamGuard guard(compute);
  constexpr std::size_t kBytes = std::size_t{64} << 20;
  const auto leave_behind = [&] {
    stream_sleep(side, 10);
    MemoryBlock::take(kBytes, side, MemoryCategory::kOther);
  };
  const Tensor x = filled(2), sum = filled(0);
  CudaGraph graph;
  graph.capture(compute.cuda_queue(), [&] {
    axpby_(sum, x, {.alpha = 1, .beta = 1});
    for (const bool here : {false, true}) {
      CHECK(elsewhere(leave_behind) == nullptr);
      const std::size_t before = cuda_memory(kGpu).reserved;
      if (here) {
        empty_cuda_cache(kGpu);
      } else {
        CHECK(elsewhere([] { empty_cuda_cache(kGpu); }) == nullptr);
      }
      CHECK(cuda_memory(kGpu).reserved < before);
    }
    axpby_(sum, x, {.alpha = 1, .beta = 1});
  });
  graph.replay(compute.cuda_queue());
  CHECK(value_of(sum) == 4);
}

TEST_CASE("gpu memory: emptying the cache waits for streams that are gone") {
  constexpr std::size_t kBytes = std::size_t{64} << 20;
  empty_cuda_cache(kGpu);
  const std::size_t before = cuda_memory(kGpu).reserved;
  {
    const DeviceStream gone = on_gpu("gone");
    stream_sleep(gone, 20);
    MemoryBlock::take(kBytes, gone, MemoryCategory::kOther);
  }
  empty_cuda_cache(kGpu);
  CHECK(cuda_memory(kGpu).reserved <= before);
}

TEST_CASE("gpu graph: a capture gets the memory that other streams keep") {
  const DeviceStream compute = on_gpu("compute"), side = on_gpu("side");
  empty_cuda_cache(kGpu);
  std::size_t free = 0, total = 0;
  REQUIRE(cudaMemGetInfo(&free, &total) == cudaSuccess);
  const std::size_t most = free / 10 * 6 / 512 * 512;
  stream_sleep(side, 20);
  MemoryBlock::take(most, side, MemoryCategory::kOther);  // returned after the sleep
  CudaGraph graph;
  graph.capture(compute.cuda_queue(),
                [&] { MemoryBlock::take(most, compute, MemoryCategory::kOther); });
  CHECK(graph.memory_bytes() == most);
}

TEST_CASE("gpu graph: page-locked memory may be taken during a capture") {
  const DeviceStream compute = on_gpu("compute");
  const StreamGuard guard(compute);
  const Tensor x = filled(1);
  std::vector<MemoryBlock> blocks;
  CudaGraph graph;
  graph.capture(compute.cuda_queue(), [&] {
    axpby_(x, x, {.alpha = 2});
    // More than is cached.
    for (int i = 0; i < 3; ++i)
      blocks.push_back(
          MemoryBlock::take_pinned((i + 1) * 3'000'000, compute, MemoryCategory::kOther));
  });
  graph.replay(compute.cuda_queue());
  CHECK(value_of(x) == 2);
}

TEST_CASE("gpu graph: no room in a capture is an OutOfMemory with the figures") {
  const DeviceStream compute = on_gpu("compute");
  CudaGraph graph;
  const std::string text = thrown<OutOfMemory>([&] {
    graph.capture(compute.cuda_queue(), [&] {
      MemoryBlock::take(std::size_t{1} << 44, compute, MemoryCategory::kActivation);
    });
  });
  CHECK_THAT(text, Contains("no room on cuda:0 for 17592186044416 bytes of category activation"));
  CHECK_FALSE(graph.is_captured());
}

}  // namespace
}  // namespace tessera
