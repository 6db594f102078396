#pragma once

/// The notation of einsum: which label each dim of each operand has. Private to this folder.

#include <algorithm>
#include <span>
#include <string_view>
#include <vector>

#include "tessera/tensor/shape.h"

namespace tessera::ops {

/// One label for each dim. A letter stands for itself; dims under an ellipsis are -1 for the last one,
/// -2 for the one before it, ...: so the ellipses of several operands align at their ends.
using DimLabels = std::vector<int>;

struct EinsumEquation {
  std::vector<DimLabels> operands;
  DimLabels output;  ///< no label twice
};

/// Throws InvalidArgument tagged einsum for an equation that is malformed or does not fit the operands'
/// shapes.
EinsumEquation parse_einsum(std::string_view equation, std::span<const Shape> shapes);

inline bool has_label(const DimLabels& labels, int label) {
  return std::find(labels.begin(), labels.end(), label) != labels.end();
}

}  // namespace tessera::ops
