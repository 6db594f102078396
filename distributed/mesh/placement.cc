#include "tessera/distributed/mesh/placement.h"

#include <fmt/ranges.h>

#include <utility>

#include "tessera/tensor/check.h"

namespace tessera::distributed {
namespace {

void check_place(const MeshPlace& place) {
  bool inside = place.shape.size() == place.coordinates.size();
  for (std::size_t i = 0; inside && i < place.shape.size(); ++i)
    inside = place.coordinates[i] >= 0 && place.coordinates[i] < place.shape[i];
  TESSERA_CHECK(inside, "local_box",
                "coordinates [{}] are not in a mesh of shape [{}]; each lies below its axis' size",
                fmt::join(place.coordinates, ", "), fmt::join(place.shape, ", "));
}

}  // namespace

std::string str(const Placement& placement) {
  if (const Shard* shard = std::get_if<Shard>(&placement))
    return shard->turn == 0 ? fmt::format("Shard({})", shard->dim)
                            : fmt::format("Shard({}, turn {})", shard->dim, shard->turn);
  if (const Partial* partial = std::get_if<Partial>(&placement))
    return fmt::format("Partial({})", partial->op.name());
  return "Replicate";
}

std::string str(const Placements& placements) {
  std::vector<std::string> texts;
  for (const Placement& placement : placements) texts.push_back(str(placement));
  return fmt::format("[{}]", fmt::join(texts, ", "));
}

Placements checked_placements(const Placements& placements, int ndim, std::size_t axes,
                              const char* where) {
  TESSERA_CHECK(placements.size() == axes, where,
                "{} placements {} for a mesh of {} axes; give one for each", placements.size(),
                str(placements), axes);
  Placements out = placements;
  for (Placement& placement : out) {
    Shard* shard = std::get_if<Shard>(&placement);
    if (shard == nullptr) continue;
    TESSERA_CHECK(shard->dim >= -ndim && shard->dim < ndim, where,
                  "{} in {} does not fit a tensor of {} dims; a dim lies in [-ndim, ndim)",
                  str(placement), str(placements), ndim);
    TESSERA_CHECK(shard->turn >= 0, where, "{} in {}: a turn is 0 or more", str(placement),
                  str(placements));
    if (shard->dim < 0) shard->dim += ndim;
  }
  return out;
}

std::vector<std::size_t> shard_order(const Placements& placements) {
  std::vector<std::pair<int, std::size_t>> turns;
  for (std::size_t axis = 0; axis < placements.size(); ++axis) {
    if (const Shard* shard = std::get_if<Shard>(&placements[axis]))
      turns.emplace_back(shard->turn, axis);
  }
  std::sort(turns.begin(), turns.end());
  std::vector<std::size_t> out;
  for (const auto& [turn, axis] : turns) out.push_back(axis);
  return out;
}

Box local_box(const Shape& global, const Placements& placements, const MeshPlace& place) {
  check_place(place);
  const Placements fitting =
      checked_placements(placements, global.ndim(), place.shape.size(), "local_box");
  Box box{.offset = Shape::filled(global.ndim(), 0), .extent = global};
  for (const std::size_t axis : shard_order(fitting)) {
    const int dim = std::get<Shard>(fitting[axis]).dim;
    const Chunk chunk = chunk_of(box.extent[dim], place.shape[axis], place.coordinates[axis]);
    box.offset[dim] += chunk.begin;
    box.extent[dim] = chunk.rows();
  }
  return box;
}

Shape local_shape(const Shape& global, const Placements& placements, const MeshPlace& place) {
  return local_box(global, placements, place).extent;
}

Shape padded_shape(const Shape& global, const Placements& placements,
                   const std::vector<int>& mesh_shape) {
  return local_shape(global, placements,
                     {.shape = mesh_shape, .coordinates = std::vector<int>(mesh_shape.size(), 0)});
}

}  // namespace tessera::distributed
