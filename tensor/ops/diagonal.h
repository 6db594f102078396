#pragma once

/// Diagonals of matrices, and positions in their triangles. diagonal(), a view, is in view.h; tril
/// and triu are in shape.h.
///
/// Element (i, j) is on diagonal j - i. All dtypes but where a comment says otherwise; results are
/// new contiguous tensors.

#include <cstdint>

#include "tessera/tensor/tensor.h"

namespace tessera {

/// Of a matrix the diagonal [length]; of x [n] the square matrix with x on that diagonal and zeros
/// elsewhere.
Tensor diag(const Tensor& x, std::int64_t diagonal = 0);
/// x [..., n] on a diagonal of square matrices of n + |offset|, zeros elsewhere; the dims of the
/// matrices are dims dim0 and dim1 of the result.
Tensor diag_embed(const Tensor& x, std::int64_t offset = 0, int dim0 = -2, int dim1 = -1);
/// The sum of the diagonal of a matrix, 0-d; of integers i64. Not for bool.
Tensor trace(const Tensor& x);

/// The positions of the elements of a matrix [rows, columns] with j - i <= diagonal (tril) or j - i
/// >= diagonal (triu), row by row: [2, count], i64 by default.
Tensor tril_indices(std::int64_t rows, std::int64_t columns, std::int64_t diagonal = 0,
                    const TensorOptions& options = {.dtype = DType::kI64});
Tensor triu_indices(std::int64_t rows, std::int64_t columns, std::int64_t diagonal = 0,
                    const TensorOptions& options = {.dtype = DType::kI64});

}  // namespace tessera
