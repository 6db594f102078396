#include "tessera/nn/mesh/mesh_ops.h"

#include <algorithm>
#include <functional>
#include <span>
#include <utility>

#include "tessera/autograd/function.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/ops.h"

namespace tessera::nn {
namespace {

using MeshHandle = std::shared_ptr<const Mesh>;

const Mesh& checked(const char* name, const MeshHandle& mesh) {
  TESSERA_CHECK(mesh != nullptr, name, "the mesh is null; pass local_mesh() for one rank alone");
  return *mesh;
}

// Records y = collective of x. Where no gradient of y arrives the derivative still runs, with
// zeros: the other ranks wait for this one.
Variable record_collective(const char* name, const Variable& x, const Tensor& y,
                           std::function<Variable(const Variable&)> derivative) {
  const auto backward = [shape = y.shape(), options = y.options(),
                         derivative = std::move(derivative)](const Gradients& dy,
                                                             const BackwardContext&) {
    return Gradients{derivative(dy[0].defined() ? dy[0] : Variable(zeros(shape, options)))};
  };
  return record_differentiable(name, {y}, std::span(&x, 1), backward)[0];
}

Tensor reduced(const Variable& x, const Mesh& mesh, const std::string& axis) {
  const Tensor y = clone(x.tensor());
  mesh.all_reduce(y, axis, MeshReduce::kSum);
  return y;
}

std::int64_t chunk_length(std::int64_t n, std::int64_t ranks) { return (n + ranks - 1) / ranks; }

// One dim over the ranks: this one has the elements [begin, begin + count) of `extent`.
struct AxisShard {
  int dim;
  std::int64_t extent;
  std::int64_t chunk;  // of every rank, padded
  std::int64_t begin;
  std::int64_t count;
};

AxisShard shard_of(const char* name, const Tensor& x, int dim, std::int64_t extent,
                   const Mesh& mesh, const std::string& axis) {
  const int wrapped = dim < 0 ? dim + x.ndim() : dim;
  TESSERA_CHECK(wrapped >= 0 && wrapped < x.ndim(), name,
                "a tensor of shape {} has no dim {} to have parts along", x.shape().str(), dim);
  const RankPart mine = part_of(extent, mesh, axis);
  return {wrapped, extent, chunk_length(extent, mesh.size(axis)), mine.begin, mine.count};
}

// How the whole is sharded of which x is this rank's part.
AxisShard shard_of_part(const char* name, const Tensor& x, const PartsOptions& parts,
                        const Mesh& mesh, const std::string& axis) {
  const AxisShard one = shard_of(name, x, parts.dim, 0, mesh, axis);
  const std::int64_t mine = x.dim(one.dim);
  const std::int64_t extent = parts.extent > 0 ? parts.extent : mine * mesh.size(axis);
  const AxisShard shard = shard_of(name, x, parts.dim, extent, mesh, axis);
  TESSERA_CHECK(mine == shard.count, name,
                "this rank's part {} has {} elements along dim {}; rank {} of {} has {} of {}",
                x.shape().str(), mine, shard.dim, mesh.rank(axis), mesh.size(axis), shard.count,
                extent);
  return shard;
}

AxisShard shard_of_whole(const char* name, const Tensor& x, int dim, const Mesh& mesh,
                         const std::string& axis) {
  const AxisShard shard = shard_of(name, x, dim, 0, mesh, axis);
  return shard_of(name, x, dim, x.dim(shard.dim), mesh, axis);
}

// The dim goes to the front, and has `rows` elements, zeros behind its own.
Tensor front_and_padded(const Tensor& x, int dim, std::int64_t rows) {
  const Tensor front = x.movedim(dim, 0);
  if (front.dim(0) == rows) return contiguous(front);
  const Tensor out = Tensor::empty(front.shape().with(0, rows), x.options());
  copy_(out.narrow(0, 0, front.dim(0)), front);
  fill_(out.slice(0, front.dim(0), rows), 0);
  return out;
}

Tensor gathered(const Tensor& part, const AxisShard& shard, const Mesh& mesh,
                const std::string& axis) {
  // Only the last chunks are short, so the padding comes to lie behind the last real row.
  const Tensor all = mesh.all_gather(front_and_padded(part, shard.dim, shard.chunk), axis);
  return contiguous(all.narrow(0, 0, shard.extent).movedim(0, shard.dim));
}

Tensor part_of_sum(const Tensor& whole, const AxisShard& shard, const Mesh& mesh,
                   const std::string& axis) {
  const std::int64_t rows = shard.chunk * mesh.size(axis);
  const Tensor part = mesh.reduce_scatter(front_and_padded(whole, shard.dim, rows), axis);
  return contiguous(part.narrow(0, 0, shard.count).movedim(0, shard.dim));
}

}  // namespace

RankPart part_of(std::int64_t n, const Mesh& mesh, const std::string& axis) {
  const std::int64_t chunk = chunk_length(n, mesh.size(axis));
  const std::int64_t begin = std::min(n, chunk * mesh.rank(axis));
  return {.begin = begin, .count = std::min(n, begin + chunk) - begin};
}

Variable all_reduce(const Variable& x, const MeshHandle& mesh, const std::string& axis) {
  constexpr const char* kName = "nn.all_reduce";
  const Tensor y = reduced(x, checked(kName, mesh), axis);
  return record_collective(kName, x, y,
                           [mesh, axis](const Variable& dy) { return all_reduce(dy, mesh, axis); });
}

Variable all_gather(const Variable& x, const MeshHandle& mesh, const std::string& axis) {
  constexpr const char* kName = "nn.all_gather";
  const Tensor y = checked(kName, mesh).all_gather(contiguous(x.tensor()), axis);
  return record_collective(
      kName, x, y, [mesh, axis](const Variable& dy) { return reduce_scatter(dy, mesh, axis); });
}

Variable reduce_scatter(const Variable& x, const MeshHandle& mesh, const std::string& axis) {
  constexpr const char* kName = "nn.reduce_scatter";
  const Tensor y = checked(kName, mesh).reduce_scatter(contiguous(x.tensor()), axis);
  return record_collective(kName, x, y,
                           [mesh, axis](const Variable& dy) { return all_gather(dy, mesh, axis); });
}

Variable all_to_all(const Variable& x, const MeshHandle& mesh, const std::string& axis,
                    const RowCounts& rows) {
  constexpr const char* kName = "nn.all_to_all";
  const Tensor y = checked(kName, mesh).all_to_all(contiguous(x.tensor()), axis, rows);
  const RowCounts back{.sent = rows.received, .received = rows.sent};
  return record_collective(kName, x, y, [mesh, axis, back](const Variable& dy) {
    return all_to_all(dy, mesh, axis, back);
  });
}

Variable all_to_all(const Variable& x, const MeshHandle& mesh, const std::string& axis) {
  constexpr const char* kName = "nn.all_to_all";
  return all_to_all(x, mesh, axis, checked(kName, mesh).equal_rows(x.tensor(), axis));
}

Variable all_gather(const Variable& x, const MeshHandle& mesh, const std::string& axis,
                    const PartsOptions& parts) {
  constexpr const char* kName = "nn.all_gather";
  const AxisShard shard = shard_of_part(kName, x.tensor(), parts, checked(kName, mesh), axis);
  return record_collective(kName, x, gathered(x.tensor(), shard, *mesh, axis),
                           [mesh, axis, dim = shard.dim](const Variable& dy) {
                             return reduce_scatter(dy, mesh, axis, dim);
                           });
}

Variable reduce_scatter(const Variable& x, const MeshHandle& mesh, const std::string& axis,
                        int dim) {
  constexpr const char* kName = "nn.reduce_scatter";
  const AxisShard shard = shard_of_whole(kName, x.tensor(), dim, checked(kName, mesh), axis);
  const PartsOptions parts{.dim = shard.dim, .extent = shard.extent};
  return record_collective(
      kName, x, part_of_sum(x.tensor(), shard, *mesh, axis),
      [mesh, axis, parts](const Variable& dy) { return all_gather(dy, mesh, axis, parts); });
}

Variable gather_from_ranks(const Variable& x, const MeshHandle& mesh, const std::string& axis,
                           const PartsOptions& parts) {
  constexpr const char* kName = "nn.gather_from_ranks";
  const AxisShard shard = shard_of_part(kName, x.tensor(), parts, checked(kName, mesh), axis);
  return record_collective(kName, x, gathered(x.tensor(), shard, *mesh, axis),
                           [mesh, axis, dim = shard.dim](const Variable& dy) {
                             return split_to_ranks(dy, mesh, axis, dim);
                           });
}

Variable split_to_ranks(const Variable& x, const MeshHandle& mesh, const std::string& axis,
                        int dim) {
  constexpr const char* kName = "nn.split_to_ranks";
  const AxisShard shard = shard_of_whole(kName, x.tensor(), dim, checked(kName, mesh), axis);
  const PartsOptions parts{.dim = shard.dim, .extent = shard.extent};
  return record_collective(
      kName, x, clone(x.tensor().narrow(shard.dim, shard.begin, shard.count)),
      [mesh, axis, parts](const Variable& dy) { return gather_from_ranks(dy, mesh, axis, parts); });
}

Variable copy_to_ranks(const Variable& x, const MeshHandle& mesh, const std::string& axis) {
  constexpr const char* kName = "nn.copy_to_ranks";
  checked(kName, mesh).size(axis);  // an unknown axis is an error here, not in backward
  return record_collective(kName, x, x.tensor(), [mesh, axis](const Variable& dy) {
    return reduce_from_ranks(dy, mesh, axis);
  });
}

Variable reduce_from_ranks(const Variable& x, const MeshHandle& mesh, const std::string& axis) {
  constexpr const char* kName = "nn.reduce_from_ranks";
  const Tensor y = reduced(x, checked(kName, mesh), axis);
  return record_collective(
      kName, x, y, [mesh, axis](const Variable& dy) { return copy_to_ranks(dy, mesh, axis); });
}

}  // namespace tessera::nn
