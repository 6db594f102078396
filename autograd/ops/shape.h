#pragma once

/// The differentiable counterparts of tensor/ops/shape.h. All twice.

#include <cstdint>
#include <vector>

#include "tessera/autograd/variable.h"
#include "tessera/tensor/ops/shape.h"

namespace tessera {

Variable cat(const std::vector<Variable>& variables, int dim = 0);
Variable stack(const std::vector<Variable>& variables, int dim = 0);

/// The parts share one node: their gradients are put together once.
std::vector<Variable> split(const Variable& x, const std::vector<std::int64_t>& sizes, int dim = 0);
std::vector<Variable> split(const Variable& x, std::int64_t size, int dim = 0);
std::vector<Variable> chunk(const Variable& x, std::int64_t chunks, int dim = 0);
std::vector<Variable> unbind(const Variable& x, int dim = 0);

Variable pad(const Variable& x, const std::vector<Padding>& padding, double value = 0);
Variable pad(const Variable& x, const std::vector<Padding>& padding, PadMode mode);
Variable roll(const Variable& x, std::int64_t shift, int dim);
Variable roll(const Variable& x, const std::vector<std::int64_t>& shifts, const DimList& dims);
Variable roll(const Variable& x, std::int64_t shift);
Variable flip(const Variable& x, const DimList& dims);
Variable fliplr(const Variable& x);
Variable flipud(const Variable& x);
Variable rot90(const Variable& x, std::int64_t times = 1, int dim0 = 0, int dim1 = 1);
Variable repeat(const Variable& x, const Shape& repeats);
Variable tile(const Variable& x, const Shape& repeats);
Variable repeat_interleave(const Variable& x, std::int64_t count, int dim);
Variable repeat_interleave(const Variable& x, const Tensor& counts, int dim,
                           const RepeatInterleaveOptions& options = {});
Variable ravel(const Variable& x);
Variable reshape_as(const Variable& x, const Variable& other);
Variable tril(const Variable& x, std::int64_t diagonal = 0);
Variable triu(const Variable& x, std::int64_t diagonal = 0);

}  // namespace tessera
