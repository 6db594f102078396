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
Variable roll(const Variable& x, std::int64_t shift, int dim);
Variable flip(const Variable& x, const Dims& dims);
Variable repeat(const Variable& x, const Shape& repeats);
Variable tile(const Variable& x, const Shape& repeats);
Variable repeat_interleave(const Variable& x, std::int64_t count, int dim);
Variable tril(const Variable& x, std::int64_t diagonal = 0);
Variable triu(const Variable& x, std::int64_t diagonal = 0);

}  // namespace tessera
