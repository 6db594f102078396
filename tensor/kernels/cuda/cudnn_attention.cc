#include "tessera/tensor/kernels/cuda/cudnn_attention.h"

#include <cuda_runtime_api.h>

#include <atomic>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "tessera/tensor/cuda/check_cuda.h"
#include "tessera/tensor/kernels/cuda/cudnn_attention_graph.h"
#include "tessera/tensor/kernels/cuda/cudnn_graph.h"
#include "tessera/tensor/kernels/cuda/cudnn_plan_cache.h"
#include "tessera/tensor/kernels/cuda/cudnn_slices.h"

namespace tessera::cuda {
namespace {

int current_device(const char* where) {
  int device = 0;
  check_cuda(cudaGetDevice(&device), where, "cudaGetDevice");
  return device;
}

struct AttentionPlan {
  AttentionProblem slice;  // what one execution computes
  AttentionIds ids;
  std::unique_ptr<CudnnPlan> plan;

  std::size_t dots_bytes() const {
    if (!slice.backward) return 0;
    const std::int64_t rows = slice.batch * slice.heads * slice.queries;
    return (static_cast<std::size_t>(rows) * sizeof(float) + 255) / 256 * 256;
  }
  std::size_t bytes() const { return dots_bytes() + plan->workspace_bytes(); }
};

std::atomic<std::int64_t> slice_bytes = kSliceBytes;

AttentionProblem slice_of(AttentionProblem p) {
  if (!p.backward) return p;
  const AttentionSlices slices = attention_slices(p.batch, p.kv_heads, p.heads / p.kv_heads,
                                                  p.queries * p.keys, slice_bytes.load());
  p.heads = p.heads / p.kv_heads * slices.kv_heads;
  p.batch = slices.batch;
  p.kv_heads = slices.kv_heads;
  return p;
}

std::unique_ptr<AttentionPlan> make_plan(const AttentionProblem& problem, const char* where) {
  CudnnGraph graph(where);
  const AttentionIds ids =
      problem.backward ? add_attention_backward(graph, problem) : add_attention(graph, problem);
  std::unique_ptr<CudnnPlan> plan =
      graph.plan({.handle = cudnn_handle(nullptr, where), .properties = {}}, {});
  if (plan == nullptr) return nullptr;
  return std::make_unique<AttentionPlan>(
      AttentionPlan{.slice = problem, .ids = ids, .plan = std::move(plan)});
}

// The plan for these operands on the current GPU; null where cuDNN has none.
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

// An operand and where its slices begin.
struct Operand {
  CudnnGraph::Id id = -1;
  const void* data = nullptr;
  std::int64_t batch_bytes = 0, head_bytes = 0;

  Operand(CudnnGraph::Id id, const void* data, DType dtype,
          const AttentionProblem::Strides& strides)
      : id(id),
        data(data),
        batch_bytes(strides[0] * static_cast<std::int64_t>(dtype_size(dtype))),
        head_bytes(strides[1] * static_cast<std::int64_t>(dtype_size(dtype))) {}

  const void* at(std::int64_t batch, std::int64_t head) const {
    return static_cast<const char*>(data) + batch * batch_bytes + head * head_bytes;
  }
};

// Numbers that are passed by value, by their addresses.
struct Numbers {
  float scale = 1, one = 1, never = -std::numeric_limits<float>::infinity();
  std::int32_t keys = 0, queries = 0;

  Numbers(const AttentionRule& rule, const AttentionProblem& p)
      : scale(static_cast<float>(rule.scale)),
        keys(static_cast<std::int32_t>(p.keys)),
        queries(static_cast<std::int32_t>(p.queries)) {}

