#include "tessera/nn/grad_norm.h"

#include <algorithm>
#include <set>
#include <vector>

#include "tessera/tensor/ops.h"

namespace tessera::nn {
namespace {

// Parameters whose sums are all-reduced alike.
struct Group {
  std::shared_ptr<const Mesh> mesh;
  std::vector<std::string> axes;
  Tensor sum;  // 0-d, f64
};

// The group of a parameter. Which groups there are depends on the parameters, not on who has a
// gradient: every rank must join the same collectives.
Group& group_of(const Parameter& parameter, Device device, std::vector<Group>& groups) {
  const auto& axes = parameter.spec().sharded_axes;
  const auto found = std::find_if(groups.begin(), groups.end(), [&](const Group& group) {
    return group.axes == axes && (axes.empty() || group.mesh == parameter.mesh());
  });
  if (found != groups.end()) return *found;
  const Tensor zero = zeros({}, {.dtype = DType::kF64, .device = device});
  return groups.emplace_back(Group{parameter.mesh(), axes, zero});
}

bool reduces_over(const Group& group, const std::shared_ptr<const Mesh>& mesh,
                  const std::string& axis) {
  return group.mesh == mesh &&
         std::find(group.axes.begin(), group.axes.end(), axis) != group.axes.end();
}

// One all-reduce for all groups that are sharded over the axis.
void reduce_axis(std::vector<Group>& groups, const std::shared_ptr<const Mesh>& mesh,
                 const std::string& axis) {
  std::vector<Group*> members;
  for (Group& group : groups) {
    if (reduces_over(group, mesh, axis)) members.push_back(&group);
  }
  if (members.empty()) return;
  const auto count = static_cast<std::int64_t>(members.size());
  const Tensor packed = Tensor::empty({count}, members.front()->sum.options());
  for (std::int64_t i = 0; i < count; ++i) {
    copy_(packed.select(0, i), members[static_cast<std::size_t>(i)]->sum);
  }
  mesh->all_reduce(packed, axis, MeshReduce::kSum);
  for (std::int64_t i = 0; i < count; ++i) {
    members[static_cast<std::size_t>(i)]->sum = packed.select(0, i);
  }
}

void reduce_groups(std::vector<Group>& groups) {
  std::vector<std::shared_ptr<const Mesh>> meshes;
  for (const Group& group : groups) {
    if (std::find(meshes.begin(), meshes.end(), group.mesh) == meshes.end()) {
      meshes.push_back(group.mesh);
    }
  }
  for (const auto& mesh : meshes) {
    for (const std::string& axis : mesh->axes()) reduce_axis(groups, mesh, axis);
  }
}

Device device_of(std::span<const Parameter> parameters) {
  for (const Parameter& parameter : parameters) {
    if (parameter.is_materialized()) return parameter.local().device();
  }
  return kCpu;
}

}  // namespace

Tensor grad_norm(std::span<const Parameter> parameters) {
  const Device device = device_of(parameters);
  std::vector<Group> groups;
  std::set<const void*> seen;
  for (const Parameter& parameter : parameters) {
    if (!seen.insert(parameter.id()).second) continue;
    Group& group = group_of(parameter, device, groups);
    const Tensor grad = parameter.grad();
    if (grad.defined() && grad.numel() > 0) group.sum = add(group.sum, sum_of_squares(grad));
  }
  reduce_groups(groups);
  Tensor total = zeros({}, {.dtype = DType::kF64, .device = device});
  for (const Group& group : groups) total = add(total, group.sum);
  return sqrt(total);
}

}  // namespace tessera::nn
