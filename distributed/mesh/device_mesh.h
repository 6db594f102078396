#pragma once

/// Ranks arranged along named axes, with a process group along each.
///
///     DeviceMesh mesh({"dp", "tp"}, {2, 4}, world.group(), world.device());
///     mesh["tp"].group()            // my row's group, of 4
///     mesh.size("dp")               // 2
///     mesh.submesh({"dp", "tp"}).flatten()   // one axis "dp_tp" of 8
///
/// Ranks are row-major: the last axis joins neighbours. Every rank of a mesh sees its own line
/// along each axis; ranks that differ in the other coordinates have lines of their own.
///
/// The constructor makes a process group for each axis, and flatten() one for the new axis. All
/// ranks call both in the same order with equal arguments; neither communicates (see
/// ProcessGroup::subgroup). A line of all ranks is the given group itself. Choosing axes makes no
/// group: a sub-mesh has the groups of its root. A rank outside the mesh has none and does no work
/// in it.
///
/// A shared handle: copies refer to the same mesh, and choosing the same axes again returns the
/// same mesh while a handle to it exists. Used by the thread of its rank. Using an undefined mesh
/// throws InvalidArgument, and so does an axis that does not exist; the error lists the axes.

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/distributed/process_group.h"
#include "tessera/tensor/device.h"

namespace tessera::distributed {

/// A mesh of groups that exist.
struct GroupedAxes {
  std::vector<std::string> axes;
  std::vector<int> shape;
  std::vector<int> ranks;                             ///< in the world, row-major
  std::vector<std::shared_ptr<ProcessGroup>> groups;  ///< by axis: this rank's line along it
};

class DeviceMesh {
 public:
  DeviceMesh() = default;  ///< undefined
  /// `shape[i]` ranks along `axes[i]`, over all ranks of `group` in their order. Throws
  /// InvalidArgument for a null group, names that are empty, stand twice or are not as many as
  /// sizes, sizes whose product is not the group's, and a device that the group does not carry.
  DeviceMesh(const std::vector<std::string>& axes, std::vector<int> shape,
             std::shared_ptr<ProcessGroup> group, Device device);
  /// One axis over all ranks of `group`.
  DeviceMesh(const std::string& axis, std::shared_ptr<ProcessGroup> group, Device device);
  /// Makes no groups. Throws InvalidArgument as the constructor, for another number of groups than
  /// axes, and for one that is not this rank's line along its axis.
  static DeviceMesh from_groups(const GroupedAxes& grouped, Device device);
  /// The axes of several sub-meshes of one root as one mesh. Throws InvalidArgument for other
  /// meshes, and for axes out of the root's order.
  static DeviceMesh concatenate(const std::vector<DeviceMesh>& meshes);

  bool defined() const { return impl_ != nullptr; }
  int ndim() const;
  const std::vector<std::string>& axes() const;
  const std::vector<int>& shape() const;
  int size() const;  ///< ranks of the mesh
  int size(const std::string& axis) const;
  Device device() const;  ///< this rank's

  /// Ranks are those in the world, throughout.
  int rank() const;  ///< this one
  /// Row-major; of a sub-mesh, those of this rank's.
  const std::vector<int>& ranks() const;
  /// This rank's line; axes as in submesh().
  std::vector<int> ranks_along(const std::string& axis) const;
  /// The ranks of every sub-mesh along these axes, this rank's among them, ordered by the place of
  /// their first: {{0, 2}, {1, 3}} for "dp" of a mesh of two by two. Axes as in submesh().
  std::vector<std::vector<int>> all_ranks_along(const std::vector<std::string>& axes) const;
  std::vector<int> coordinates() const;  ///< this rank's, by axis
  int coordinate(const std::string& axis) const;
  /// Of another rank; nothing where it is not in the mesh.
  std::optional<std::vector<int>> coordinates_of(int rank) const;

  const std::shared_ptr<ProcessGroup>& group(const std::string& axis) const;
  /// Of a mesh of one axis. Throws InvalidArgument for one of several: name the axis.
  const std::shared_ptr<ProcessGroup>& group() const;
  const std::vector<std::shared_ptr<ProcessGroup>>& groups() const;  ///< by axis

  /// This rank's sub-mesh along some axes, in the mesh's order; also along one that flatten() made
  /// of this mesh's axes. Throws InvalidArgument for none, for axes in another order, and for such
  /// that overlap or interleave.
  DeviceMesh submesh(const std::vector<std::string>& axes) const;
  DeviceMesh operator[](const std::string& axis) const { return submesh({axis}); }
  /// All axes as one, named as given or "dp_cp". The root knows it from then on: its sub-meshes may
  /// have it beside axes that it does not join. Again with the same axes it makes no new group.
  /// Throws InvalidArgument for a name that another axis of the root has, and where a group would
  /// have to be made of a mesh from_groups().
  DeviceMesh flatten(const std::string& name = {}) const;
  /// The mesh that this one was sliced from; itself when it was not.
  DeviceMesh root() const;

  /// The same mesh with another group on one axis (a decorated one, in tests), with a root of its
  /// own. Sizes must agree.
  DeviceMesh with_group(const std::string& axis, std::shared_ptr<ProcessGroup> group) const;

  /// Equal axes, shape, ranks and device type; the groups do not count.
  bool operator==(const DeviceMesh& other) const;
  std::size_t hash() const;
  /// "dp 2, tp 4 over ranks 0,1..7 on cpu".
  std::string str() const;

  /// For make_mesh(): an object that an upper code layer attached to this mesh, the same for all
  /// copies of the handle.
  std::weak_ptr<const void>& companion() const;

 private:
  struct Root;
  struct Impl;
  const Impl& impl() const;
  static DeviceMesh slice(const std::shared_ptr<Root>& root, const std::vector<std::string>& axes);
  std::shared_ptr<const Impl> impl_;
};

}  // namespace tessera::distributed

template <>
struct std::hash<tessera::distributed::DeviceMesh> {
  std::size_t operator()(const tessera::distributed::DeviceMesh& mesh) const { return mesh.hash(); }
};
