#include "tessera/tensor/ops/view.h"

#include "tessera/tensor/ops/composed/view.h"
#include "tessera/tensor/ops/internal/op_checks.h"

namespace tessera {

Tensor movedim(const Tensor& x, const DimList& from, const DimList& to) {
  return x.permute(composed::moved_dims(x.ndim(), from, to));
}

Tensor unfold(const Tensor& x, int dim, std::int64_t size, std::int64_t step) {
  ops::check_defined("unfold", "the tensor", x);
  return x.unfold(dim, size, step);
}

}  // namespace tessera
