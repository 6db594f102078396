#include <catch2/catch.hpp>
#include <cstdlib>

#include "tessera/tools/program/cannot_start.h"
#include "tessera/tools/program/train.h"

namespace tessera::tools {
namespace {

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

TEST_CASE("training on a GPU cannot start, with or without one") {
  TrainOptions options = default_options("mlp");
  options.device = "cuda";
  CHECK_THROWS_WITH(check_machine(options, {.cpu = kGoodCpu}), Contains("no CUDA GPU was found"));
  CHECK_THROWS_WITH(check_machine(options, {.cpu = kGoodCpu, .cuda_devices = 1}),
                    Contains("1 GPU found, but"));
  CHECK_THROWS_WITH(check_machine(options, {.cpu = kGoodCpu, .cuda_devices = 2}),
                    Contains("2 GPUs found, but"));
}

}  // namespace
}  // namespace tessera::tools
