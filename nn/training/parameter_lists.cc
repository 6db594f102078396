#include "tessera/nn/training/parameter_lists.h"

#include <algorithm>
#include <set>

namespace tessera::nn {

std::vector<Parameter> distinct(std::span<const Parameter> parameters) {
  std::vector<Parameter> out;
  std::set<const void*> seen;
  for (const Parameter& parameter : parameters) {
    if (seen.insert(parameter.id()).second) out.push_back(parameter);
  }
  return out;
}

std::vector<std::shared_ptr<const Mesh>> meshes_of(std::span<const Parameter> parameters) {
  std::vector<std::shared_ptr<const Mesh>> out;
  for (const Parameter& parameter : parameters) {
    const std::shared_ptr<const Mesh>& mesh = parameter.mesh();
    if (std::find(out.begin(), out.end(), mesh) == out.end()) out.push_back(mesh);
  }
  return out;
}

std::vector<MeshAxis> distinct_axes(std::span<const std::shared_ptr<const Mesh>> meshes) {
  std::vector<MeshAxis> out;
  std::set<const void*> seen;
  for (const auto& mesh : meshes) {
    for (const std::string& axis : mesh->axes()) {
      if (seen.insert(mesh->line(axis)).second) out.push_back({.mesh = mesh, .axis = axis});
    }
  }
  return out;
}

Device device_of(std::span<const Parameter> parameters) {
  for (const Parameter& parameter : parameters) {
    if (parameter.is_materialized()) return parameter.local().device();
  }
  return default_device();
}

}  // namespace tessera::nn
