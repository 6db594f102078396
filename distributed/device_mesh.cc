#include "tessera/distributed/device_mesh.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "tessera/tensor/check.h"

namespace tessera::distributed {

struct DeviceMesh::Impl {
  std::vector<std::string> axes;
  std::vector<std::shared_ptr<ProcessGroup>> groups;  // by axis
  Device device;
  mutable std::weak_ptr<const void> companion{};

  std::size_t index(const std::string& axis) const {
    const auto found = std::find(axes.begin(), axes.end(), axis);
    TESSERA_CHECK(found != axes.end(), "device_mesh", "no axis \"{}\"; the mesh has: {}", axis,
                  fmt::join(axes, ", "));
    return static_cast<std::size_t>(found - axes.begin());
  }
};

DeviceMesh::DeviceMesh(std::string axis, std::shared_ptr<ProcessGroup> group, Device device) {
  TESSERA_CHECK(group != nullptr, "device_mesh", "axis \"{}\" needs a process group", axis);
  impl_ = std::make_shared<Impl>(
      Impl{.axes = {std::move(axis)}, .groups = {std::move(group)}, .device = device});
}

const DeviceMesh::Impl& DeviceMesh::impl() const {
  TESSERA_CHECK(impl_ != nullptr, "device_mesh", "the mesh is undefined; use World::mesh()");
  return *impl_;
}

int DeviceMesh::ndim() const { return static_cast<int>(impl().axes.size()); }

const std::vector<std::string>& DeviceMesh::axes() const { return impl().axes; }

int DeviceMesh::size(const std::string& axis) const { return group(axis)->size(); }

int DeviceMesh::coordinate(const std::string& axis) const { return group(axis)->rank(); }

const std::shared_ptr<ProcessGroup>& DeviceMesh::group(const std::string& axis) const {
  return impl().groups[impl().index(axis)];
}

Device DeviceMesh::device() const { return impl().device; }

std::weak_ptr<const void>& DeviceMesh::companion() const { return impl().companion; }

DeviceMesh DeviceMesh::with_group(const std::string& axis,
                                  std::shared_ptr<ProcessGroup> group) const {
  const std::size_t index = impl().index(axis);
  TESSERA_CHECK(
      group != nullptr && group->size() == size(axis) && group->rank() == coordinate(axis),
      "device_mesh", "axis \"{}\" is of size {} and this is its rank {}; the group has {} and {}",
      axis, size(axis), coordinate(axis), group ? group->size() : 0, group ? group->rank() : -1);
  auto copy = std::make_shared<Impl>(impl());
  copy->groups[index] = std::move(group);
  copy->companion.reset();
  DeviceMesh mesh;
  mesh.impl_ = std::move(copy);
  return mesh;
}

}  // namespace tessera::distributed
