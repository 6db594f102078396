// Plans of the real cuDNN for described GPUs, which need not be present: shows without a GPU that
// cuDNN accepts the graphs of attention and convolution, but not their results.

#include <catch2/catch.hpp>
#include <cstdint>
#include <memory>
#include <set>
#include <string>

#include "tessera/tensor/kernels/cuda/cudnn/cudnn_graphs.h"
#include "tessera/tensor/kernels/cuda/cudnn/cudnn_slices.h"

// Defined in planning_driver.c. The reference makes the linker keep that library, which cuDNN then
// finds loaded.
extern "C" int cuInit();

namespace tessera::cuda {
namespace {

// cuDNN's descriptions of an H100 and an A100.
std::string described(int capability, int processors, int shared_bytes) {
  return R"({"maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64],
             "regsPerBlock": 65536, "smClockRateKHz": 1980000, "memClockRateKHz": 2619000,
             "l2CacheSize": 52428800, "warpSize": 32, "maxSharedMemoryPerBlock": 49152,
             "reservedSharedMemoryPerBlock": 1024, "maxRegistersPerSM": 65536, "pciDeviceId": 0,
             "maxCtasPerSM": 32, "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048,
             "isTccDriver": 0, "supportCoopLaunch": 1, "driverVer": 13000, "cudaDeviceId": 0,
             "totalGlobalMem": 42000000000, "deviceName": "described", "deviceVer": )" +
         std::to_string(capability) + ", \"multiProcessorCount\": " + std::to_string(processors) +
         ", \"maxSharedMemoryPerBlockOptin\": " + std::to_string(shared_bytes) +
         ", \"maxSharedMemoryPerSM\": " + std::to_string(shared_bytes + 1024) + "}";
}

std::string h100() { return described(900, 132, 232448); }
std::string a100() { return described(800, 108, 166912); }

AttentionProblem attention(bool backward, CausalKind causal, std::int64_t length,
                           std::int64_t dim) {
  AttentionProblem p{.backward = backward,
                     .causal = causal,
                     .batch = 2,
                     .heads = 8,
                     .kv_heads = 8,
                     .queries = length,
                     .keys = causal == CausalKind::kBottomRight ? length + 40 : length,
                     .dim = dim,
                     .value_dim = dim};
  return p;
}

// The layout that projections give: [batch, length, heads, dim].
AttentionProblem with_strides(AttentionProblem p) {
  const auto strides = [](std::int64_t heads, std::int64_t length, std::int64_t dim) {
    return AttentionProblem::Strides{length * heads * dim, dim, heads * dim, 1};
  };
  p.q = p.dq = strides(p.heads, p.queries, p.dim);
  p.out = p.dout = strides(p.heads, p.queries, p.value_dim);
  p.k = p.dk = strides(p.kv_heads, p.keys, p.dim);
  p.v = p.dv = strides(p.kv_heads, p.keys, p.value_dim);
  return p;
}

std::unique_ptr<CudnnPlan> plan(const AttentionProblem& p, const std::string& gpu) {
  CudnnGraph graph("attention");
  add_attention(graph, p);
  return graph.plan({.handle = nullptr, .properties = gpu}, {});
}

}  // namespace

TEST_CASE("cuDNN has plans with a fixed order of sums for attention") {
  REQUIRE(cuInit() != 0);  // no GPU is used
  for (const bool backward : {false, true}) {
    for (const CausalKind causal :
         {CausalKind::kNone, CausalKind::kTopLeft, CausalKind::kBottomRight}) {
      INFO((backward ? "backward" : "forward") << ", causal kind " << static_cast<int>(causal));
      AttentionProblem p = attention(backward, causal, 1000, 64);
      p.fixed_order = true;
      CHECK(plan(with_strides(p), h100()) != nullptr);
      p.kv_heads = 2;
      p.dtype = DType::kF16;
      CHECK(plan(with_strides(p), h100()) != nullptr);
    }
    CHECK(plan(with_strides(attention(backward, CausalKind::kTopLeft, 256, 128)), h100()) !=
          nullptr);
    CHECK(plan(with_strides(attention(backward, CausalKind::kTopLeft, 256, 40)), a100()) !=
          nullptr);
  }
}

