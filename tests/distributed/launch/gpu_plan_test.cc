// Which GPU each rank gets, what carries its tensors, and what is refused: with made-up machines.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>

#include "tessera/distributed/launch/gpu_plan.h"

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

TEST_CASE("gpu plan: a rank that its launcher shows one GPU takes it") {
  const LaunchOptions four = on_gpus(4, LaunchMode::kAuto);
  CHECK_THAT(gpu_shortage(four, {.gpus = 1}), Contains("4 ranks and 1 GPU"));
  const LaunchOptions each = with_gpus_of_launcher(four, {.gpus = 1});
  CHECK(gpu_shortage(each, {.gpus = 1}).empty());
  CHECK(plan_gpus(each, {.gpus = 1}).by_nccl);
  CHECK(plan_gpus(each, {.gpus = 1}).gpus == std::vector<int>{0});
  CHECK_THAT(gpu_shortage(with_gpus_of_launcher(four, {.gpus = 2}), {.gpus = 2}),
             Contains("4 ranks and 2 GPUs"));
}

TEST_CASE("gpu plan: a GPU that cannot be used is left out, and refused where it is named") {
  const GpuFacts mixed{.gpus = 3, .refused = {{1, "cuda:1: T4 is too old"}}};
  LaunchOptions options = on_gpus(2, LaunchMode::kProcesses);
  CHECK(gpu_shortage(options, mixed).empty());
  CHECK(plan_gpus(options, mixed).gpus == std::vector<int>{0, 2});
  options.gpus = {0, 2};
  CHECK(gpu_shortage(options, mixed).empty());
  options.gpus = {0, 1};
  CHECK(gpu_shortage(options, mixed) == "cuda:1: T4 is too old");
  CHECK_THAT(gpu_shortage(on_gpus(3, LaunchMode::kProcesses), mixed),
             Contains("3 ranks and 2 GPUs that can be used on this host; start at most 2 ranks"));
  CHECK_FALSE(plan_gpus(on_gpus(3, LaunchMode::kThreads), mixed).by_nccl);
}

TEST_CASE("gpu plan: kernels are loaded early where rank threads may be connected by NCCL") {
  CHECK(needs_eager_kernels(on_gpus(2, LaunchMode::kThreads), true));
  CHECK_FALSE(needs_eager_kernels(on_gpus(2, LaunchMode::kThreads), false));
  CHECK_FALSE(needs_eager_kernels(on_gpus(1, LaunchMode::kThreads), true));
  CHECK_FALSE(needs_eager_kernels(on_gpus(2, LaunchMode::kProcesses), true));
  CHECK_FALSE(needs_eager_kernels({.ranks = 2, .mode = LaunchMode::kThreads}, true));
  LaunchOptions options = on_gpus(2, LaunchMode::kThreads);
  options.gpu_transport = GpuTransport::kLocal;
  CHECK_FALSE(needs_eager_kernels(options, true));
}

TEST_CASE("gpu plan: the driver is told how to load kernels, unless the user has") {
  const char* kName = "CUDA_MODULE_LOADING";
  const auto told = [&] {
    const char* value = std::getenv(kName);
    return std::string(value == nullptr ? "" : value);
  };
  unsetenv(kName);
  facts_of_this_host(on_gpus(2, LaunchMode::kProcesses));
  CHECK(told().empty());
  facts_of_this_host(on_gpus(2, LaunchMode::kThreads));
  CHECK(told() == (has_nccl() ? "EAGER" : ""));
  setenv(kName, "LAZY", 1);
  facts_of_this_host(on_gpus(2, LaunchMode::kThreads));
  CHECK(told() == "LAZY");
  unsetenv(kName);
}

}  // namespace
}  // namespace tessera::distributed
