#include "tessera/fsdp/state/mesh_ranks.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "tessera/distributed/collectives.h"
#include "tessera/distributed/objects.h"
#include "tessera/distributed/parameters/parameters.h"
#include "tessera/tensor/check.h"

namespace tessera::fsdp {

using distributed::DeviceMesh;

bool MeshRanks::is_first() const {
  return std::all_of(axes_.begin(), axes_.end(),
                     [this](const std::string& axis) { return mesh_.coordinate(axis) == 0; });
}

// The first rank broadcasts along the first axis, then each rank that has the data along the second
// axis, and so on. A group along `axis` takes part if its ranks are at coordinate 0 on all later
// axes.
bool MeshRanks::sends_along(std::size_t axis) const {
  return std::all_of(axes_.begin() + static_cast<std::ptrdiff_t>(axis) + 1, axes_.end(),
                     [this](const std::string& later) { return mesh_.coordinate(later) == 0; });
}

void MeshRanks::broadcast(std::span<const Tensor> tensors, const std::string& label) const {
  if (tensors.empty()) return;
  for (std::size_t i = 0; i < axes_.size(); ++i) {
    if (sends_along(i)) distributed::broadcast(*mesh_.group(axes_[i]), tensors, 0, label);
  }
}

std::vector<std::string> MeshRanks::broadcast_texts(const std::vector<std::string>& texts) const {
  std::string packed = distributed::packed_texts(texts);
  for (std::size_t i = 0; i < axes_.size(); ++i) {
    if (sends_along(i)) packed = distributed::broadcast_text(*mesh_.group(axes_[i]), packed, 0);
  }
  return distributed::unpacked_texts(packed);
}

std::vector<std::vector<std::string>> MeshRanks::all_gather_texts(
    const std::vector<std::string>& texts) const {
  std::vector<std::string> all = {distributed::packed_texts(texts)};  // one packed list per rank
  for (std::size_t i = axes_.size(); i-- > 0;) {
    std::vector<std::string> joined;
    const std::string mine = distributed::packed_texts(all);
    for (const std::string& part : distributed::all_gather_texts(*mesh_.group(axes_[i]), mine)) {
      for (std::string& each : distributed::unpacked_texts(part)) joined.push_back(std::move(each));
    }
    all = std::move(joined);
  }
  std::vector<std::vector<std::string>> out;
  for (const std::string& each : all) out.push_back(distributed::unpacked_texts(each));
  return out;
}

DeviceMesh widest_mesh(std::span<const nn::Parameter> parameters) {
  DeviceMesh widest;
  for (const nn::Parameter& parameter : parameters) {
    const DeviceMesh mesh = distributed::mesh_of(parameter);
    if (!mesh.defined()) continue;
    if (!widest.defined() || mesh.size() > widest.size()) widest = mesh;
  }
  return widest;
}

DeviceMesh mesh_of_load(const DeviceMesh& given, std::span<const nn::Parameter> parameters,
                        const char* where) {
  const DeviceMesh mesh = given.defined() ? given : widest_mesh(parameters);
  TESSERA_CHECK(
      mesh.defined(), where,
      "no parameter is sharded, so nothing says which ranks load together: pass .mesh, or "
      ".broadcast_from_rank0 = false where every rank has the state");
  return mesh;
}

}  // namespace tessera::fsdp
