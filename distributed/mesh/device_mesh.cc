#include "tessera/distributed/mesh/device_mesh.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

#include "tessera/distributed/mesh/mesh_layout.h"
#include "tessera/tensor/check.h"

namespace tessera::distributed {
namespace {

constexpr const char* kWhere = "device_mesh";

const ProcessGroup& check_group(const std::shared_ptr<ProcessGroup>& group, const std::string& what,
                                Device device) {
  TESSERA_CHECK(group != nullptr, kWhere, "{} needs a process group", what);
  TESSERA_CHECK(device.is_null() || group->carries(device.type), kWhere,
                "group \"{}\" over {} carries no tensors of device {}; make the mesh for another "
                "device or over another group",
                group->name(), group->backend(), device.str());
  return *group;
}

int world_rank(const ProcessGroup& group) {
  return group.ranks()[static_cast<std::size_t>(group.rank())];
}

}  // namespace

// What a mesh and all its sub-meshes share.
struct DeviceMesh::Root {
  struct Axis {
    MeshLayout::Axis place;
    std::shared_ptr<ProcessGroup> group;
  };
  MeshLayout layout;
  int rank;  // this one, in the world
  Device device;
  std::shared_ptr<ProcessGroup> whole;  // of all ranks; null when made from groups
  std::vector<Axis> axes{};             // the layout's, then those that flatten() made
  // So that equal sub-meshes are one: what belongs together is known by the mesh.
  std::map<std::vector<std::string>, std::weak_ptr<const Impl>> meshes{};

  const Axis* find(const std::string& name) const {
    const auto found = std::find_if(axes.begin(), axes.end(),
                                    [&](const Axis& axis) { return axis.place.name == name; });
    return found == axes.end() ? nullptr : &*found;
  }

  // The group of this rank's line along `axis`; a new one only where none is known.
  std::shared_ptr<ProcessGroup> group_along(const MeshLayout::Axis& axis) const {
    for (const Axis& known : axes) {
      if (known.place.of == axis.of) return known.group;
    }
    TESSERA_CHECK(whole != nullptr, kWhere,
                  "axis \"{}\" needs a new group, which a mesh made from groups cannot make: make "
                  "the mesh over one group of all its ranks",
                  axis.name);
    const std::vector<int> line = layout.part({axis}, rank).ranks();
    if (line == whole->ranks()) return whole;
    std::vector<int> members;
    for (const int each : line) {
      const auto place = std::find(whole->ranks().begin(), whole->ranks().end(), each);
      members.push_back(static_cast<int>(place - whole->ranks().begin()));
    }
    return whole->subgroup(members, fmt::format("{}[{}]", axis.name, ranks_text(line)));
  }
};

struct DeviceMesh::Impl {
  std::shared_ptr<Root> root;
  MeshLayout layout;
  std::vector<std::shared_ptr<ProcessGroup>> groups;  // by axis
  mutable std::weak_ptr<const void> companion{};

