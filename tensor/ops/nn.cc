#include "tessera/tensor/ops/nn.h"

#include "tessera/tensor/kernels/launch.h"
#include "tessera/tensor/kernels/resolve.h"
#include "tessera/tensor/kernels/softmax.h"
#include "tessera/tensor/ops/internal/op_checks.h"

namespace tessera {
namespace {

// x with `dim` moved to the end; the others keep their order.
Tensor with_last(Tensor x, int dim) {
  for (int d = dim; d + 1 < x.ndim(); ++d) x = x.transpose(d, d + 1);
  return x;
}

// Checks, and returns the dim counted from the front.
int check_dim(const char* where, const Tensor& x, int dim) {
  ops::check_defined(where, "the tensor", x);
  ops::check_floating(where, x);
  TESSERA_CHECK(x.ndim() >= 1, where, "needs at least 1 dim, got a 0-d tensor; unsqueeze it");
  return normalize_dim(dim, x.ndim(), where);
}

Tensor launch_softmax(const char* where, const Tensor& x, int dim, bool log) {
  const int at = check_dim(where, x, dim);
  const Tensor out = Tensor::empty(x.shape(), x.options());
  launch<SoftmaxKernel>(x.device(),
                        {.x = read(with_last(x, at)), .y = write(with_last(out, at)), .log = log});
  return out;
}

Tensor launch_backward(const char* where, const Tensor& dy, const Tensor& y, int dim, bool log) {
  const int at = check_dim(where, y, dim);
  ops::check_operands(where, dy, y);
  ops::check_same_shape(where, dy, y);
  const Tensor out = Tensor::empty(y.shape(), y.options());
  launch<SoftmaxBackwardKernel>(y.device(), {.dy = read(with_last(dy, at)),
                                             .y = read(with_last(y, at)),
                                             .dx = write(with_last(out, at)),
                                             .log = log});
  return out;
}

}  // namespace

Tensor softmax(const Tensor& x, int dim) { return launch_softmax("softmax", x, dim, false); }

Tensor log_softmax(const Tensor& x, int dim) { return launch_softmax("log_softmax", x, dim, true); }

Tensor softmax_backward(const Tensor& dy, const Tensor& y, int dim) {
  return launch_backward("softmax_backward", dy, y, dim, false);
}

Tensor log_softmax_backward(const Tensor& dy, const Tensor& y, int dim) {
  return launch_backward("log_softmax_backward", dy, y, dim, true);
}

}  // namespace tessera
