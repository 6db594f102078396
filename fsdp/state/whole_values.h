#pragma once

/// Conversion between a rank's part of a parameter and the full tensor. A part has the shape of
/// local(): local() itself, its gradient, or an optimizer state.
///
/// There are two full tensors. One has the shape of value(), which this rank computes with; for a
/// tensor-parallel parameter that is this rank's shard. The other is the parameter over all ranks,
/// of spec().global_shape.

#include <string>
#include <vector>

#include "tessera/distributed/mesh/placement.h"
#include "tessera/nn/parameter.h"

namespace tessera::fsdp {

/// The axes of the parameter's mesh along which value() is equal: those over which data parallelism
/// shards or replicates it. Empty for a parameter that is not sharded.
std::vector<std::string> value_axes(const nn::Parameter& parameter);

/// The full tensor of value()'s shape, in memory of its own. Collective over the parameter's mesh,
/// as is gather_whole().
Tensor gather_value(const nn::Parameter& parameter, const Tensor& part);
/// This rank's part of it: a view.
Tensor part_of_value(const nn::Parameter& parameter, const Tensor& value);

/// The full tensor of the global shape, in memory of its own.
Tensor gather_whole(const nn::Parameter& parameter, const Tensor& part);
/// Copies this rank's part of `whole` (of any dtype and device) into `part`.
void copy_from_whole(const nn::Parameter& parameter, const Tensor& part, const Tensor& whole);

}  // namespace tessera::fsdp
