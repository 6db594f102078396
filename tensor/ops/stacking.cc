#include "tessera/tensor/ops/stacking.h"

#include "tessera/tensor/ops/composed/stacking.h"
#include "tessera/tensor/ops/view.h"

namespace tessera {

Tensor atleast_1d(const Tensor& x) { return composed::with_dims("atleast_1d", x, 1); }

Tensor atleast_2d(const Tensor& x) { return composed::with_dims("atleast_2d", x, 2); }

Tensor atleast_3d(const Tensor& x) { return composed::with_dims("atleast_3d", x, 3); }

Tensor hstack(const std::vector<Tensor>& tensors) { return composed::hstack(tensors); }

Tensor vstack(const std::vector<Tensor>& tensors) { return composed::vstack("vstack", tensors); }

Tensor row_stack(const std::vector<Tensor>& tensors) {
  return composed::vstack("row_stack", tensors);
}

Tensor dstack(const std::vector<Tensor>& tensors) { return composed::dstack(tensors); }

Tensor column_stack(const std::vector<Tensor>& tensors) { return composed::column_stack(tensors); }

Tensor block_diag(const std::vector<Tensor>& tensors) { return composed::block_diag(tensors); }

std::vector<Tensor> tensor_split(const Tensor& x, std::int64_t sections, int dim) {
  return composed::tensor_split(x, sections, dim);
}

std::vector<Tensor> tensor_split(const Tensor& x, const std::vector<std::int64_t>& starts,
                                 int dim) {
  return composed::tensor_split(x, starts, dim);
}

std::vector<Tensor> hsplit(const Tensor& x, std::int64_t sections) {
  return composed::split_evenly("hsplit", x, sections, 1);
}

std::vector<Tensor> hsplit(const Tensor& x, const std::vector<std::int64_t>& starts) {
  return composed::tensor_split(x, starts, composed::split_dim("hsplit", x, 1));
}

std::vector<Tensor> vsplit(const Tensor& x, std::int64_t sections) {
  return composed::split_evenly("vsplit", x, sections, 0);
}

std::vector<Tensor> vsplit(const Tensor& x, const std::vector<std::int64_t>& starts) {
  return composed::tensor_split(x, starts, composed::split_dim("vsplit", x, 0));
}

std::vector<Tensor> dsplit(const Tensor& x, std::int64_t sections) {
  return composed::split_evenly("dsplit", x, sections, 2);
}

std::vector<Tensor> dsplit(const Tensor& x, const std::vector<std::int64_t>& starts) {
  return composed::tensor_split(x, starts, composed::split_dim("dsplit", x, 2));
}

std::vector<Tensor> broadcast_tensors(const std::vector<Tensor>& tensors) {
  return composed::broadcast_tensors(tensors);
}

std::vector<Tensor> meshgrid(const std::vector<Tensor>& tensors, MeshIndexing indexing) {
  return composed::meshgrid(tensors, indexing);
}

Tensor cartesian_prod(const std::vector<Tensor>& tensors) {
  return composed::cartesian_prod(tensors);
}

}  // namespace tessera
