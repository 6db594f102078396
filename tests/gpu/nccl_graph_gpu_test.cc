// NCCL collectives that are captured into a CUDA graph, replayed with it, and fail in it.
#include <cuda_runtime.h>

#include <catch2/catch.hpp>
#include <stdexcept>
#include <string>

#include "tessera/tensor/cuda/graph.h"
#include "tessera/tensor/cuda/queue.h"
#include "tessera/tests/distributed/nccl/nccl_support.h"
#include "tessera/tests/support/throws.h"

namespace tessera::testing {
namespace {

void ok(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

// Replays the graph of one collective three times, after an eager call that connects.
void replay(const NcclGroupPtr& group) {
  const Tensor x = on_gpu(*group, 1000, 1);
  const DeviceStream stream = DeviceStream::create(gpu_of(*group), StreamKind::kQueued, "captured");
  current_stream(gpu_of(*group)).synchronize();
  const StreamGuard guard(stream);
  ok(cudaSetDevice(gpu_of(*group).index));
  all_reduce(*group, std::vector{x}).synchronize();  // 2
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t runs = nullptr;
  ok(cudaStreamBeginCapture(stream.cuda_handle(), cudaStreamCaptureModeThreadLocal));
  all_reduce(*group, std::vector{x});
  ok(cudaStreamEndCapture(stream.cuda_handle(), &graph));
  ok(cudaGraphInstantiate(&runs, graph, 0));
  for (int round = 0; round < 3; ++round) ok(cudaGraphLaunch(runs, stream.cuda_handle()));
  stream.synchronize();
  const float last = host(x)[999];
  ok(cudaGraphExecDestroy(runs));
  ok(cudaGraphDestroy(graph));
  if (last != 16) throw std::runtime_error("the sum is " + std::to_string(last));
}

// A rank with a graph of one all_reduce, captured and replayed once.
struct Captured {
  explicit Captured(const NcclGroupPtr& group)
      : x(on_gpu(*group, 10, 1)),
        stream(DeviceStream::create(gpu_of(*group), StreamKind::kQueued, "captured")) {
    current_stream(gpu_of(*group)).synchronize();
    const StreamGuard guard(stream);
    const auto call = [&] {
      all_reduce(*group, std::vector{x}, distributed::ReduceOp::kSum, "layers.1");
    };
    call();  // connects
    graph.capture(stream.cuda_queue(), call);
    replay();
    stream.synchronize();
  }
  void replay() { graph.replay(stream.cuda_queue()); }

  Tensor x;
  DeviceStream stream;
  cuda::CudaGraph graph;
};

// Waits, up to a minute, until the counter is above 0.
void wait_for(const std::atomic<int>& counter) {
  for (int i = 0; counter == 0 && i < 30000; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

struct Count {
  std::atomic<int>& counter;
  ~Count() { ++counter; }
};

// Rank 0 issues `replays` of a graph that rank 1 does not replay.
void check_left_out(int replays) {
  CAPTURE(replays);
  const auto start = std::chrono::steady_clock::now();
  std::atomic<int> over = 0;
  std::string again;
  const auto errors =
      run_nccl({.size = 2, .timeout = std::chrono::seconds(3)}, [&](const NcclGroupPtr& group) {
        Captured captured(group);
        if (group->rank() == 1) return wait_for(over);
        const Count count{over};
        for (int i = 0; i < replays; ++i) captured.replay();
        try {
          captured.stream.synchronize();
        } catch (const TimeoutError&) {
          again = thrown<distributed::CollectiveAborted>([&] { captured.replay(); });
          throw;
        }
      });
  CHECK(seconds_since(start) < 40);
  CHECK(is_a<TimeoutError>(errors[0]));
  CHECK_THAT(text_of(errors[0]),
             Catch::Contains("all_reduce #2 (layers.1) of group \"g\" or another collective of the "
                             "same CUDA graph does not end: the replay timed out after 3 s"));
  CHECK_THAT(again, Catch::Contains("was aborted: rank 0 failed: "));
  CHECK(errors[1] == nullptr);
}

}  // namespace

TEST_CASE("nccl: a replay that a rank leaves out ends at the deadline, for good", "[gpu]") {
  check_left_out(1);
}

// The first replay hangs, and the host has issued the last one before the watchdog checks.
TEST_CASE("nccl: replays ahead of one that hangs do not hide it", "[gpu]") { check_left_out(5); }

TEST_CASE("nccl: a replay that nobody has looked at yet fails with its group", "[gpu]") {
  std::atomic<int> over = 0;
  const auto errors = run_nccl({.size = 2}, [&](const NcclGroupPtr& group) {
    Captured captured(group);
    if (group->rank() == 1) return wait_for(over);
    const Count count{over};
    captured.replay();
    group->abort("the dog ate it");
    captured.stream.synchronize();
  });
  CHECK(is_a<distributed::CollectiveAborted>(errors[0]));
  CHECK_THAT(text_of(errors[0]), Catch::Contains("rank 0 failed: the dog ate it"));
  CHECK(errors[1] == nullptr);
}

TEST_CASE("nccl: who aborts in a capture of its collectives gets out of it", "[gpu]") {
  const auto errors = run_nccl({.size = 2}, [&](const NcclGroupPtr& group) {
    const Captured before(group);
    const Tensor x = on_gpu(*group, 10, 1);
    const DeviceStream stream = DeviceStream::create(gpu_of(*group), StreamKind::kQueued, "aborts");
    current_stream(gpu_of(*group)).synchronize();
    const StreamGuard guard(stream);
    cuda::CudaGraph graph;
    graph.capture(stream.cuda_queue(), [&] {
      all_reduce(*group, std::vector{x});
      group->abort("the dog ate it");
      all_reduce(*group, std::vector{x});
    });
  });
  for (const std::exception_ptr& error : errors) {
    CHECK(is_a<distributed::CollectiveAborted>(error));
    CHECK_THAT(text_of(error), Catch::Contains("failed: the dog ate it"));
  }
}

TEST_CASE("nccl: a graph that outlives the group in it is refused, and ends with it", "[gpu]") {
  const auto start = std::chrono::steady_clock::now();
  const auto store = std::make_shared<distributed::MemoryStore>();
  std::string refused[2];
  const auto errors = run_nccl({.size = 2}, [&](const NcclGroupPtr& outer) {
    const int rank = outer->rank();
    NcclGroupPtr group = distributed::make_nccl_group(
        "h", {.rank = rank, .size = 2, .store = store, .device = rank});
    Captured captured(group);
    captured.replay();
    group.reset();
    refused[rank] = thrown<distributed::CollectiveAborted>([&] { captured.replay(); });
  });
  CHECK(seconds_since(start) < 20);
  for (const std::exception_ptr& error : errors) CHECK(text_of(error) == "");
  for (const std::string& text : refused)
    CHECK_THAT(text, Catch::Contains("is part of a CUDA graph, and its group has gone"));
}

TEST_CASE("nccl: a rank that fails ends the others' replays, with its reason", "[gpu]") {
  const auto start = std::chrono::steady_clock::now();
  const auto errors = run_nccl({.size = 2}, [&](const NcclGroupPtr& group) {
    Captured captured(group);
    if (group->rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      return group->abort("the dog ate it");
    }
    captured.replay();
    try {
      captured.stream.synchronize();
    } catch (const distributed::CollectiveAborted&) {
      captured.replay();  // refused
    }
  });
  CHECK(seconds_since(start) < 20);
  CHECK(is_a<distributed::CollectiveAborted>(errors[0]));
  CHECK_THAT(text_of(errors[0]), Catch::Contains("rank 1 failed: the dog ate it"));
  CHECK(errors[1] == nullptr);
}

TEST_CASE("nccl: replays that follow each other", "[gpu]") {
  const auto errors = run_nccl({.size = 2}, [&](const NcclGroupPtr& group) {
    Captured captured(group);
    for (int i = 0; i < 5; ++i) captured.replay();
    captured.stream.synchronize();
    if (host(captured.x)[9] != 128) throw std::runtime_error("wrong sum");
  });
  for (const std::exception_ptr& error : errors) CHECK(text_of(error) == "");
}

TEST_CASE("nccl: a captured collective runs again with its graph", "[gpu]") {
  for (const std::exception_ptr& error : run_nccl({.size = 2}, &replay))
    CHECK(text_of(error) == "");
}

}  // namespace tessera::testing
