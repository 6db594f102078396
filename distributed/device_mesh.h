#pragma once

/// Ranks arranged along named axes, each with a process group. One axis for now; the interface is
/// that of many. A shared handle: copies mean the same mesh. Using an undefined mesh throws
/// InvalidArgument.

#include <memory>
#include <string>
#include <vector>

#include "tessera/distributed/process_group.h"
#include "tessera/tensor/device.h"

namespace tessera::distributed {

class DeviceMesh {
 public:
  DeviceMesh() = default;  ///< undefined
  /// One axis over all ranks of `group`.
  DeviceMesh(std::string axis, std::shared_ptr<ProcessGroup> group, Device device);

  bool defined() const { return impl_ != nullptr; }
  int ndim() const;
  const std::vector<std::string>& axes() const;
  /// Throws InvalidArgument for an unknown axis, listing those there are.
  int size(const std::string& axis) const;
  int coordinate(const std::string& axis) const;  ///< this rank's position along the axis
  const std::shared_ptr<ProcessGroup>& group(const std::string& axis) const;
  Device device() const;  ///< this rank's

  /// The same mesh with another group on one axis (a decorated one, in tests). Sizes must agree.
  DeviceMesh with_group(const std::string& axis, std::shared_ptr<ProcessGroup> group) const;

  /// For make_mesh(): what a floor above made of this mesh, the same for all copies of the handle.
  std::weak_ptr<const void>& companion() const;

 private:
  struct Impl;
  const Impl& impl() const;
  std::shared_ptr<const Impl> impl_;
};

}  // namespace tessera::distributed
