#include "tessera/distributed/launch/gpu_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <set>
#include <utility>

#include "tessera/distributed/nccl/process_group_nccl.h"
#include "tessera/tensor/cuda/memory.h"
#include "tessera/tensor/device.h"

namespace tessera::distributed {
namespace {

// Options that reach this file name their number.
int ranks_of(const LaunchOptions& options) { return options.ranks.value_or(1); }

bool is_alone(const LaunchOptions& options) { return ranks_of(options) * options.nnodes == 1; }

std::vector<int> gpus_of(const LaunchOptions& options, const GpuFacts& facts) {
  if (!options.gpus.empty()) return options.gpus;
  std::vector<int> all(static_cast<std::size_t>(std::max(0, facts.gpus)));
  std::iota(all.begin(), all.end(), 0);
  std::erase_if(all, [&facts](int gpu) { return facts.refused.contains(gpu); });
  return all;
}

int different(const std::vector<int>& gpus) {
  return static_cast<int>(std::set<int>(gpus.begin(), gpus.end()).size());
}

// What needs NCCL whatever the machine has.
bool must_be_nccl(const LaunchOptions& options) {
  if (is_alone(options)) return false;
  return options.mode != LaunchMode::kThreads || options.gpu_transport == GpuTransport::kNccl;
}

std::string gpus_text(int count) { return fmt::format("{} GPU{}", count, count == 1 ? "" : "s"); }

}  // namespace

GpuFacts facts_of_this_host(const LaunchOptions& options) {
  // The driver reads it when it is first called. What the user has set stays.
  if (needs_eager_kernels(options, has_nccl())) setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  GpuFacts facts{.gpus = cuda_device_count(), .has_nccl = has_nccl(), .problem = cuda_problem()};
  for (int gpu = 0; gpu < facts.gpus && facts.problem.empty(); ++gpu) {
    std::string problem = cuda_problem(gpu);
    if (!problem.empty()) facts.refused[gpu] = std::move(problem);
  }
  return facts;
}

bool needs_eager_kernels(const LaunchOptions& options, bool has_nccl) {
  return options.device.is_cuda() && options.mode == LaunchMode::kThreads && !is_alone(options) &&
         has_nccl && options.gpu_transport != GpuTransport::kLocal;
}

std::string gpu_shortage(const LaunchOptions& options, const GpuFacts& facts) {
  if (!options.device.is_cuda()) return {};
  if (!facts.problem.empty()) return facts.problem;
  for (const int gpu : options.gpus) {
    if (gpu < 0 || gpu >= facts.gpus)
      return fmt::format("cuda:{} was asked for, and this host has {}; name those that exist", gpu,
                         gpus_text(facts.gpus));
    if (const auto found = facts.refused.find(gpu); found != facts.refused.end())
      return found->second;
  }
  const bool threads = options.mode == LaunchMode::kThreads;
  if (!threads && options.gpu_transport == GpuTransport::kLocal)
    return "processes do not read each other's GPU memory; launch threads";
  if (!must_be_nccl(options)) return {};
  if (!facts.has_nccl)
    return "ranks on GPUs that are processes need NCCL, which this build lacks; launch threads "
           "(--launch threads)";
  const int gpus = different(gpus_of(options, facts));
  const int ranks = ranks_of(options);
  if (ranks <= gpus) return {};
  return fmt::format(
      "NCCL needs a GPU for each rank, and there are {} ranks and {}{} on this host; start at most "
      "{} rank{}{}",
      ranks, gpus_text(gpus), facts.refused.empty() ? "" : " that can be used", gpus,
      gpus == 1 ? "" : "s",
      options.nnodes > 1 ? " on each" : ", or threads that share GPUs (--launch threads)");
}

LaunchOptions with_gpus_of_launcher(const LaunchOptions& options, const GpuFacts& facts) {
  LaunchOptions each = options;
  if (facts.gpus != 1) return each;
  each.nnodes *= ranks_of(options);
  each.ranks = 1;
  return each;
}

GpuPlan plan_gpus(const LaunchOptions& options, const GpuFacts& facts) {
  GpuPlan plan{.gpus = gpus_of(options, facts), .by_nccl = must_be_nccl(options)};
  const bool may_choose = options.gpu_transport == GpuTransport::kAuto && !is_alone(options);
  if (may_choose && facts.has_nccl && ranks_of(options) <= different(plan.gpus))
    plan.by_nccl = true;
  if (!plan.by_nccl) return plan;
  std::set<int> seen;  // a GPU that is named twice would be two ranks'
  std::erase_if(plan.gpus, [&seen](int gpu) { return !seen.insert(gpu).second; });
  return plan;
}

}  // namespace tessera::distributed
