#include "tessera/tensor/ops_nn.h"

#include "tessera/tensor/kernels/cross_entropy.h"
#include "tessera/tensor/kernels/launch.h"
#include "tessera/tensor/kernels/resolve.h"
#include "tessera/tensor/kernels/softmax.h"
#include "tessera/tensor/op_checks.h"
#include "tessera/tensor/ops_elementwise.h"

namespace tessera {
namespace {

template <const char* const& where>
[[noreturn]] void throw_bad_target(std::int64_t row, std::int64_t target, std::int64_t classes) {
  throw_error<InvalidArgument>(where,
                               "target {} in row {} is outside [0, {}); targets are class indices",
                               target, row, classes);
}

constexpr const char* kForward = "cross_entropy_rows";
constexpr const char* kBackward = "cross_entropy_rows_backward";

void check_rows(const char* where, const Tensor& logits, const Tensor& targets) {
  ops::check_defined(where, "logits", logits);
  ops::check_defined(where, "targets", targets);
  ops::check_floating(where, logits);
  ops::check_same_device(where, logits, targets);
  TESSERA_CHECK(targets.dtype() == DType::kI64, where, "targets have dtype {}; they must be i64",
                dtype_name(targets.dtype()));
  TESSERA_CHECK(logits.ndim() == 2 && targets.ndim() == 1 && logits.dim(0) == targets.dim(0), where,
                "needs logits [rows, classes] and targets [rows], got {} and {}",
                logits.shape().str(), targets.shape().str());
}

void check_row_values(const Tensor& logits, const char* name, const Tensor& values) {
  ops::check_defined(kBackward, name, values);
  ops::check_same_dtype(kBackward, logits, values);
  ops::check_same_device(kBackward, logits, values);
  TESSERA_CHECK(values.shape() == Shape{logits.dim(0)}, kBackward, "{} has shape {}, expected {}",
                name, values.shape().str(), Shape{logits.dim(0)}.str());
}

}  // namespace

Tensor softmax(const Tensor& x) {
  ops::check_defined("softmax", "the tensor", x);
  ops::check_floating("softmax", x);
  TESSERA_CHECK(x.ndim() >= 1, "softmax", "needs at least 1 dim, got a 0-d tensor; unsqueeze it");
  const Tensor out = Tensor::empty(x.shape(), x.options());
  if (out.numel() == 0) return out;
  const Shape rows{x.numel() / x.dim(-1), x.dim(-1)};
  const Tensor input = contiguous(x);
  launch<SoftmaxKernel>(x.device(), {.x = read(input.view(rows)), .y = write(out.view(rows))});
  return out;
}

CrossEntropyResult cross_entropy_rows(const Tensor& logits, const Tensor& targets) {
  check_rows(kForward, logits, targets);
  const Shape rows{logits.dim(0)};
  const CrossEntropyResult out{.loss = Tensor::empty(rows, logits.options()),
                               .log_sum_exp = Tensor::empty(rows, logits.options())};
  const Tensor x = contiguous(logits), t = contiguous(targets);
  launch<CrossEntropyKernel>(logits.device(), {.logits = read(x),
                                               .targets = read(t),
                                               .loss = write(out.loss),
                                               .log_sum_exp = write(out.log_sum_exp),
                                               .bad_target = throw_bad_target<kForward>});
  return out;
}

Tensor cross_entropy_rows_backward(const Tensor& dloss, const Tensor& logits, const Tensor& targets,
                                   const Tensor& log_sum_exp) {
  check_rows(kBackward, logits, targets);
  check_row_values(logits, "dloss", dloss);
  check_row_values(logits, "log_sum_exp", log_sum_exp);
  const Tensor out = Tensor::empty(logits.shape(), logits.options());
  const Tensor d = contiguous(dloss), x = contiguous(logits), t = contiguous(targets),
               l = contiguous(log_sum_exp);
  launch<CrossEntropyBackwardKernel>(logits.device(), {.dloss = read(d),
                                                       .logits = read(x),
                                                       .targets = read(t),
                                                       .log_sum_exp = read(l),
                                                       .dlogits = write(out),
                                                       .bad_target = throw_bad_target<kBackward>});
  return out;
}

}  // namespace tessera
