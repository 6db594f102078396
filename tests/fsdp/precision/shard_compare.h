#pragma once

/// Compares a sharded model with an unsharded one, for parameters sharded along any dims and axes.

#include <string>

#include "tessera/nn/module.h"
#include "tessera/tests/fsdp/reference.h"

namespace tessera::testing {

/// The part of a full tensor that a parameter's local() holds.
inline Tensor own_part(Tensor whole, const nn::Parameter& parameter) {
  const nn::ShardBox& box = parameter.spec().boxes.front();
  for (int dim = 0; dim < whole.ndim(); ++dim)
    whole = whole.slice(dim, box.offset[dim], box.offset[dim] + box.extent[dim]);
  return whole;
}

/// Empty if every local(), and with `gradients` every grad(), is within `tolerance` of the
/// reference's.
inline std::string compare_parts(const nn::Module& sharded, const nn::Module& reference,
                                 double tolerance, bool gradients = false) {
  const auto left = sharded.named_parameters(), right = reference.named_parameters();
  if (left.size() != right.size()) return "the models have different numbers of parameters";
  for (std::size_t i = 0; i < left.size(); ++i) {
    const nn::Parameter &a = left[i].parameter, &b = right[i].parameter;
    if (left[i].name != right[i].name) return left[i].name + " against " + right[i].name;
    const Tensor mine = gradients ? a.grad() : a.local().tensor();
    const Tensor whole = gradients ? b.grad() : b.local().tensor();
    if (mine.defined() != whole.defined()) return left[i].name + ": only one has a gradient";
    if (!mine.defined()) continue;
    const double error = worst_error(mine, own_part(whole, a));
    if (error > tolerance)
      return left[i].name + (gradients ? "'s gradient" : "") + " differs by " +
             std::to_string(error);
  }
  return {};
}

}  // namespace tessera::testing
