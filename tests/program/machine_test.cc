#include <catch2/catch.hpp>
#include <cstdlib>

#include "tessera/tools/program/options/output.h"
#include "tessera/tools/program/train.h"

namespace tessera::tools {
namespace {

using namespace models::runs;
using Catch::Matchers::Contains;

constexpr CpuFlags kGoodCpu = {.avx2 = true,
                               .fma = true,
                               .bmi1 = true,
                               .bmi2 = true,
                               .f16c = true,
                               .lzcnt = true,
                               .movbe = true};

TEST_CASE("a CPU without the instruction set cannot start") {
  const TrainOptions options = default_options("mlp");
  CHECK_NOTHROW(check_machine(options, {.cpu = kGoodCpu}));
  CpuFlags old = kGoodCpu;
  old.avx2 = false;
  CHECK_THROWS_AS(check_machine(options, {.cpu = old}), CannotStart);
  CHECK_THROWS_WITH(check_machine(options, {.cpu = old}), Contains("avx2"));
}

TEST_CASE("kernels that TESSERA_CPU_ISA asks for in vain cannot start") {
  const TrainOptions options = default_options("mlp");
  setenv("TESSERA_CPU_ISA", "v4", 1);
  CHECK_THROWS_AS(check_machine(options, {.cpu = kGoodCpu}), CannotStart);
  CHECK_THROWS_WITH(check_machine(options, {.cpu = kGoodCpu}), Contains("lacks avx512f"));
  setenv("TESSERA_CPU_ISA", "v3", 1);
  CHECK_NOTHROW(check_machine(options, {.cpu = kGoodCpu}));
  unsetenv("TESSERA_CPU_ISA");
}

TrainOptions on_gpus(int ranks, const std::string& launch) {
  TrainOptions options = default_options("mlp");
  options.device = "cuda";
  options.ranks = ranks;
  options.launch = launch;
  return options;
}

std::string refusal(const TrainOptions& options, const distributed::GpuFacts& gpus) {
  try {
    check_machine(options, {.cpu = kGoodCpu, .gpus = gpus});
  } catch (const CannotStart& error) {
    return error.what();
  }
  return "";
}

TEST_CASE("without a GPU that can be used, training on one cannot start, and says why") {
  CHECK(refusal(on_gpus(1, "threads"), {.problem = "no NVIDIA driver was found"}) ==
        "--device cuda: no NVIDIA driver was found");
  TrainOptions on_cpu = on_gpus(1, "threads");
  on_cpu.device = "cpu";
  CHECK(refusal(on_cpu, {.problem = "no NVIDIA driver was found"}).empty());
}

TEST_CASE("more rank processes than GPUs cannot start, and are told both numbers") {
  CHECK(refusal(on_gpus(4, "processes"), {.gpus = 2}) ==
        "--device cuda: NCCL needs a GPU for each rank, and there are 4 ranks and 2 GPUs on this "
        "host; start at most 2 ranks, or threads that share GPUs (--launch threads)");
  CHECK(refusal(on_gpus(2, "processes"), {.gpus = 2}).empty());
  CHECK(refusal(on_gpus(1, "processes"), {.gpus = 1, .has_nccl = false}).empty());
  CHECK(refusal(on_gpus(4, "threads"), {.gpus = 1}).empty());
  CHECK_THAT(refusal(on_gpus(2, "processes"), {.gpus = 2, .has_nccl = false}),
             Contains("need NCCL, which this build lacks"));
}

TEST_CASE("NCCL gets the buffers that are asked for") {
  TrainOptions options = on_gpus(2, "processes");
  CHECK(options.launch_options().nccl.buffers == distributed::NcclBuffers::kNone);
  options.nccl_buffers = "registered";
  CHECK(options.launch_options().nccl.buffers == distributed::NcclBuffers::kRegistered);
  options.nccl_buffers = "symmetric";
  CHECK(options.launch_options().nccl.buffers == distributed::NcclBuffers::kSymmetric);
}

TEST_CASE("CUDA graphs of ranks that share a GPU cannot start") {
  TrainOptions options = on_gpus(2, "threads");
  options.cuda_graphs = true;
  CHECK(refusal(options, {.gpus = 1}) ==
        "--cuda-graphs: 2 ranks that share one GPU meet on the host, which cannot be recorded; "
        "give each a GPU of its own, or train on one rank");
  CHECK(refusal(options, {.gpus = 2}).empty());
  options.ranks = 1;
  CHECK(refusal(options, {.gpus = 1}).empty());
}

}  // namespace
}  // namespace tessera::tools
