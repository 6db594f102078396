#include "tessera/autograd/ops/diagonal.h"

#include "tessera/autograd/function.h"
#include "tessera/autograd/ops/elementwise.h"
#include "tessera/autograd/ops/reduce.h"
#include "tessera/autograd/ops/view.h"
#include "tessera/tensor/ops/composed/diagonal.h"

namespace tessera {

template <>
Variable composed::on_diagonal(const Variable& x, std::int64_t offset) {
  return record_twice("diag_embed", diag_embed(x.tensor(), offset), {x},
                      [offset](const Variable& dy, const BackwardContext&) {
                        return Gradients{diagonal(dy, offset, -2, -1)};
                      });
}

Variable diag(const Variable& x, std::int64_t diagonal) { return composed::diag(x, diagonal); }

Variable diag_embed(const Variable& x, std::int64_t offset, int dim0, int dim1) {
  return composed::diag_embed(x, offset, dim0, dim1);
}

Variable trace(const Variable& x) { return composed::trace(x); }

}  // namespace tessera
