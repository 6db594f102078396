#include "tessera/nn/training/clip_grad.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "tessera/nn/training/parameter_lists.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/ops.h"

namespace tessera::nn {
namespace {

// Added to the norm that divides; PyTorch's.
constexpr double kNormMargin = 1e-6;

// The values that norms are combined from: magnitudes to the power of p, which add up; for an
// infinite p the largest.
struct NormKind {
  double p = 2;

  bool is_max() const { return std::isinf(p); }
  MeshReduce reduce() const { return is_max() ? MeshReduce::kMax : MeshReduce::kSum; }
  Tensor combine(const Tensor& a, const Tensor& b) const {
    return is_max() ? maximum(a, b) : add(a, b);
  }
  // Of one gradient that has elements: 0-d, f64.
  Tensor part_of(const Tensor& gradient) const {
    if (is_max()) return cast(amax(abs(gradient)), DType::kF64);
    return sum(pow(abs(cast(gradient, DType::kF64)), p));
  }
  // Of several, from `zero` on. Squares take one operation for all.
  Tensor total_of(const std::vector<Tensor>& gradients, const Tensor& zero) const {
    if (p == 2) return gradients.empty() ? zero : sum_of_squares(gradients);
    Tensor total = zero;
    for (const Tensor& gradient : gradients) total = combine(total, part_of(gradient));
    return total;
  }
  Tensor root(const Tensor& total) const {
    if (is_max() || p == 1) return total;
    return p == 2 ? sqrt(total) : pow(total, 1 / p);
  }
};

NormKind norm_kind(const char* where, double p) {
  TESSERA_CHECK(p > 0, where, "norm_type is {}; it is above 0, or infinity", p);
  return {.p = p};
}

// Parameters whose parts are all-reduced alike.
struct Group {
  std::shared_ptr<const Mesh> mesh;
  std::vector<std::string> axes;
  std::vector<Tensor> gradients{};  // that have elements
  Tensor total{};                   // 0-d, f64
};

// The group of a parameter. Which groups exist depends on the parameters, not on which ranks have a
// gradient: every rank must join the same collectives.
Group& group_of(const Parameter& parameter, std::vector<Group>& groups) {
  const auto& axes = parameter.spec().sharded_axes;
  const auto found = std::find_if(groups.begin(), groups.end(), [&](const Group& group) {
    return group.axes == axes && (axes.empty() || group.mesh == parameter.mesh());
  });
  if (found != groups.end()) return *found;
  return groups.emplace_back(Group{.mesh = parameter.mesh(), .axes = axes});
}

// Whether it is sharded over these ranks, as whatever axis of its mesh.
bool is_sharded_over(const Group& group, const void* line) {
  return std::any_of(group.axes.begin(), group.axes.end(),
                     [&](const std::string& axis) { return group.mesh->line(axis) == line; });
}

// One all-reduce for all groups that are sharded over the axis.
void reduce_axis(std::vector<Group>& groups, const MeshAxis& over, MeshReduce reduce) {
  std::vector<Group*> members;
  for (Group& group : groups) {
    if (is_sharded_over(group, over.mesh->line(over.axis))) members.push_back(&group);
  }
  if (members.empty()) return;
  const auto count = static_cast<std::int64_t>(members.size());
  const Tensor packed = Tensor::empty({count}, members.front()->total.options());
  for (std::int64_t i = 0; i < count; ++i) {
    copy_(packed.select(0, i), members[static_cast<std::size_t>(i)]->total);
  }
  over.mesh->all_reduce(packed, over.axis, reduce);
  for (std::int64_t i = 0; i < count; ++i) {
    members[static_cast<std::size_t>(i)]->total = packed.select(0, i);
  }
}

Tensor norm_of(std::span<const Parameter> parameters, const NormKind& kind) {
  const Tensor zero = zeros({}, {.dtype = DType::kF64, .device = device_of(parameters)});
  std::vector<Group> groups;
  for (const Parameter& parameter : parameters) {
    Group& group = group_of(parameter, groups);
    const Tensor grad = parameter.grad();
    if (grad.defined() && grad.numel() > 0) group.gradients.push_back(grad);
  }
  for (Group& group : groups) group.total = kind.total_of(group.gradients, zero);
  for (const MeshAxis& axis : distinct_axes(meshes_of(parameters)))
    reduce_axis(groups, axis, kind.reduce());
  Tensor total = zero;
  for (const Group& group : groups) total = kind.combine(total, group.total);
  return kind.root(total);
}

void check_max_norm(const char* where, double max_norm) {
  TESSERA_CHECK(max_norm >= 0, where, "max_norm is {}; it is at least 0", max_norm);
}

}  // namespace

Tensor grad_norm(std::span<const Parameter> parameters, const GradNormOptions& options) {
  return norm_of(distinct(parameters), norm_kind("nn.grad_norm", options.norm_type));
}

Tensor clip_coefficient(double max_norm, const Tensor& norm) {
  check_max_norm("nn.clip_coefficient", max_norm);
  return minimum(div(full({}, max_norm, norm.options()), add(norm, kNormMargin)), 1.0);
}

void clip_grads_with_norm(std::span<const Parameter> parameters, double max_norm,
                          const Tensor& norm) {
  check_max_norm("nn.clip_grads_with_norm", max_norm);
  const Tensor coefficient = clip_coefficient(max_norm, norm);
  std::vector<Tensor> gradients;
  for (const Parameter& parameter : distinct(parameters)) {
    const Tensor grad = parameter.grad();
    if (grad.defined()) gradients.push_back(grad);
  }
  mul_(gradients, coefficient);
}

Tensor clip_grad_norm(std::span<const Parameter> parameters, double max_norm,
                      const ClipGradOptions& options) {
  constexpr const char* kWhere = "nn.clip_grad_norm";
  check_max_norm(kWhere, max_norm);
  const NormKind kind = norm_kind(kWhere, options.norm_type);
  const Tensor norm = norm_of(distinct(parameters), kind);
  if (options.error_if_nonfinite) {
    const double value = norm.item<double>();
    TESSERA_CHECK_AS(StateError, std::isfinite(value), kWhere,
                     "the gradients have a norm of {} (norm_type {}); leave this step out, lower "
                     "the learning rate, or look for the first NaN with AnomalyGuard",
                     value, options.norm_type);
  }
  clip_grads_with_norm(parameters, max_norm, norm);
  return norm;
}

void clip_grad_value(std::span<const Parameter> parameters, double max_value) {
  TESSERA_CHECK(max_value >= 0, "nn.clip_grad_value", "max_value is {}; it is at least 0",
                max_value);
  for (const Parameter& parameter : parameters) {
    const Tensor grad = parameter.grad();
    if (grad.defined()) clamp_(grad, -max_value, max_value);
  }
}

}  // namespace tessera::nn
