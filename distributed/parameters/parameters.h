#pragma once

/// Tensors and parameters over a mesh: cutting a whole one, putting the parts together again, and
/// asking how a parameter lies.
///
///     const Placements rows = {Shard{0}};
///     Tensor mine = distribute(whole, mesh, rows);
///     Tensor again = full_copy({.local = mine, .global_shape = whole.shape(), .mesh = mesh,
///                               .placements = rows});
///
/// A parameter says by itself how it lies, and its gradient lies the same way: grad() has local()'s
/// shape and is that of the whole loss. So mesh_of(p) and placements_of(p) hold for both.
///
/// What is marked collective is called by every rank of the mesh, and works on the current stream.

#include <string>
#include <vector>

#include "tessera/distributed/mesh/device_mesh.h"
#include "tessera/distributed/mesh/placement.h"
#include "tessera/nn/parameter.h"

namespace tessera::distributed {

/// This rank's part of a tensor that every rank holds whole: a contiguous copy, without
/// communication and without padding. Throws InvalidArgument for placements that do not fit, and
/// for Partial: a whole has no terms.
Tensor distribute(const Tensor& full, const DeviceMesh& mesh, const Placements& placements);

/// One rank's part of a tensor, and how the parts lie.
struct PlacedTensor {
  Tensor local;  ///< real rows only
  Shape global_shape;
  DeviceMesh mesh;
  Placements placements;
};
/// The whole tensor, in memory of its own, on every rank. Terms are reduced in rank order, the
/// innermost axis first, then the parts are gathered, the last cut first. Throws InvalidArgument
/// for placements that do not fit and a local tensor of another shape than they say. Collective.
Tensor full_copy(const PlacedTensor& part);

/// What ShardSpec says of it: this rank's box, the axes whose ranks hold different elements, the
/// cuts in their order. Throws as distribute().
nn::ShardSpec shard_spec(const Shape& global_shape, const DeviceMesh& mesh,
                         const Placements& placements);
/// By axis of a mesh with these axes; those that do not cut replicate. Turns are the lowest that
/// give the order of the cuts. Throws InvalidArgument for a cut along another axis, or along one
/// twice, and where boxes are cut but it is not said how.
Placements placements_of(const nn::ShardSpec& spec, const std::vector<std::string>& axes);

/// Undefined for a parameter that is not sharded.
DeviceMesh mesh_of(const nn::Parameter& parameter);
/// By axis of mesh_of(); none where that is undefined.
Placements placements_of(const nn::Parameter& parameter);
/// All of local(), whatever the parameter's state: a copy. Throws StateError before it is
/// materialised. Collective.
Tensor full_copy(const nn::Parameter& parameter);
/// All of grad(); undefined where there is none, which all ranks of the mesh agree on. Collective.
Tensor full_grad(const nn::Parameter& parameter);

}  // namespace tessera::distributed