  const std::vector<int> coordinates() const { return *layout.coordinates(root->rank); }
  // By name: the root's, which flatten() added to, and those of this mesh.
  std::vector<MeshLayout::Axis> places(const std::vector<std::string>& axes) const {
    std::vector<MeshLayout::Axis> out;
    for (const std::string& name : axes) {
      const Root::Axis* axis = root->find(name);
      out.push_back(axis != nullptr ? axis->place : layout.axis(name));
    }
    return out;
  }
};

DeviceMesh DeviceMesh::slice(const std::shared_ptr<Root>& root,
                             const std::vector<std::string>& axes) {
  DeviceMesh mesh;
  std::weak_ptr<const Impl>& known = root->meshes[axes];
  mesh.impl_ = known.lock();
  if (mesh.impl_) return mesh;
  std::vector<MeshLayout::Axis> places;
  std::vector<std::shared_ptr<ProcessGroup>> groups;
  for (const std::string& name : axes) {
    const Root::Axis& axis = *root->find(name);
    places.push_back(axis.place);
    groups.push_back(axis.group);
  }
  mesh.impl_ = std::make_shared<const Impl>(
      Impl{root, root->layout.part(std::move(places), root->rank), std::move(groups)});
  known = mesh.impl_;
  return mesh;
}

DeviceMesh::DeviceMesh(const std::vector<std::string>& axes, std::vector<int> shape,
                       std::shared_ptr<ProcessGroup> group, Device device) {
  const ProcessGroup& all =
      check_group(group, fmt::format("a mesh of axes {}", fmt::join(axes, ", ")), device);
  const auto root = std::make_shared<Root>(Root{.layout = {axes, std::move(shape), all.ranks()},
                                                .rank = world_rank(all),
                                                .device = device,
                                                .whole = std::move(group)});
  // At once rather than at first use: ranks use axes in different orders, but members must make
  // groups in one order.
  for (const MeshLayout::Axis& axis : root->layout.axes())
    root->axes.push_back({axis, root->group_along(axis)});
  *this = slice(root, axes);
}

DeviceMesh::DeviceMesh(const std::string& axis, std::shared_ptr<ProcessGroup> group,
                       Device device) {
  const int size = check_group(group, fmt::format("axis \"{}\"", axis), device).size();
  *this = DeviceMesh(std::vector{axis}, {size}, std::move(group), device);
}

DeviceMesh DeviceMesh::from_groups(const GroupedAxes& grouped, Device device) {
  MeshLayout layout(grouped.axes, grouped.shape, grouped.ranks);
  TESSERA_CHECK(grouped.groups.size() == grouped.axes.size(), kWhere,
                "{} process groups for {} axes ({}); give one for each", grouped.groups.size(),
                grouped.axes.size(), fmt::join(grouped.axes, ", "));
  const auto root = std::make_shared<Root>(
      Root{.layout = std::move(layout), .rank = -1, .device = device, .whole = nullptr});
  for (std::size_t i = 0; i < grouped.groups.size(); ++i) {
    const MeshLayout::Axis& axis = root->layout.axes()[i];
    const ProcessGroup& group =
        check_group(grouped.groups[i], fmt::format("axis \"{}\"", axis.name), device);
    if (i == 0) root->rank = world_rank(group);
    const bool inside = root->layout.coordinates(root->rank).has_value();
    const std::vector<int> line =
        inside ? root->layout.part({axis}, root->rank).ranks() : std::vector<int>();
    TESSERA_CHECK(
        group.ranks() == line && world_rank(group) == root->rank, kWhere,
        "along axis \"{}\" rank {} stands among ranks [{}] of the mesh, but group \"{}\" has "
        "[{}]; give the group of this rank's line",
        axis.name, root->rank, ranks_text(line), group.name(), ranks_text(group.ranks()));
    root->axes.push_back({axis, grouped.groups[i]});
  }
  return slice(root, grouped.axes);
}

DeviceMesh DeviceMesh::concatenate(const std::vector<DeviceMesh>& meshes) {
  TESSERA_CHECK(!meshes.empty(), kWhere, "concatenate needs at least one mesh");
  std::vector<std::string> axes;
  const std::shared_ptr<Root>& root = meshes.front().impl().root;
  for (const DeviceMesh& mesh : meshes) {
    TESSERA_CHECK(mesh.impl().root == root, kWhere,
                  "concatenate takes sub-meshes of one root; {} and {} have different ones",
                  meshes.front().str(), mesh.str());
    axes.insert(axes.end(), mesh.axes().begin(), mesh.axes().end());
  }
  return slice(root, axes);
}

const DeviceMesh::Impl& DeviceMesh::impl() const {
  TESSERA_CHECK(impl_ != nullptr, kWhere, "the mesh is undefined; use World::mesh()");
  return *impl_;
}

int DeviceMesh::ndim() const { return static_cast<int>(axes().size()); }
const std::vector<std::string>& DeviceMesh::axes() const { return impl().layout.names(); }
const std::vector<int>& DeviceMesh::shape() const { return impl().layout.shape(); }
int DeviceMesh::size() const { return static_cast<int>(ranks().size()); }
int DeviceMesh::size(const std::string& axis) const { return shape()[impl().layout.index(axis)]; }
Device DeviceMesh::device() const { return impl().root->device; }
int DeviceMesh::rank() const { return impl().root->rank; }
const std::vector<int>& DeviceMesh::ranks() const { return impl().layout.ranks(); }

std::vector<int> DeviceMesh::ranks_along(const std::string& axis) const {
  return impl().layout.part(impl().places({axis}), rank()).ranks();
}

std::vector<std::vector<int>> DeviceMesh::all_ranks_along(
    const std::vector<std::string>& axes) const {
  std::vector<std::vector<int>> out;
  for (const MeshLayout& part : impl().layout.parts(impl().places(axes)))
    out.push_back(part.ranks());
  return out;
}

std::vector<int> DeviceMesh::coordinates() const { return impl().coordinates(); }
int DeviceMesh::coordinate(const std::string& axis) const {
  return impl().coordinates()[impl().layout.index(axis)];
}
std::optional<std::vector<int>> DeviceMesh::coordinates_of(int rank) const {
  return impl().layout.coordinates(rank);
}

const std::shared_ptr<ProcessGroup>& DeviceMesh::group(const std::string& axis) const {
  return impl().groups[impl().layout.index(axis)];
}
const std::shared_ptr<ProcessGroup>& DeviceMesh::group() const {
  TESSERA_CHECK(ndim() == 1, kWhere, "a mesh of {} axes has a group along each: name one of: {}",
                ndim(), fmt::join(axes(), ", "));
  return impl().groups.front();
}
const std::vector<std::shared_ptr<ProcessGroup>>& DeviceMesh::groups() const {
  return impl().groups;
}

DeviceMesh DeviceMesh::submesh(const std::vector<std::string>& axes) const {
  (void)impl().layout.part(impl().places(axes), rank());  // checks
  return slice(impl().root, axes);
}

DeviceMesh DeviceMesh::flatten(const std::string& name) const {
  Root& root = *impl().root;
  const MeshLayout::Axis axis =
      impl().layout.joined(name.empty() ? fmt::format("{}", fmt::join(axes(), "_")) : name);
  if (const Root::Axis* known = root.find(axis.name)) {
    TESSERA_CHECK(
        known->place == axis, kWhere,
        "axes {} cannot be flattened to \"{}\": the root mesh ({}) has another axis of that "
        "name; give a name of its own",
        fmt::join(axes(), ", "), axis.name, this->root().str());
  } else {
    root.axes.push_back({axis, root.group_along(axis)});
  }
  return slice(impl().root, {axis.name});
}

DeviceMesh DeviceMesh::root() const { return slice(impl().root, impl().root->layout.names()); }

DeviceMesh DeviceMesh::with_group(const std::string& axis,
                                  std::shared_ptr<ProcessGroup> group) const {
  TESSERA_CHECK(
      group != nullptr && group->size() == size(axis) && group->rank() == coordinate(axis), kWhere,
      "axis \"{}\" is of size {} and this is its rank {}; the group has {} and {}", axis,
      size(axis), coordinate(axis), group ? group->size() : 0, group ? group->rank() : -1);
  const auto copy = std::make_shared<Root>(*impl().root);
  copy->meshes.clear();
  for (Root::Axis& each : copy->axes) {
    if (each.place.name == axis) each.group = std::move(group);
  }
  return slice(copy, axes());
}

bool DeviceMesh::operator==(const DeviceMesh& other) const {
  if (!defined() || !other.defined()) return defined() == other.defined();
  return impl().layout == other.impl().layout && device().type == other.device().type;
}

std::size_t DeviceMesh::hash() const {
  if (!defined()) return 0;
  return std::hash<std::string>()(fmt::format("{}|{}|{}|{}", fmt::join(axes(), ","),
                                              fmt::join(shape(), ","), fmt::join(ranks(), ","),
                                              static_cast<int>(device().type)));
}

std::string DeviceMesh::str() const {
  if (!defined()) return "undefined mesh";
  std::string text;
  for (const std::string& axis : axes())
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", axis, size(axis));
  return fmt::format("{} over ranks {} on {}", text, ranks_text(ranks()), device().str());
}

std::weak_ptr<const void>& DeviceMesh::companion() const { return impl().companion; }

}  // namespace tessera::distributed
