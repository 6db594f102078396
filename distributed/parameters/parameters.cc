#include "tessera/distributed/parameters/parameters.h"

#include <algorithm>
#include <span>
#include <utility>

#include "tessera/distributed/collectives.h"
#include "tessera/distributed/parameters/mesh_impl.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"

namespace tessera::distributed {
namespace {

// One axis shards one dim: its ranks have chunks of `extent` elements.
struct AxisShard {
  std::size_t axis;
  int dim;
  std::int64_t extent;
};

// On this rank: a later axis shards what the earlier ones left here.
std::vector<AxisShard> shards_of(const Shape& global, const Placements& placements,
                                 const MeshPlace& place) {
  Shape extent = global;
  std::vector<AxisShard> out;
  for (const std::size_t axis : shard_order(placements)) {
    const int dim = std::get<Shard>(placements[axis]).dim;
    out.push_back({axis, dim, extent[dim]});
    extent[dim] = chunk_of(extent[dim], place.shape[axis], place.coordinates[axis]).rows();
  }
  return out;
}

MeshPlace place_in(const DeviceMesh& mesh) {
  return {.shape = mesh.shape(), .coordinates = mesh.coordinates()};
}

Placements whole_placements(const Placements& placements, int ndim, const DeviceMesh& mesh,
                            const char* where) {
  for (const Placement& placement : placements) {
    TESSERA_CHECK(!std::holds_alternative<Partial>(placement), where,
                  "{} in {}: a whole tensor has no terms; use Shard or Replicate", str(placement),
                  str(placements));
  }
  return checked_placements(placements, ndim, static_cast<std::size_t>(mesh.ndim()), where);
}

Tensor box_of(Tensor whole, const Box& box) {
  for (int d = 0; d < whole.ndim(); ++d) whole = whole.narrow(d, box.offset[d], box.extent[d]);
  return whole;
}

// Gathers a tensor sharded over an axis. Parts are sent padded to the largest; only the last ones
// are short, so the padding ends up after the last real row.
Tensor gathered(const Tensor& part, const AxisShard& shard, const DeviceMesh& mesh) {
  const std::string& axis = mesh.axes()[shard.axis];
  const int ranks = mesh.size(axis);
  const Tensor rows = part.movedim(shard.dim, 0);
  const std::int64_t padded = chunk_of(shard.extent, ranks, 0).padded_rows;
  const Tensor sent = Tensor::empty(rows.shape().with(0, padded), part.options());
  copy_(sent.narrow(0, 0, rows.dim(0)), rows);
  if (rows.dim(0) < padded) fill_(sent.slice(0, rows.dim(0), padded), 0);
  const Tensor all = Tensor::empty(rows.shape().with(0, padded * ranks), part.options());
  all_gather(*mesh.group(axis), std::span(&sent, 1), std::span(&all, 1), "full_copy " + axis);
  return all.narrow(0, 0, shard.extent).movedim(0, shard.dim);
}

Tensor full_copy_of(const nn::Parameter& parameter, const Tensor& local) {
  const DeviceMesh mesh = mesh_of(parameter);
  if (!mesh.defined()) return clone(local);
  return full_copy({.local = local,
                    .global_shape = parameter.spec().global_shape,
                    .mesh = mesh,
                    .placements = placements_of(parameter)});
}

}  // namespace

Tensor distribute(const Tensor& full, const DeviceMesh& mesh, const Placements& placements) {
  const Placements fitting = whole_placements(placements, full.ndim(), mesh, "distribute");
  return clone(box_of(full, local_box(full.shape(), fitting, place_in(mesh))));
}

Tensor full_copy(const PlacedTensor& part) {
  const DeviceMesh& mesh = part.mesh;
  const MeshPlace place = place_in(mesh);
  const Placements placements = checked_placements(part.placements, part.global_shape.ndim(),
                                                   place.shape.size(), "full_copy");
  const Shape expected = local_shape(part.global_shape, placements, place);
  TESSERA_CHECK(part.local.shape() == expected, "full_copy",
                "the local tensor has shape {}, but of {} as {} over {} this rank has {}; pass the "
                "real rows of its part",
                part.local.shape().str(), part.global_shape.str(), str(placements), mesh.str(),
                expected.str());
  Tensor out = clone(part.local);
  for (std::size_t axis = placements.size(); axis-- > 0;) {
    const Partial* partial = std::get_if<Partial>(&placements[axis]);
    if (partial == nullptr) continue;
    all_reduce(*mesh.group(mesh.axes()[axis]), std::span(&out, 1), partial->op, "full_copy");
  }
  const std::vector<AxisShard> shards = shards_of(part.global_shape, placements, place);
  for (auto each = shards.rbegin(); each != shards.rend(); ++each) out = gathered(out, *each, mesh);
  return contiguous(out);
}

nn::ShardSpec shard_spec(const Shape& global_shape, const DeviceMesh& mesh,
                         const Placements& placements) {
  const Placements fitting = whole_placements(placements, global_shape.ndim(), mesh, "shard_spec");
  const Box box = local_box(global_shape, fitting, place_in(mesh));
  nn::ShardSpec spec{.global_shape = global_shape,
                     .boxes = {{.offset = box.offset, .extent = box.extent}},
                     .sharded_axes = {}};
  // As the first rank sees it, so that all say the same: a rank with no elements left has nothing
  // to cut, and the others have.
  const MeshPlace first{.shape = mesh.shape(),
                        .coordinates = std::vector<int>(mesh.shape().size(), 0)};
  std::vector<std::size_t> sharded;
  for (const AxisShard& each : shards_of(global_shape, fitting, first)) {
    const std::string& axis = mesh.axes()[each.axis];
    spec.cuts.push_back({.axis = axis, .dim = each.dim});
    if (mesh.size(axis) > 1 && each.extent > 0) sharded.push_back(each.axis);
  }
  std::sort(sharded.begin(), sharded.end());
  for (const std::size_t axis : sharded) spec.sharded_axes.push_back(mesh.axes()[axis]);
  return spec;
}

Placements placements_of(const nn::ShardSpec& spec, const std::vector<std::string>& axes) {
  TESSERA_CHECK(!spec.cuts.empty() || spec.is_whole(), "placements_of",
                "a tensor of shape {} is sharded over {}, but its spec has no cuts; make specs by "
                "shard_spec()",
                spec.global_shape.str(), fmt::join(spec.sharded_axes, ", "));
  Placements out(axes.size(), Replicate{});
  for (std::size_t i = 0; i < spec.cuts.size(); ++i) {
    const nn::ShardCut& cut = spec.cuts[i];
    const auto found = std::find(axes.begin(), axes.end(), cut.axis);
    TESSERA_CHECK(found != axes.end(), "placements_of", "a cut along axis \"{}\"; the mesh has: {}",
                  cut.axis, fmt::join(axes, ", "));
    const auto axis = static_cast<std::size_t>(found - axes.begin());
    TESSERA_CHECK(std::holds_alternative<Replicate>(out[axis]), "placements_of",
                  "two cuts along axis \"{}\"", cut.axis);
    Shard shard{.dim = cut.dim};
    for (std::size_t before = i; before-- > 0;) {  // the cut before this one of the same dim
      if (spec.cuts[before].dim != cut.dim) continue;
      const auto outer = static_cast<std::size_t>(
          std::find(axes.begin(), axes.end(), spec.cuts[before].axis) - axes.begin());
      shard.turn = std::get<Shard>(out[outer]).turn + (outer > axis ? 1 : 0);
      break;
    }
    out[axis] = shard;
  }
  return out;
}

DeviceMesh mesh_of(const nn::Parameter& parameter) { return device_mesh_of(*parameter.mesh()); }

Placements placements_of(const nn::Parameter& parameter) {
  const DeviceMesh mesh = mesh_of(parameter);
  if (!mesh.defined()) return {};
  return placements_of(parameter.spec(), mesh.axes());
}

Tensor full_copy(const nn::Parameter& parameter) {
  return full_copy_of(parameter, parameter.local().tensor());
}

Tensor full_grad(const nn::Parameter& parameter) {
  const Tensor grad = parameter.grad();
  return grad.defined() ? full_copy_of(parameter, grad) : Tensor();
}

}  // namespace tessera::distributed
