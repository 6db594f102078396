#include "tessera/tensor/ops/diagonal.h"

#include "tessera/tensor/ops/composed/diagonal.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/mask.h"
#include "tessera/tensor/ops/view.h"

namespace tessera {

template <>
Tensor composed::on_diagonal(const Tensor& x, std::int64_t offset) {
  const std::int64_t size = x.dim(-1) + std::abs(offset);
  Shape matrices = x.shape().with(x.ndim() - 1, size);
  matrices.push_back(size);
  const Tensor out = zeros(matrices, x.options());
  copy_(out.diagonal(offset, -2, -1), x);
  return out;
}

namespace {

// The number of elements of row i with j - i <= diagonal.
std::int64_t row_length(std::int64_t i, std::int64_t columns, std::int64_t diagonal) {
  return std::clamp<std::int64_t>(i + diagonal + 1, 0, columns);
}

// The positions of the lower triangle, or of the rest. Their number follows from the extents.
Tensor triangle_indices(const char* where, std::int64_t rows, std::int64_t columns,
                        std::int64_t diagonal, bool lower, const TensorOptions& options) {
  TESSERA_CHECK(rows >= 0 && columns >= 0, where, "{} rows and {} columns must not be negative",
                rows, columns);
  TESSERA_CHECK(options.dtype == DType::kI64 || options.dtype == DType::kI32, where,
                "the dtype is {}; it must be i64 or i32", dtype_name(options.dtype));
  const std::int64_t inside = std::clamp(diagonal, -rows - 1, columns + 1);
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < rows; ++i) count += row_length(i, columns, inside);
  const Tensor all = ones({rows, columns}, {.dtype = DType::kBool, .device = options.device});
  const Tensor kept = tril(all, inside);
  const Tensor places = lower ? nonzero_static(kept, count)
                              : nonzero_static(logical_not(kept), rows * columns - count);
  return contiguous(cast(places, options.dtype).transpose(0, 1));
}

}  // namespace

Tensor diag(const Tensor& x, std::int64_t diagonal) { return composed::diag(x, diagonal); }

Tensor diag_embed(const Tensor& x, std::int64_t offset, int dim0, int dim1) {
  return composed::diag_embed(x, offset, dim0, dim1);
}

Tensor trace(const Tensor& x) { return composed::trace(x); }

Tensor tril_indices(std::int64_t rows, std::int64_t columns, std::int64_t diagonal,
                    const TensorOptions& options) {
  return triangle_indices("tril_indices", rows, columns, diagonal, true, options);
}

Tensor triu_indices(std::int64_t rows, std::int64_t columns, std::int64_t diagonal,
                    const TensorOptions& options) {
  return triangle_indices("triu_indices", rows, columns, diagonal - 1, false, options);
}

}  // namespace tessera
