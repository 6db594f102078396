#include "tessera/tensor/dims.h"

#include <algorithm>

#include "tessera/tensor/check.h"

namespace tessera {

DimList::DimList(std::span<const int> dims) : count_(static_cast<int>(dims.size())) {
  TESSERA_CHECK(count_ <= kMaxDims, "dims", "{} dims are listed; tensors have at most {}", count_,
                kMaxDims);
  std::copy(dims.begin(), dims.end(), dims_.begin());
}

DimMask dim_mask(const DimList& dims, int ndim, const char* where) {
  DimMask mask{};
  const int along = std::max(ndim, 1);
  for (int dim : dims) {
    bool& entry = mask[static_cast<std::size_t>(normalize_dim(dim, along, where))];
    TESSERA_CHECK(!entry, where, "dim {} is listed twice; name each dim once", dim);
    entry = true;
  }
  return mask;
}

}  // namespace tessera
