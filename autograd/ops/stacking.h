#pragma once

/// The differentiable counterparts of tensor/ops/stacking.h. All twice.

#include <cstdint>
#include <vector>

#include "tessera/autograd/variable.h"
#include "tessera/tensor/ops/stacking.h"

namespace tessera {

Variable atleast_1d(const Variable& x);
Variable atleast_2d(const Variable& x);
Variable atleast_3d(const Variable& x);
Variable hstack(const std::vector<Variable>& variables);
Variable vstack(const std::vector<Variable>& variables);
Variable row_stack(const std::vector<Variable>& variables);
Variable dstack(const std::vector<Variable>& variables);
Variable column_stack(const std::vector<Variable>& variables);
Variable block_diag(const std::vector<Variable>& variables);
std::vector<Variable> tensor_split(const Variable& x, std::int64_t sections, int dim = 0);
std::vector<Variable> tensor_split(const Variable& x, const std::vector<std::int64_t>& starts,
                                   int dim = 0);
std::vector<Variable> hsplit(const Variable& x, std::int64_t sections);
std::vector<Variable> hsplit(const Variable& x, const std::vector<std::int64_t>& starts);
std::vector<Variable> vsplit(const Variable& x, std::int64_t sections);
std::vector<Variable> vsplit(const Variable& x, const std::vector<std::int64_t>& starts);
std::vector<Variable> dsplit(const Variable& x, std::int64_t sections);
std::vector<Variable> dsplit(const Variable& x, const std::vector<std::int64_t>& starts);
std::vector<Variable> broadcast_tensors(const std::vector<Variable>& variables);
std::vector<Variable> meshgrid(const std::vector<Variable>& variables,
                               MeshIndexing indexing = MeshIndexing::kIJ);
Variable cartesian_prod(const std::vector<Variable>& variables);

}  // namespace tessera