TEST_CASE(
    "the derivative of attention in a fixed order needs two bytes of scratch for each pair, as "
    "slices "
    "assume") {
  AttentionProblem p = with_strides(attention(true, CausalKind::kTopLeft, 1024, 64));
  p.fixed_order = true;
  const std::unique_ptr<CudnnPlan> made = plan(p, h100());
  REQUIRE(made != nullptr);
  const auto pairs = static_cast<std::size_t>(p.batch * p.heads * p.queries * p.keys);
  CHECK(made->workspace_bytes() >= 2 * pairs);
  CHECK(made->workspace_bytes() <= 2 * pairs + (std::size_t{1} << 20));
}

TEST_CASE("the derivative of attention in any order needs next to no scratch") {
  for (const std::int64_t dim : {64, 128}) {
    const AttentionProblem p = with_strides(attention(true, CausalKind::kTopLeft, 1024, dim));
    const std::unique_ptr<CudnnPlan> made = plan(p, h100());
    REQUIRE(made != nullptr);
    CHECK(made->workspace_bytes() <= (std::size_t{1} << 20));
  }
}

TEST_CASE("plans that round operands for tensor cores are refused where they are not allowed") {
  const AttentionProblem p = with_strides(attention(false, CausalKind::kNone, 256, 64));
  CudnnGraph graph("attention");
  add_attention(graph, p);
  const CudnnTarget target{.handle = nullptr, .properties = h100()};
  CHECK(graph.plan(target, {.tensor_cores = false}) == nullptr);
}

TEST_CASE("every plan that cuDNN offers for attention has its own name, ours is among them") {
  for (const bool backward : {false, true}) {
    INFO((backward ? "backward" : "forward"));
    const AttentionProblem p = with_strides(attention(backward, CausalKind::kTopLeft, 1024, 64));
    CudnnGraph graph("attention");
    add_attention(graph, p);
    std::set<std::string> names;
    std::size_t plans = 0;
    for (const auto& offered : graph.offered_plans({.handle = nullptr, .properties = h100()})) {
      CHECK(offered->name().find("engine ") == 0);
      names.insert(offered->name());
      ++plans;
    }
    CHECK(plans > 1);
    CHECK(names.size() == plans);
    CHECK(names.contains(plan(p, h100())->name()));
  }
}

TEST_CASE("cuDNN offers no plan for what its flash kernels do not take") {
  AttentionProblem p = with_strides(attention(false, CausalKind::kTopLeft, 1024, 64));
  p.dtype = DType::kF64;
  CudnnGraph graph("attention");
  add_attention(graph, p);
  CHECK(graph.offered_plans({.handle = nullptr, .properties = h100()}).empty());
}

TEST_CASE("cuDNN has plans with a fixed order of sums for convolution") {
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16}) {
    for (const CudnnConvKind kind :
         {CudnnConvKind::kForward, CudnnConvKind::kBackwardInput, CudnnConvKind::kBackwardWeight}) {
      for (const std::int64_t groups : {1, 4}) {
        INFO(dtype_name(dtype) << ", kind " << static_cast<int>(kind) << ", groups " << groups);
        ConvProblem p{.kind = kind,
                      .dtype = dtype,
                      .images = 8,
                      .groups = groups,
                      .in_channels = 8,
                      .out_channels = 16,
                      .in = {32, 32},
                      .out = {32, 32},
                      .kernel = {3, 3},
                      .padding = {1, 1}};
        p.x = {groups * 8 * 1024, 1024, 32, 1};
        p.y = {groups * 16 * 1024, 1024, 32, 1};
        p.beta = kind == CudnnConvKind::kBackwardWeight ? 1 : 0;
        CudnnGraph graph("conv");
        add_convolution(graph, p);
        CHECK(graph.plan({.handle = nullptr, .properties = h100()}, conv_numerics(p)) != nullptr);
      }
    }
  }
}

}  // namespace tessera::cuda
