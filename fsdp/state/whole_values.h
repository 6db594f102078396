#pragma once

/// From a rank's part of a parameter to the whole and back. What goes in has local()'s shape:
/// local() itself, its gradient, a state of the optimizer.
///
/// There are two wholes. value()'s is what this rank computes with: of a parameter that tensor
/// parallelism cut, the part that is this rank's. The other is the parameter over all ranks,
/// spec().global_shape.

#include <string>
#include <vector>

#include "tessera/distributed/mesh/placement.h"
#include "tessera/nn/parameter.h"

namespace tessera::fsdp {

/// Axes of the parameter's mesh whose ranks have equal value()s: those that data parallelism split
/// or replicated it over. None for a parameter that nobody sharded.
std::vector<std::string> value_axes(const nn::Parameter& parameter);

/// All of value()'s shape, in memory of its own. Collective over the parameter's mesh, as the next.
Tensor gather_value(const nn::Parameter& parameter, const Tensor& part);
/// This rank's part of that: a view.
Tensor part_of_value(const nn::Parameter& parameter, const Tensor& value);

/// All of the global shape, in memory of its own.
Tensor gather_whole(const nn::Parameter& parameter, const Tensor& part);
/// Writes this rank's part of `whole`, of any dtype and device, into `part`.
void copy_from_whole(const nn::Parameter& parameter, const Tensor& part, const Tensor& whole);

}  // namespace tessera::fsdp
