/// Those functions of ops/shape.h that are made of others.

#include "tessera/autograd/function.h"
#include "tessera/autograd/ops/elementwise.h"
#include "tessera/autograd/ops/index.h"
#include "tessera/autograd/ops/shape.h"
#include "tessera/autograd/ops/view.h"
#include "tessera/tensor/ops/composed/shape.h"

namespace tessera {
namespace {

Variable pad_backward(const Variable& dy, const std::vector<Padding>& padding, PadMode mode) {
  return record_twice("pad_backward", composed::pad_backward(dy.tensor(), padding, mode), {dy},
                      [=](const Variable& ddx, const BackwardContext&) {
                        return Gradients{pad(ddx, padding, mode)};
                      });
}

}  // namespace

Variable pad(const Variable& x, const std::vector<Padding>& padding, PadMode mode) {
  if (mode == PadMode::kConstant) return pad(x, padding, 0);
  return record_twice("pad", pad(x.tensor(), padding, mode), {x},
                      [=](const Variable& dy, const BackwardContext&) {
                        return Gradients{pad_backward(dy, padding, mode)};
                      });
}

Variable roll(const Variable& x, std::int64_t shift) { return composed::roll(x, shift); }

Variable roll(const Variable& x, const std::vector<std::int64_t>& shifts, const DimList& dims) {
  return composed::roll(x, shifts, dims);
}

Variable fliplr(const Variable& x) { return composed::fliplr(x); }

Variable flipud(const Variable& x) { return composed::flipud(x); }

Variable rot90(const Variable& x, std::int64_t times, int dim0, int dim1) {
  return composed::rot90(x, times, dim0, dim1);
}

Variable repeat_interleave(const Variable& x, const Tensor& counts, int dim,
                           const RepeatInterleaveOptions& options) {
  return composed::repeat_interleave(x, counts, dim, options);
}

Variable ravel(const Variable& x) { return composed::ravel(x); }

Variable reshape_as(const Variable& x, const Variable& other) {
  return composed::reshape_as(x, other);
}

}  // namespace tessera
