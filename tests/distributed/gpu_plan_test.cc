// Which GPU each rank gets, what carries its tensors, and what is refused: with made-up machines.
#include <catch2/catch.hpp>

#include "tessera/distributed/gpu_plan.h"

namespace tessera::distributed {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::EndsWith;

LaunchOptions on_gpus(int ranks, LaunchMode mode) {
  return {.ranks = ranks, .mode = mode, .device = {DeviceType::kCuda, 0}};
}

TEST_CASE("gpu plan: NCCL for processes, and for threads that have a GPU each") {
  const GpuFacts two{.gpus = 2};
  CHECK(plan_gpus(on_gpus(2, LaunchMode::kProcesses), two).by_nccl);
  CHECK(plan_gpus(on_gpus(2, LaunchMode::kThreads), two).by_nccl);
  CHECK_FALSE(plan_gpus(on_gpus(3, LaunchMode::kThreads), two).by_nccl);
  CHECK_FALSE(plan_gpus(on_gpus(1, LaunchMode::kThreads), two).by_nccl);
  CHECK_FALSE(plan_gpus(on_gpus(1, LaunchMode::kProcesses), two).by_nccl);
  CHECK_FALSE(plan_gpus(on_gpus(2, LaunchMode::kThreads), {.gpus = 2, .has_nccl = false}).by_nccl);
  LaunchOptions options = on_gpus(2, LaunchMode::kThreads);
  options.gpu_transport = GpuTransport::kLocal;
  CHECK_FALSE(plan_gpus(options, two).by_nccl);
  options = on_gpus(1, LaunchMode::kProcesses);
  options.nnodes = 2;
  CHECK(plan_gpus(options, two).by_nccl);
}

TEST_CASE("gpu plan: GPUs in turn, or those that were named") {
  LaunchOptions options = on_gpus(2, LaunchMode::kThreads);
  CHECK(plan_gpus(options, {.gpus = 3}).gpus == std::vector<int>{0, 1, 2});
  options.gpus = {2, 2};
  CHECK(plan_gpus(options, {.gpus = 3}).gpus == std::vector<int>{2, 2});
  CHECK_FALSE(plan_gpus(options, {.gpus = 3}).by_nccl);
  options.gpus = {2, 0, 2};
  CHECK(plan_gpus(options, {.gpus = 3}).gpus == std::vector<int>{2, 0});
}

TEST_CASE("gpu plan: what cannot start, with both numbers and what to do") {
  const auto text = [](const LaunchOptions& options, const GpuFacts& facts) {
    return gpu_shortage(options, facts);
  };
  const LaunchOptions four = on_gpus(4, LaunchMode::kProcesses);
  CHECK(text(four, {.gpus = 2}) ==
        "NCCL needs a GPU for each rank, and there are 4 ranks and 2 GPUs on this host; start at "
        "most 2 ranks, or threads that share GPUs (--launch threads)");
  CHECK(text(four, {.gpus = 4}).empty());
  CHECK(text({.ranks = 4}, {.gpus = 0, .problem = "no driver"}).empty());
  CHECK(text(four, {.gpus = 4, .problem = "no driver"}) == "no driver");
  LaunchOptions options = four;
  options.nnodes = 2;
  CHECK_THAT(text(options, {.gpus = 1}),
             EndsWith("1 GPU on this host; start at most 1 rank on each"));
  options = on_gpus(2, LaunchMode::kThreads);
  options.gpus = {0, 5};
  CHECK(text(options, {.gpus = 2}) ==
        "cuda:5 was asked for, and this host has 2 GPUs; name those that exist");
  options = on_gpus(2, LaunchMode::kProcesses);
  options.gpus = {1};
  CHECK_THAT(text(options, {.gpus = 4}), Contains("2 ranks and 1 GPU"));
  options.gpu_transport = GpuTransport::kLocal;
  CHECK_THAT(text(options, {.gpus = 4}), Contains("do not read each other's GPU memory"));
  CHECK_THAT(text(four, {.gpus = 4, .has_nccl = false}),
             Contains("need NCCL, which this build lacks"));
}

}  // namespace
}  // namespace tessera::distributed
