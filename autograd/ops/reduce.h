#pragma once

/// The differentiable counterparts of tensor/ops/reduce.h. All twice. A dtype in ReduceOptions is
/// floating, and holds under autocast too.

#include "tessera/autograd/variable.h"
#include "tessera/tensor/ops/reduce.h"

namespace tessera {

Variable sum(const Variable& x, const DimList& dims = {}, bool keep_dims = false);
Variable sum(const Variable& x, const DimList& dims, const ReduceOptions& options);
Variable mean(const Variable& x, const DimList& dims = {}, bool keep_dims = false);
Variable mean(const Variable& x, const DimList& dims, const ReduceOptions& options);
/// Exact where elements are 0. (Differentiated with create_graph it takes memory for the square of
/// the number of elements of one product.)
Variable prod(const Variable& x, const DimList& dims = {}, bool keep_dims = false);
Variable prod(const Variable& x, const DimList& dims, const ReduceOptions& options);
/// Equal extremes share the gradient evenly.
Variable amax(const Variable& x, const DimList& dims = {}, bool keep_dims = false);
Variable amin(const Variable& x, const DimList& dims = {}, bool keep_dims = false);
struct VariableMinMax {
  Variable min;
  Variable max;
};
VariableMinMax aminmax(const Variable& x, const DimList& dims = {}, bool keep_dims = false);
/// The gradient of a NaN is 0.
Variable nansum(const Variable& x, const DimList& dims = {}, bool keep_dims = false);
Variable nanmean(const Variable& x, const DimList& dims = {}, bool keep_dims = false);
/// The gradient is the softmax; 0 where all elements are -inf.
Variable logsumexp(const Variable& x, const DimList& dims = {}, bool keep_dims = false);

struct VariableVarMean {
  Variable var;
  Variable mean;
};
struct VariableStdMean {
  Variable stddev;
  Variable mean;
};
Variable var(const Variable& x, const DimList& dims = {}, const VarOptions& options = {});
/// The gradient is 0 where the deviation is.
Variable stddev(const Variable& x, const DimList& dims = {}, const VarOptions& options = {});
VariableVarMean var_mean(const Variable& x, const DimList& dims = {},
                         const VarOptions& options = {});
VariableStdMean std_mean(const Variable& x, const DimList& dims = {},
                         const VarOptions& options = {});

/// The gradient is 0 where the norm is, and for p < 2 at elements that are 0. For an infinite p
/// equal extremes share it evenly; for p = 0 it is 0.
Variable norm(const Variable& x, const DimList& dims = {}, const NormOptions& options = {});

Variable sum_to_shape(const Variable& x, const Shape& shape);

}  // namespace tessera
