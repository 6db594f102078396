#include "tessera/tensor/kernels/cuda/cudnn/cudnn_kernels.h"

#include <cuda_runtime_api.h>

#include <atomic>
#include <memory>
#include <utility>

#include "tessera/tensor/cuda/check_cuda.h"
#include "tessera/tensor/kernels/cuda/cudnn/cudnn_attention_launch.h"
#include "tessera/tensor/kernels/cuda/cudnn/cudnn_graph.h"
#include "tessera/tensor/kernels/cuda/cudnn/cudnn_graphs.h"
#include "tessera/tensor/kernels/cuda/cudnn/cudnn_plan_cache.h"
#include "tessera/tensor/kernels/cuda/cudnn/cudnn_slices.h"

namespace tessera::cuda {
namespace {

struct AttentionPlan {
  AttentionProblem slice;  // computed by one execution
  AttentionIds ids;
  std::unique_ptr<CudnnPlan> plan;

  std::size_t bytes() const { return attention_scratch_bytes(slice) + plan->workspace_bytes(); }
};

std::atomic<std::int64_t> slice_bytes = kSliceBytes;

AttentionProblem slice_of(AttentionProblem p) {
  if (!p.backward || !p.fixed_order) return p;
  const AttentionSlices slices = attention_slices(p.batch, p.kv_heads, p.heads / p.kv_heads,
                                                  p.queries * p.keys, slice_bytes.load());
  p.heads = p.heads / p.kv_heads * slices.kv_heads;
  p.batch = slices.batch;
  p.kv_heads = slices.kv_heads;
  return p;
}

std::unique_ptr<AttentionPlan> make_plan(const AttentionProblem& problem, const char* where) {
  CudnnGraph graph(where);
  const AttentionIds ids = add_attention(graph, problem);
  std::unique_ptr<CudnnPlan> plan =
      graph.plan({.handle = cudnn_handle(nullptr, where), .properties = {}}, {});
  if (plan == nullptr) return nullptr;
  return std::make_unique<AttentionPlan>(
      AttentionPlan{.slice = problem, .ids = ids, .plan = std::move(plan)});
}

// The plan for these operands on the current GPU; null if cuDNN has none.
template <class Args>
AttentionPlan* plan_of(const Args& a, const char* where) {
  static auto* plans = new PlanCache<AttentionProblem, AttentionPlan>;
  const AttentionProblem slice = slice_of(attention_problem(a, current_device(where)));
  return plans->get(slice, [&] { return make_plan(slice, where); });
}

template <class Args>
std::optional<std::size_t> bytes_of(const Args& a, const char* where) {
  const AttentionPlan* plan = plan_of(a, where);
  if (plan == nullptr) return {};
  return plan->bytes();
}

template <class Args>
std::optional<CudnnAttentionPlan> facts_of(const Args& a, const char* where) {
  const AttentionPlan* plan = plan_of(a, where);
  if (plan == nullptr) return {};
  const AttentionProblem whole = attention_problem(a, plan->slice.device);
  return CudnnAttentionPlan{
      .name = attention_plan_name(plan->slice, *plan->plan),
      .executions = whole.batch / plan->slice.batch * (whole.kv_heads / plan->slice.kv_heads)};
}

template <class Args>
bool launch(CudaStream stream, const Args& a, Workspace scratch, const char* where) {
  AttentionPlan* const found = plan_of(a, where);
  if (found == nullptr) return false;
  const AttentionProblem& slice = found->slice;
  CudnnPlan& plan = *found->plan;
  const AttentionProblem whole = attention_problem(a, slice.device);
  const AttentionLaunch operands(found->ids, whole, slice, a, scratch.data);
  void* const rest = static_cast<char*>(scratch.data) + attention_scratch_bytes(slice);
  const cudnnHandle_t handle = cudnn_handle(stream, where);
  for (std::int64_t batch = 0; batch < whole.batch; batch += slice.batch)
    for (std::int64_t kv_head = 0; kv_head < whole.kv_heads; kv_head += slice.kv_heads)
      plan.execute(handle, plan.bind(operands.bindings(batch, kv_head), rest));
  return true;
}

}  // namespace

CudnnFacts cudnn_facts() {
  int major = 0;
  check_cuda(
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, current_device("cudnn")),
      "cudnn", "cudaDeviceGetAttribute");
  return {.version = cudnnGetVersion(), .major = major};
}

std::int64_t set_attention_slice_bytes(std::int64_t bytes) { return slice_bytes.exchange(bytes); }

std::optional<std::size_t> cudnn_attention_bytes(const AttentionKernel::Args& a) {
  return bytes_of(a, AttentionKernel::kName);
}
std::optional<std::size_t> cudnn_attention_bytes(const AttentionBackwardKernel::Args& a) {
  return bytes_of(a, AttentionBackwardKernel::kName);
}

std::optional<CudnnAttentionPlan> cudnn_attention_plan(const AttentionKernel::Args& a) {
  return facts_of(a, AttentionKernel::kName);
}
std::optional<CudnnAttentionPlan> cudnn_attention_plan(const AttentionBackwardKernel::Args& a) {
  return facts_of(a, AttentionBackwardKernel::kName);
}

bool cudnn_attention(CudaStream stream, const AttentionKernel::Args& a, Workspace scratch) {
  return launch(stream, a, scratch, AttentionKernel::kName);
}
bool cudnn_attention(CudaStream stream, const AttentionBackwardKernel::Args& a, Workspace scratch) {
  return launch(stream, a, scratch, AttentionBackwardKernel::kName);
}

}  // namespace tessera::cuda
