#pragma once

/// Collectives over an axis of a mesh as differentiable operations. All twice.
///
/// Which gradient a collective has depends on what the loss is:
///
/// - **Every rank has a loss of its own, and what is trained is their sum** over the ranks of the
///   axis (data, experts). The gradient of a rank's x is that of the sum, so what the others made
///   of x counts. all_reduce, all_gather, reduce_scatter and all_to_all are for this case; the
///   derivative of each is its adjoint.
/// - **What follows is the same on every rank, and its loss counts once** (the halves of a tensor
///   parallel layer). Then y = all_reduce(x) with the gradient above would count the loss `size`
///   times. copy_to_ranks and reduce_from_ranks are for this case: the first stands where the
///   ranks' work on one x begins, the second where it is added up.
///
/// all_to_all moves elements and is right in both cases.
///
/// Tensors are floating where a gradient is asked for, and have any strides. Collective in forward
/// and in backward: the ranks of the axis record the same operations, x requires a gradient on all
/// of them or on none, and all run the same backward. A rank to whose result no gradient came joins
/// with zeros, if its pass comes by. Throw InvalidArgument for a null mesh and as Mesh does. The
/// graph holds the mesh.

#include <memory>
#include <string>

#include "tessera/autograd/variable.h"
#include "tessera/nn/mesh.h"

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

/// y = x, which is the same on all ranks; dx = sum of every rank's dy: each rank goes on with work
/// of its own on x.
Variable copy_to_ranks(const Variable& x, const std::shared_ptr<const Mesh>& mesh,
                       const std::string& axis);
/// y = sum of every rank's x; dx = dy, which is the same on all ranks.
Variable reduce_from_ranks(const Variable& x, const std::shared_ptr<const Mesh>& mesh,
                           const std::string& axis);

}  // namespace tessera::nn