  std::vector<CudnnPlan::Binding> bindings(const AttentionIds& ids) const {
    std::vector<CudnnPlan::Binding> bound;
    const CudnnPlan::Binding all[] = {{ids.scale, &scale},
                                      {ids.one, &one},
                                      {ids.never, &never},
                                      {ids.keys, &keys},
                                      {ids.queries, &queries}};
    for (const CudnnPlan::Binding& one_of_them : all)
      if (one_of_them.first >= 0) bound.push_back(one_of_them);
    return bound;
  }
};

// One launch. Heads of queries and of keys differ, so their slices begin at different heads.
struct Launch {
  std::vector<Operand> of_queries, of_keys;
  void* dots = nullptr;
  void* scratch = nullptr;
};

void execute_slices(AttentionPlan& plan, const AttentionProblem& whole, const Launch& launch,
                    const Numbers& numbers, cudnnHandle_t handle) {
  const AttentionProblem& slice = plan.slice;
  for (std::int64_t batch = 0; batch < whole.batch; batch += slice.batch) {
    for (std::int64_t kv = 0; kv < whole.kv_heads; kv += slice.kv_heads) {
      std::vector<CudnnPlan::Binding> bindings = numbers.bindings(plan.ids);
      const std::int64_t head = kv * (slice.heads / slice.kv_heads);
      for (const Operand& x : launch.of_queries) bindings.emplace_back(x.id, x.at(batch, head));
      for (const Operand& x : launch.of_keys) bindings.emplace_back(x.id, x.at(batch, kv));
      if (launch.dots != nullptr) bindings.emplace_back(plan.ids.dots, launch.dots);
      plan.plan->execute(handle, bindings, launch.scratch);
    }
  }
}

AttentionProblem::Strides row_strides(const AttentionProblem& p) {
  return {p.heads * p.queries, p.queries, 1, 1};
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

bool cudnn_attention(CudaStream stream, const AttentionKernel::Args& a, Workspace scratch) {
  AttentionPlan* const found = plan_of(a, AttentionKernel::kName);
  if (found == nullptr) return false;
  AttentionPlan& plan = *found;
  const AttentionProblem p = attention_problem(a, plan.slice.device);
  const AttentionIds& ids = plan.ids;
  const Launch launch{
      .of_queries = {{ids.q, a.q.data, p.dtype, p.q},
                     {ids.out, a.out.data, p.dtype, p.out},
                     {ids.log_sum_exp, a.log_sum_exp.data, DType::kF32, row_strides(p)}},
      .of_keys = {{ids.k, a.k.data, p.dtype, p.k}, {ids.v, a.v.data, p.dtype, p.v}},
      .scratch = scratch.data};
  execute_slices(plan, p, launch, Numbers(a.rule, p), cudnn_handle(stream, AttentionKernel::kName));
  return true;
}

bool cudnn_attention(CudaStream stream, const AttentionBackwardKernel::Args& a, Workspace scratch) {
  AttentionPlan* const found = plan_of(a, AttentionBackwardKernel::kName);
  if (found == nullptr) return false;
  AttentionPlan& plan = *found;
  const AttentionProblem p = attention_problem(a, plan.slice.device);
  const AttentionIds& ids = plan.ids;
  const Launch launch{
      .of_queries = {{ids.q, a.q.data, p.dtype, p.q},
                     {ids.out, a.out.data, p.dtype, p.out},
                     {ids.dout, a.dout.data, p.dtype, p.dout},
                     {ids.dq, a.dq.data, p.dtype, p.dq},
                     {ids.log_sum_exp, a.log_sum_exp.data, DType::kF32, row_strides(p)}},
      .of_keys = {{ids.k, a.k.data, p.dtype, p.k},
                  {ids.v, a.v.data, p.dtype, p.v},
                  {ids.dk, a.dk.data, p.dtype, p.dk},
                  {ids.dv, a.dv.data, p.dtype, p.dv}},
      .dots = scratch.data,
      .scratch = static_cast<char*>(scratch.data) + plan.dots_bytes()};
  execute_slices(plan, p, launch, Numbers(a.rule, p),
                 cudnn_handle(stream, AttentionBackwardKernel::kName));
  return true;
}

}  // namespace tessera::cuda
