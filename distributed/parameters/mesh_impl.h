#pragma once

/// What nn sees of a DeviceMesh.

#include <memory>

#include "tessera/distributed/mesh/device_mesh.h"
#include "tessera/nn/mesh/mesh.h"

namespace tessera::distributed {

/// An nn::Mesh whose collectives run on the process groups of `mesh`, labelled "mesh <axis>". One
/// object per mesh while a handle to it exists, so that parameters sharded over the same mesh can
/// be recognised. Throws InvalidArgument for an undefined mesh.
std::shared_ptr<const nn::Mesh> make_mesh(const DeviceMesh& mesh);
/// The mesh that make_mesh() was given. Undefined for another nn::Mesh, as nn::local_mesh().
DeviceMesh device_mesh_of(const nn::Mesh& mesh);

}  // namespace tessera::distributed
