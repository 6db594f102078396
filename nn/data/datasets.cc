#include "tessera/nn/data/datasets.h"

#include "tessera/tensor/check.h"

namespace tessera::nn::data::detail {

std::int64_t checked_rows(const Tensor* tensors, std::size_t count) {
  constexpr const char* kWhere = "nn.TensorDataset";
  TESSERA_CHECK(count > 0, kWhere, "there are no tensors; give at least one");
  for (std::size_t i = 0; i < count; ++i) {
    const Tensor& each = tensors[i];
    TESSERA_CHECK(each.defined(), kWhere, "tensor {} is undefined", i);
    TESSERA_CHECK(each.device().is_cpu(), kWhere,
                  "tensor {} is on {}; data sets are on the CPU, the loader copies batches to a "
                  "device",
                  i, each.device().str());
    TESSERA_CHECK(each.ndim() >= 1 && each.dim(0) == tensors[0].dim(0), kWhere,
                  "tensor {} has shape {}, the first one {}; they need equally many rows", i,
                  each.shape().str(), tensors[0].shape().str());
  }
  return tensors[0].dim(0);
}

void check_index(const char* where, std::int64_t index, std::int64_t size) {
  TESSERA_CHECK(index >= 0 && index < size, where, "example {} of {}", index, size);
}

void check_indices(const std::vector<std::int64_t>& indices, std::int64_t size) {
  for (std::size_t i = 0; i < indices.size(); ++i)
    TESSERA_CHECK(indices[i] >= 0 && indices[i] < size, "nn.Subset",
                  "index {} is {}; the data set has {} examples", i, indices[i], size);
}

}  // namespace tessera::nn::data::detail
