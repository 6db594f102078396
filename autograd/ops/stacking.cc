#include "tessera/autograd/ops/stacking.h"

#include "tessera/autograd/ops/elementwise.h"
#include "tessera/autograd/ops/shape.h"
#include "tessera/autograd/ops/view.h"
#include "tessera/tensor/ops/composed/stacking.h"

namespace tessera {

Variable atleast_1d(const Variable& x) { return composed::with_dims("atleast_1d", x, 1); }

Variable atleast_2d(const Variable& x) { return composed::with_dims("atleast_2d", x, 2); }

Variable atleast_3d(const Variable& x) { return composed::with_dims("atleast_3d", x, 3); }

Variable hstack(const std::vector<Variable>& variables) { return composed::hstack(variables); }

Variable vstack(const std::vector<Variable>& variables) {
  return composed::vstack("vstack", variables);
}

Variable row_stack(const std::vector<Variable>& variables) {
  return composed::vstack("row_stack", variables);
}

Variable dstack(const std::vector<Variable>& variables) { return composed::dstack(variables); }

Variable column_stack(const std::vector<Variable>& variables) {
  return composed::column_stack(variables);
}

Variable block_diag(const std::vector<Variable>& variables) {
  return composed::block_diag(variables);
}

std::vector<Variable> tensor_split(const Variable& x, std::int64_t sections, int dim) {
  return composed::tensor_split(x, sections, dim);
}

std::vector<Variable> tensor_split(const Variable& x, const std::vector<std::int64_t>& starts,
                                   int dim) {
  return composed::tensor_split(x, starts, dim);
}

std::vector<Variable> hsplit(const Variable& x, std::int64_t sections) {
  return composed::split_evenly("hsplit", x, sections, 1);
}

std::vector<Variable> hsplit(const Variable& x, const std::vector<std::int64_t>& starts) {
  return composed::tensor_split(x, starts, composed::split_dim("hsplit", x, 1));
}

std::vector<Variable> vsplit(const Variable& x, std::int64_t sections) {
  return composed::split_evenly("vsplit", x, sections, 0);
}

std::vector<Variable> vsplit(const Variable& x, const std::vector<std::int64_t>& starts) {
  return composed::tensor_split(x, starts, composed::split_dim("vsplit", x, 0));
}

std::vector<Variable> dsplit(const Variable& x, std::int64_t sections) {
  return composed::split_evenly("dsplit", x, sections, 2);
}

std::vector<Variable> dsplit(const Variable& x, const std::vector<std::int64_t>& starts) {
  return composed::tensor_split(x, starts, composed::split_dim("dsplit", x, 2));
}

std::vector<Variable> broadcast_tensors(const std::vector<Variable>& variables) {
  return composed::broadcast_tensors(variables);
}

std::vector<Variable> meshgrid(const std::vector<Variable>& variables, MeshIndexing indexing) {
  return composed::meshgrid(variables, indexing);
}

Variable cartesian_prod(const std::vector<Variable>& variables) {
  return composed::cartesian_prod(variables);
}

}  // namespace tessera
