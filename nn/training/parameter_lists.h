#pragma once

/// What a list of parameters says of itself. For nn's own .cc files.

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tessera/nn/parameter.h"

namespace tessera::nn {

/// Each parameter once, in order; tied ones are one.
std::vector<Parameter> distinct(std::span<const Parameter> parameters);
/// Every mesh of a parameter once, in order: the same on all ranks that list the same parameters.
std::vector<std::shared_ptr<const Mesh>> meshes_of(std::span<const Parameter> parameters);
/// An axis of a mesh, to reduce over.
struct MeshAxis {
  std::shared_ptr<const Mesh> mesh;
  std::string axis;
};
/// Every axis of the meshes in order; of those that join the same ranks the first.
std::vector<MeshAxis> distinct_axes(std::span<const std::shared_ptr<const Mesh>> meshes);
/// Of the first parameter that is materialised; else the default device.
Device device_of(std::span<const Parameter> parameters);

}  // namespace tessera::nn
