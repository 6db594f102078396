#pragma once

/// The differentiable counterparts of tensor/ops/order.h: the gradient goes to the elements that
/// were chosen. All twice. For positions alone (argmax, argsort) use the tensor's operations.

#include "tessera/autograd/variable.h"
#include "tessera/tensor/ops/order.h"

namespace tessera {

struct VariableAndIndices {
  Variable values;
  Tensor indices;
};

VariableAndIndices max(const Variable& x, int dim, bool keep_dims = false);
VariableAndIndices min(const Variable& x, int dim, bool keep_dims = false);
/// Equal extremes share the gradient evenly, as in amax.
Variable max(const Variable& x);
Variable min(const Variable& x);
VariableAndIndices sort(const Variable& x, int dim = -1, const SortOptions& options = {});
VariableAndIndices topk(const Variable& x, std::int64_t k, int dim = -1,
                        const TopkOptions& options = {});
VariableAndIndices kthvalue(const Variable& x, std::int64_t k, int dim = -1,
                            bool keep_dims = false);
VariableAndIndices median(const Variable& x, int dim, bool keep_dims = false);
VariableAndIndices nanmedian(const Variable& x, int dim, bool keep_dims = false);
/// Elements equal to the median share the gradient evenly.
Variable median(const Variable& x);
Variable nanmedian(const Variable& x);
VariableAndIndices mode(const Variable& x, int dim = -1, bool keep_dims = false);

}  // namespace tessera
