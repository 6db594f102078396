#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "tessera/tensor/check.h"
#include "tessera/tensor/kernels/channel_norm.h"
#include "tessera/tensor/kernels/cpu/entry.h"
#include "tessera/tensor/kernels/cuda/cublas/matmul_parts.h"
#include "tessera/tensor/kernels/cuda/cublas/matmul_plan.h"
#include "tessera/tensor/kernels/indexing.h"
#include "tessera/tensor/kernels/matmul.h"
#include "tessera/tensor/kernels/order.h"
#include "tessera/tensor/kernels/plans/chunks.h"
#include "tessera/tensor/kernels/plans/row_scratch.h"
#include "tessera/tensor/kernels/plans/scatter_plan.h"
#include "tessera/tensor/kernels/plans/sort_plan.h"
#include "tessera/tensor/kernels/table.h"
#include "tessera/tensor/kernels/threads.h"
#include "tessera/tensor/rank_context.h"

namespace tessera {
namespace {

// The features that a CPU lacks, as text; empty: none.
class Missing {
 public:
  Missing& need(bool present, const char* name) {
    if (!present) names_ += (names_.empty() ? "" : ", ") + std::string(name);
    return *this;
  }
  const std::string& names() const { return names_; }

 private:
  std::string names_;
};

std::string missing_for_v3(const CpuFlags& flags) {
  return Missing()
      .need(flags.avx2, "avx2")
      .need(flags.fma, "fma")
      .need(flags.bmi1, "bmi1")
      .need(flags.bmi2, "bmi2")
      .need(flags.f16c, "f16c")
      .need(flags.lzcnt, "lzcnt")
      .need(flags.movbe, "movbe")
      .names();
}

std::string missing_for_v4(const CpuFlags& flags) {
  return Missing()
      .need(flags.avx512f, "avx512f")
      .need(flags.avx512bw, "avx512bw")
      .need(flags.avx512cd, "avx512cd")
      .need(flags.avx512dq, "avx512dq")
      .need(flags.avx512vl, "avx512vl")
      .names();
}

}  // namespace

const char* cpu_isa_name(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kX86V3:
      return "x86-64-v3";
    case CpuIsa::kX86V4:
      return "x86-64-v4";
  }
  return "?";
}

CpuFlags detect_cpu_flags() {
  __builtin_cpu_init();
  return {.avx2 = __builtin_cpu_supports("avx2") != 0,
          .fma = __builtin_cpu_supports("fma") != 0,
          .bmi1 = __builtin_cpu_supports("bmi") != 0,
          .bmi2 = __builtin_cpu_supports("bmi2") != 0,
          .f16c = __builtin_cpu_supports("f16c") != 0,
          .lzcnt = __builtin_cpu_supports("lzcnt") != 0,
          .movbe = __builtin_cpu_supports("movbe") != 0,
          .avx512f = __builtin_cpu_supports("avx512f") != 0,
          .avx512bw = __builtin_cpu_supports("avx512bw") != 0,
          .avx512cd = __builtin_cpu_supports("avx512cd") != 0,
          .avx512dq = __builtin_cpu_supports("avx512dq") != 0,
          .avx512vl = __builtin_cpu_supports("avx512vl") != 0};
}

std::string requested_cpu_isa() {
  const char* value = std::getenv("TESSERA_CPU_ISA");
  return value == nullptr ? "" : value;
}

CpuIsa choose_cpu_isa(const CpuFlags& flags, const std::string& requested) {
  TESSERA_CHECK_AS(DeviceError, requested.empty() || requested == "v3" || requested == "v4",
                   "cpu_table", "TESSERA_CPU_ISA is \"{}\"; say v3 or v4, or unset it", requested);
  const std::string missing = missing_for_v3(flags);
  TESSERA_CHECK_AS(DeviceError, missing.empty(), "cpu_table",
                   "this CPU lacks {}; the kernels need {}, which x86 CPUs since 2013-2015 have",
                   missing, cpu_isa_name(CpuIsa::kX86V3));
  const std::string missing_too = missing_for_v4(flags);
  TESSERA_CHECK_AS(DeviceError, requested != "v4" || missing_too.empty(), "cpu_table",
                   "TESSERA_CPU_ISA is \"v4\", but this CPU lacks {}; say v3, or unset it",
                   missing_too);
  return missing_too.empty() && requested != "v3" ? CpuIsa::kX86V4 : CpuIsa::kX86V3;
}

CpuIsa cpu_isa() {
  static const CpuIsa isa = choose_cpu_isa(detect_cpu_flags(), requested_cpu_isa());
  return isa;
}

const CpuTable& cpu_table() {
  static const CpuTable& table = [&]() -> const CpuTable& {
    switch (cpu_isa()) {
      case CpuIsa::kX86V3:
        return *tessera_cpu_kernels_v3(run_pieces);
      case CpuIsa::kX86V4:
        return *tessera_cpu_kernels_v4(run_pieces);
    }
    __builtin_unreachable();
  }();
  return table;
}

std::size_t MatmulKernel::workspace(const Args& args) {
  const MatmulTiles tiles = args.tiles();
  const std::int64_t count = args.batch() * tiles.rows(args.m()) * tiles.columns(args.n());
  const std::int64_t at_once = tiles_at_once(args, tiles);
  const std::int64_t threads =
      std::min<std::int64_t>((count + at_once - 1) / at_once, current_rank_context()->threads());
  return scratch(args, tiles).total() * static_cast<std::size_t>(threads);
}

std::size_t MatmulKernel::cuda_workspace(const Args& args) {
  const auto bytes = [](const Args& part) {
    return cuda::matmul_scratch(part, cuda::plan_matmul(part)).total();
  };
  std::size_t most = 0;
  const std::vector<Args> parts = cuda::matmul_parts(args);
  for (const Args& part : parts) most = std::max(most, bytes(part));
  return parts.empty() ? bytes(args) : most;
}

std::size_t ScatterKernel::workspace(const Args& a) {
  const std::size_t bytes = a.buffer_bytes();
  return bytes == 0 ? 0 : row_scratch(a.pieces(), a.piece() * a.walk.count(), bytes);
}

// Scratch of kernels on a GPU. In every build, because a launch selects it by the device's type.
std::size_t ScatterKernel::cuda_workspace(const Args& a) {
  const ScatterPlan plan = scatter_plan(a.walk);
  return plan.sorted ? plan.radix().bytes() : 0;
}

std::size_t ArgsortKernel::cuda_workspace(const Args& a) {
  const ArgsortPlan plan = argsort_plan(a);
  return plan.in_blocks ? 0 : plan.radix().bytes();
}

std::size_t ChannelStatisticsKernel::cuda_workspace(const Args& a) {
  return ChannelChunks(a.shape).bytes(a.shape);
}
std::size_t ChannelSumsKernel::cuda_workspace(const Args& a) {
  return ChannelChunks(a.shape).bytes(a.shape);
}

}  // namespace tessera
