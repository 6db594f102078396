#pragma once

/// The order of dims that movedim() of several dims gives. For the .cc files that define it.

#include <algorithm>
#include <vector>

#include "tessera/tensor/check.h"
#include "tessera/tensor/dims.h"

namespace tessera::composed {

/// For permute().
inline std::vector<int> moved_dims(int ndim, const DimList& from, const DimList& to) {
  constexpr const char* kWhere = "movedim";
  TESSERA_CHECK(from.size() == to.size(), kWhere,
                "{} dims are moved to {} places; give as many of both", from.size(), to.size());
  const DimMask leaves = dim_mask(from, ndim, kWhere);
  dim_mask(to, ndim, kWhere);
  std::vector<int> order(static_cast<std::size_t>(ndim), -1);
  for (int i = 0; i < from.size(); ++i) {
    const auto place = static_cast<std::size_t>(normalize_dim(to.begin()[i], ndim, kWhere));
    order[place] = normalize_dim(from.begin()[i], ndim, kWhere);
  }
  int next = 0;
  for (int& dim : order) {
    if (dim >= 0) continue;
    while (leaves[static_cast<std::size_t>(next)]) ++next;
    dim = next++;
  }
  return order;
}

}  // namespace tessera::composed
