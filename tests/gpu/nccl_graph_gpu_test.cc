// Collectives by NCCL that become part of a CUDA graph, and run again with it.
#include <cuda_runtime.h>

#include <catch2/catch.hpp>

#include "tessera/tests/distributed/nccl_support.h"

namespace tessera::testing {
namespace {

void ok(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

// Three times the graph of one collective, after the call outside of it that connects.
void replay(const NcclGroupPtr& group) {
  const Tensor x = on_gpu(*group, 1000, 1);
  const Stream stream = Stream::create(gpu_of(*group), StreamKind::kQueued, "captured");
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

}  // namespace

TEST_CASE("nccl: a captured collective runs again with its graph", "[gpu]") {
  for (const std::exception_ptr& error : run_nccl({.size = 2}, &replay))
    CHECK(text_of(error) == "");
}

}  // namespace tessera::testing
