#include "tessera/tensor/kernels/cuda/cudnn/cudnn_attention_launch.h"

#include <limits>

namespace tessera::cuda {
namespace {

// Rounded up, so that the array after it is aligned.
std::size_t f32_bytes(std::int64_t count) {
  return (static_cast<std::size_t>(count) * sizeof(float) + 255) / 256 * 256;
}

std::size_t dots_bytes(const AttentionProblem& p) {
  return f32_bytes(p.batch * p.heads * p.queries);
}

AttentionProblem::Strides row_strides(const AttentionProblem& p) {
  return {p.heads * p.queries, p.queries, 1, 1};
}

}  // namespace

std::size_t attention_scratch_bytes(const AttentionProblem& p) {
  if (!p.backward) return 0;
  return dots_bytes(p) + (p.fixed_order ? 0 : f32_bytes(p.batch * p.heads * p.queries * p.dim));
}

std::string attention_plan_name(const AttentionProblem& p, const CudnnPlan& plan) {
  return plan.name() + (p.backward && !p.fixed_order ? ", dq summed in any order" : "");
}

AttentionLaunch::Operand::Operand(CudnnGraph::Id id, const void* data, DType dtype,
                                  const AttentionProblem::Strides& strides)
    : id(id),
      data(data),
      batch_bytes(strides[0] * static_cast<std::int64_t>(dtype_size(dtype))),
      head_bytes(strides[1] * static_cast<std::int64_t>(dtype_size(dtype))) {}

AttentionLaunch::AttentionLaunch(const AttentionIds& ids, const AttentionProblem& whole,
                                 const AttentionProblem& slice, double scale, void* scratch)
    : ids_(ids),
      group_(whole.heads / whole.kv_heads),
      dots_(scratch),
      dq_sums_(static_cast<char*>(scratch) + dots_bytes(slice)),
      scale_(static_cast<float>(scale)),
      never_(-std::numeric_limits<float>::infinity()),
      keys_(static_cast<std::int32_t>(whole.keys)),
      queries_(static_cast<std::int32_t>(whole.queries)) {}

AttentionLaunch::AttentionLaunch(const AttentionIds& ids, const AttentionProblem& whole,
                                 const AttentionProblem& slice, const AttentionKernel::Args& a,
                                 void* scratch)
    : AttentionLaunch(ids, whole, slice, a.rule.scale, scratch) {
  const AttentionProblem& p = whole;
  of_queries_ = {{ids.q, a.q.data, p.dtype, p.q},
                 {ids.out, a.out.data, p.dtype, p.out},
                 {ids.log_sum_exp, a.log_sum_exp.data, DType::kF32, row_strides(p)}};
  of_keys_ = {{ids.k, a.k.data, p.dtype, p.k}, {ids.v, a.v.data, p.dtype, p.v}};
}

AttentionLaunch::AttentionLaunch(const AttentionIds& ids, const AttentionProblem& whole,
                                 const AttentionProblem& slice,
                                 const AttentionBackwardKernel::Args& a, void* scratch)
    : AttentionLaunch(ids, whole, slice, a.rule.scale, scratch) {
  const AttentionProblem& p = whole;
  of_queries_ = {{ids.q, a.q.data, p.dtype, p.q},
                 {ids.out, a.out.data, p.dtype, p.out},
                 {ids.dout, a.dout.data, p.dtype, p.dout},
                 {ids.dq, a.dq.data, p.dtype, p.dq},
                 {ids.log_sum_exp, a.log_sum_exp.data, DType::kF32, row_strides(p)}};
  of_keys_ = {{ids.k, a.k.data, p.dtype, p.k},
              {ids.v, a.v.data, p.dtype, p.v},
              {ids.dk, a.dk.data, p.dtype, p.dk},
              {ids.dv, a.dv.data, p.dtype, p.dv}};
}

std::vector<CudnnPlan::Binding> AttentionLaunch::bindings(std::int64_t batch,
                                                          std::int64_t kv_head) const {
  std::vector<CudnnPlan::Binding> bound;
  const CudnnPlan::Binding shared[] = {
      {ids_.scale, &scale_},     {ids_.one, &one_},  {ids_.never, &never_},   {ids_.keys, &keys_},
      {ids_.queries, &queries_}, {ids_.dots, dots_}, {ids_.dq_sums, dq_sums_}};
  for (const CudnnPlan::Binding& one : shared)
    if (one.first >= 0) bound.push_back(one);
  const auto add = [&](const std::vector<Operand>& operands, std::int64_t head) {
    for (const Operand& x : operands)
      bound.emplace_back(
          x.id, static_cast<const char*>(x.data) + batch * x.batch_bytes + head * x.head_bytes);
  };
  // The numbers of query and key heads differ, so their slices begin at different heads.
  add(of_queries_, kv_head * group_);
  add(of_keys_, kv_head);
  return bound;
}

}  // namespace tessera::cuda
