#include "tessera/autograd/ops/mask.h"

#include "tessera/autograd/function.h"
#include "tessera/autograd/ops/elementwise.h"
#include "tessera/autograd/ops/index.h"
#include "tessera/autograd/ops/reduce.h"
#include "tessera/autograd/ops/shape.h"
#include "tessera/autograd/ops/view.h"
#include "tessera/tensor/ops/composed/masks.h"

namespace tessera {

Variable masked_select(const Variable& x, const Tensor& mask) {
  return composed::masked_select(x, mask);
}

Variable masked_scatter(const Variable& x, const Tensor& mask, const Variable& source) {
  return composed::masked_scatter(x, mask, source);
}

Variable masked_fill(const Variable& x, const Tensor& mask, double value) {
  return record_twice("masked_fill", masked_fill(x.tensor(), mask, value), {x},
                      [from = x.shape(), mask = SavedTensor(mask, "masked_fill")](
                          const Variable& dy, const BackwardContext&) {
                        return Gradients{sum_to_shape(masked_fill(dy, mask.unpack(), 0), from)};
                      });
}

Variable masked_fill(const Variable& x, const Tensor& mask, const Variable& value) {
  return composed::masked_fill(x, mask, value);
}

}  // namespace tessera
