#pragma once

/// What nn sees of a DeviceMesh.

#include <memory>

#include "tessera/distributed/device_mesh.h"
#include "tessera/nn/mesh.h"

namespace tessera::distributed {

/// An nn::Mesh whose collectives run on the process groups of `mesh`, labelled "mesh <axis>".
/// Throws InvalidArgument for an undefined mesh.
std::shared_ptr<const nn::Mesh> make_mesh(const DeviceMesh& mesh);

}  // namespace tessera::distributed
