#pragma once

/// Collectives over an axis of a mesh as differentiable operations. All twice.
///
/// Which gradient a collective has depends on what the loss is:
///
/// - **Every rank has a loss of its own, and their sum is minimised** over the ranks of the
///   axis (data, experts). The gradient of a rank's x is that of the sum, so it includes the other
///   ranks' use of x. all_reduce, all_gather, reduce_scatter and all_to_all are for this case; the
///   derivative of each is its adjoint.
/// - **What follows is the same on every rank, and its loss counts once** (tensor parallel layers).
///   Then y = all_reduce(x) with the gradient above would count the loss `size` times.
///   copy_to_ranks, reduce_from_ranks, gather_from_ranks and split_to_ranks are for this case: a
///   whole tensor is the same on all ranks, and so is its gradient. copy_to_ranks stands where the
///   ranks' work on one x begins, reduce_from_ranks where it is added up; gather_from_ranks and
///   split_to_ranks go from parts to the whole and back.
///
/// Where parts are parts of one loss, a rank's gradient of its part is the whole one, and
/// all_gather begins the ranks' work on what the parts make together, reduce_scatter ends it with
/// a part of the sum for each: copy_to_ranks after gather_from_ranks, split_to_ranks after
/// reduce_from_ranks, in one collective each way. all_to_all moves elements and is right in both
/// cases.
///
/// Parts of a dim are cut by the rule of torch.chunk: n elements over `size` ranks in chunks of
/// ceil(n / size), the last ones short or empty. They are sent padded.
///
/// Tensors are floating where a gradient is asked for, and have any strides. Collective in forward
/// and in backward: the ranks of the axis record the same operations, x requires a gradient on all
/// of them or on none, and all run the same backward. A rank whose result got no gradient joins
/// with zeros, if its pass reaches the node. Throw InvalidArgument for a null mesh and as Mesh
/// does. The graph holds the mesh.

#include <cstdint>
#include <memory>
#include <string>

#include "tessera/autograd/variable.h"
#include "tessera/nn/mesh/mesh.h"

namespace tessera::nn {

/// y = sum of every rank's x, in rank order; dx = all_reduce of dy.
Variable all_reduce(const Variable& x, const std::shared_ptr<const Mesh>& mesh,
                    const std::string& axis);
/// [n, ...] -> [size * n, ...] in rank order, equal shapes on all ranks; dx = reduce_scatter of dy.
Variable all_gather(const Variable& x, const std::shared_ptr<const Mesh>& mesh,
                    const std::string& axis);
/// [size * n, ...] -> [n, ...]: part `rank` of the sum; dx = all_gather of dy.
Variable reduce_scatter(const Variable& x, const std::shared_ptr<const Mesh>& mesh,
                        const std::string& axis);
/// Rows as Mesh::all_to_all; dx = all_to_all of dy with the counts exchanged, which brings every
/// row back.
Variable all_to_all(const Variable& x, const std::shared_ptr<const Mesh>& mesh,
                    const std::string& axis, const RowCounts& rows);
/// The same with equal parts.
Variable all_to_all(const Variable& x, const std::shared_ptr<const Mesh>& mesh,
                    const std::string& axis);

/// This rank's part of n things over the ranks of an axis: chunk `rank` by the rule of torch.chunk.
struct RankPart {
  std::int64_t begin = 0;
  std::int64_t count = 0;
};
RankPart part_of(std::int64_t n, const Mesh& mesh, const std::string& axis);

/// The dim that ranks hold parts of.
struct PartsOptions {
  int dim = 0;              ///< negative ones count from the back
  std::int64_t extent = 0;  ///< of the whole; 0: all parts are as long as this one
};
/// This rank's part [.., part, ..] -> the whole [.., extent, ..]; dx = reduce_scatter of dy along
/// the dim. Throws InvalidArgument for a part that is not this rank's chunk of the extent.
Variable all_gather(const Variable& x, const std::shared_ptr<const Mesh>& mesh,
                    const std::string& axis, const PartsOptions& parts);
/// This rank's chunk of `dim` of the sum of every rank's x; dx = all_gather of dy along the dim.
Variable reduce_scatter(const Variable& x, const std::shared_ptr<const Mesh>& mesh,
                        const std::string& axis, int dim);

/// y = x, which is the same on all ranks; dx = sum of every rank's dy: each rank goes on with work
/// of its own on x.
Variable copy_to_ranks(const Variable& x, const std::shared_ptr<const Mesh>& mesh,
                       const std::string& axis);
/// y = sum of every rank's x; dx = dy, which is the same on all ranks.
Variable reduce_from_ranks(const Variable& x, const std::shared_ptr<const Mesh>& mesh,
                           const std::string& axis);

/// The whole, as all_gather; dx = this rank's chunk of dy, which is the same on all ranks.
Variable gather_from_ranks(const Variable& x, const std::shared_ptr<const Mesh>& mesh,
                           const std::string& axis, const PartsOptions& parts = {});
/// This rank's chunk of `dim` of x, which is the same on all ranks; dx = the whole of dy, gathered.
Variable split_to_ranks(const Variable& x, const std::shared_ptr<const Mesh>& mesh,
                        const std::string& axis, int dim = 0);

}  // namespace tessera::nn
