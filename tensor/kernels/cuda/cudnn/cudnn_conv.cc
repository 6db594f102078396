#include "tessera/tensor/kernels/cuda/cudnn/cudnn_kernels.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "tessera/tensor/kernels/cuda/cudnn/cudnn_graph.h"
#include "tessera/tensor/kernels/cuda/cudnn/cudnn_graphs.h"
#include "tessera/tensor/kernels/cuda/cudnn/cudnn_plan_cache.h"
#include "tessera/tensor/kernels/elementwise.h"
#include "tessera/tensor/tf32.h"

namespace tessera::cuda {
namespace {

// x and y in place; operands that cuDNN cannot read are copied into scratch first.
struct ConvPlan {
  ConvIds ids;
  std::unique_ptr<CudnnPlan> plan;
  bool copies_x = false, copies_y = false;
};

ConvProblem::Strides strides_of(const Shape& shape, const Shape& strides) {
  // Strides of dims of extent 1 have no meaning, but cuDNN would check them.
  const Shape canonical = contiguous_strides(shape);
  ConvProblem::Strides out{};
  for (int d = 0; d < 4; ++d)
    out[static_cast<std::size_t>(d)] = shape[d] == 1 ? canonical[d] : strides[d];
  return out;
}
ConvProblem::Strides packed_strides(const Shape& shape) {
  return strides_of(shape, contiguous_strides(shape));
}

std::int64_t alignment_of(const void* data, DType dtype) {
  const bool aligned = reinterpret_cast<std::uintptr_t>(data) % 16 == 0;
  return aligned ? 16 : static_cast<std::int64_t>(dtype_size(dtype));
}

// A launch of any kind: its inputs, and the address of the weight or its gradient.
struct Launch {
  const char* where = nullptr;
  ConvProblem problem;
  Shape x_shape, y_shape;
  const void* x = nullptr;
  const void* weight = nullptr;
  const void* y = nullptr;
  // x and y as inputs; undefined if they are outputs.
  ConstView read_x, read_y;
};

ConvProblem problem_of(const ConvGeometry& g, CudnnConvKind kind, DType dtype) {
  ConvProblem p;
  p.device = current_device("conv");
  p.kind = kind;
  p.dtype = dtype;
  p.tf32 = dtype == DType::kF32 && tf32_allowed();
  p.images = g.images;
  p.groups = g.groups;
  p.in_channels = g.in_channels;
  p.out_channels = g.out_channels;
  p.in = {g.h.in, g.w.in};
  p.out = {g.h.out, g.w.out};
  p.kernel = {g.h.kernel, g.w.kernel};
  p.stride = {g.h.stride, g.w.stride};
  p.padding = {g.h.padding, g.w.padding};
  p.dilation = {g.h.dilation, g.w.dilation};
  return p;
}

template <class X, class Weight, class Y>
Launch make_launch(const char* where, ConvProblem p, const X& x, const Weight& weight, const Y& y) {
  p.x = strides_of(x.shape, x.strides);
  p.y = strides_of(y.shape, y.strides);
  p.alignment = {alignment_of(x.data, p.dtype), alignment_of(weight.data, p.dtype),
                 alignment_of(y.data, p.dtype)};
  return {.where = where,
          .problem = p,
          .x_shape = x.shape,
          .y_shape = y.shape,
          .x = x.data,
          .weight = weight.data,
          .y = y.data,
          .read_x = {},
          .read_y = {}};
}

Launch launch_of(const ConvKernel::Args& a) {
  Launch l = make_launch(ConvKernel::kName, problem_of(a.g, CudnnConvKind::kForward, a.x.dtype),
                         a.x, a.weight, a.y);
  l.read_x = a.x;
  return l;
}
Launch launch_of(const ConvBackwardInputKernel::Args& a) {
  Launch l =
      make_launch(ConvBackwardInputKernel::kName,
                  problem_of(a.g, CudnnConvKind::kBackwardInput, a.dy.dtype), a.dx, a.weight, a.dy);
  l.read_y = a.dy;
  return l;
}
Launch launch_of(const ConvBackwardWeightKernel::Args& a) {
  ConvProblem p = problem_of(a.g, CudnnConvKind::kBackwardWeight, a.dy.dtype);
  p.beta = a.beta;
  Launch l = make_launch(ConvBackwardWeightKernel::kName, p, a.x, a.dweight, a.dy);
  l.read_x = a.x;
  l.read_y = a.dy;
  return l;
}

std::unique_ptr<ConvPlan> try_one_plan(const ConvProblem& p, const char* where) {
  CudnnGraph graph(where);
  const ConvIds ids = add_convolution(graph, p);
  std::unique_ptr<CudnnPlan> plan =
      graph.plan({.handle = cudnn_handle(nullptr, where), .properties = {}}, conv_numerics(p));
  if (plan == nullptr) return nullptr;
  return std::make_unique<ConvPlan>(ConvPlan{.ids = ids, .plan = std::move(plan)});
}

// The same convolution of one dim along the other axis.
ConvProblem turned(ConvProblem p) {
  for (auto* axes : {&p.in, &p.out, &p.kernel, &p.stride, &p.padding, &p.dilation})
    std::swap((*axes)[0], (*axes)[1]);
  for (auto* strides : {&p.x, &p.y}) std::swap((*strides)[2], (*strides)[3]);
  return p;
}

// Some versions have plans for the derivatives of a convolution of one dim along one axis only.
std::unique_ptr<ConvPlan> try_plan(const ConvProblem& p, const char* where) {
  std::unique_ptr<ConvPlan> plan = try_one_plan(p, where);
  const bool is_line = p.in[0] == 1 && p.out[0] == 1 && p.kernel[0] == 1;
  return plan != nullptr || !is_line ? std::move(plan) : try_one_plan(turned(p), where);
}

// Whether no two elements share an address; cuDNN does not define the result if they do.
bool has_places(const ConvProblem::Strides& strides) {
  return std::all_of(strides.begin(), strides.end(), [](std::int64_t s) { return s > 0; });
}

std::unique_ptr<ConvPlan> make_plan(const Launch& l) {
  ConvProblem p = l.problem;
  const ConvProblem::Strides x = packed_strides(l.x_shape), y = packed_strides(l.y_shape);
  const bool copies_x = p.x != x, copies_y = p.y != y;
  if (has_places(p.x) && has_places(p.y)) {
    if (std::unique_ptr<ConvPlan> plan = try_plan(p, l.where)) return plan;
  }
  if (!copies_x && !copies_y) return nullptr;
  p.x = x;
  p.y = y;
  if (copies_x) p.alignment[0] = 16;
  if (copies_y) p.alignment[2] = 16;
  std::unique_ptr<ConvPlan> plan = try_plan(p, l.where);
  if (plan == nullptr) return nullptr;
  plan->copies_x = copies_x;
  plan->copies_y = copies_y;
  return plan;
}

ConvPlan* plan_of(const Launch& l) {
  static auto* plans = new PlanCache<ConvProblem, ConvPlan>;
  return plans->get(l.problem, [&] { return make_plan(l); });
}

std::size_t copy_bytes(bool copies, const Shape& shape, DType dtype) {
  if (!copies) return 0;
  return (static_cast<std::size_t>(shape.numel()) * dtype_size(dtype) + 255) / 256 * 256;
}

template <class Args>
std::optional<std::size_t> bytes_of(const Args& a) {
  const Launch l = launch_of(a);
  const ConvPlan* plan = plan_of(l);
  if (plan == nullptr) return {};
  return copy_bytes(plan->copies_x, l.x_shape, l.problem.dtype) +
         copy_bytes(plan->copies_y, l.y_shape, l.problem.dtype) + plan->plan->workspace_bytes();
}

// Copies `x` in row-major order to `to`, and advances `to` past the copy.
const void* copy_to(CudaStream stream, const ConstView& x, char*& to) {
  AxpbyKernel::Args copy;
  copy.x = x;
  copy.y.data = to;
  copy.y.dtype = x.dtype;
  copy.y.shape = x.shape;
  copy.y.strides = contiguous_strides(x.shape);
  AxpbyKernel::cuda(stream, copy, {});
  to += copy_bytes(true, x.shape, x.dtype);
  return copy.y.data;
}

// Returns false if there is no plan.
template <class Args>
bool execute(CudaStream stream, const Args& a, Workspace scratch) {
  const Launch l = launch_of(a);
  ConvPlan* const found = plan_of(l);
  if (found == nullptr) return false;
  ConvPlan& plan = *found;
  char* rest = static_cast<char*>(scratch.data);
  const void* x = plan.copies_x ? copy_to(stream, l.read_x, rest) : l.x;
  const void* y = plan.copies_y ? copy_to(stream, l.read_y, rest) : l.y;
  const CudnnPlan::Binding bindings[] = {
      {plan.ids.x, x}, {plan.ids.weight, l.weight}, {plan.ids.y, y}};
  plan.plan->execute(cudnn_handle(stream, l.where), plan.plan->bind(bindings, rest));
  return true;
}

}  // namespace

std::optional<std::size_t> cudnn_conv_bytes(const ConvKernel::Args& a) { return bytes_of(a); }
std::optional<std::size_t> cudnn_conv_bytes(const ConvBackwardInputKernel::Args& a) {
  return bytes_of(a);
}
std::optional<std::size_t> cudnn_conv_bytes(const ConvBackwardWeightKernel::Args& a) {
  return bytes_of(a);
}

bool cudnn_conv(CudaStream stream, const ConvKernel::Args& a, Workspace scratch) {
  return execute(stream, a, scratch);
}
bool cudnn_conv(CudaStream stream, const ConvBackwardInputKernel::Args& a, Workspace scratch) {
  return execute(stream, a, scratch);
}
bool cudnn_conv(CudaStream stream, const ConvBackwardWeightKernel::Args& a, Workspace scratch) {
  return execute(stream, a, scratch);
}

}  // namespace tessera::cuda
