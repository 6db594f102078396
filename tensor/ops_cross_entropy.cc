#include "tessera/tensor/kernels/cross_entropy.h"
#include "tessera/tensor/kernels/launch.h"
#include "tessera/tensor/kernels/resolve.h"
#include "tessera/tensor/op_checks.h"
#include "tessera/tensor/ops_elementwise.h"
#include "tessera/tensor/ops_nn.h"
#include "tessera/tensor/ops_reduce.h"

namespace tessera {
namespace {

template <const char* const& where>
[[noreturn]] void throw_bad_target(std::int64_t row, std::int64_t target, std::int64_t classes) {
  throw_error<InvalidArgument>(where,
                               "target {} in row {} is outside [0, {}); targets are class indices",
                               target, row, classes);
}

constexpr const char* kForward = "cross_entropy";
constexpr const char* kBackward = "cross_entropy_rows_backward";

void check_options(const char* where, const Tensor& logits, const CrossEntropyOptions& options) {
  TESSERA_CHECK(options.label_smoothing >= 0 && options.label_smoothing <= 1, where,
                "label_smoothing is {}; it must lie in [0, 1]", options.label_smoothing);
  if (!options.weight.defined()) return;
  ops::check_floating(where, options.weight);
  ops::check_same_device(where, logits, options.weight);
  TESSERA_CHECK(options.weight.shape() == Shape{logits.dim(-1)}, where,
                "the weight has shape {}; logits of shape {} need one of shape {}",
                options.weight.shape().str(), logits.shape().str(), Shape{logits.dim(-1)}.str());
}

void check_rows(const char* where, const Tensor& logits, const Tensor& targets) {
  ops::check_defined(where, "logits", logits);
  ops::check_defined(where, "targets", targets);
  ops::check_floating(where, logits);
  ops::check_same_device(where, logits, targets);
  TESSERA_CHECK(targets.dtype() == DType::kI64 || targets.dtype() == DType::kI32, where,
                "targets have dtype {}; they must be i64 or i32", dtype_name(targets.dtype()));
  TESSERA_CHECK(logits.ndim() >= 1 && targets.shape() == logits.shape().without(logits.ndim() - 1),
                where, "needs logits [..., classes] and targets [...], got {} and {}",
                logits.shape().str(), targets.shape().str());
}

void check_row_values(const Tensor& logits, const Tensor& targets, const char* name,
                      const Tensor& values) {
  ops::check_defined(kBackward, name, values);
  ops::check_same_device(kBackward, logits, values);
  const DType dtype = compute_dtype(logits.dtype());
  TESSERA_CHECK(values.dtype() == dtype, kBackward, "{} has dtype {}, expected {}; cast it", name,
                dtype_name(values.dtype()), dtype_name(dtype));
  TESSERA_CHECK(values.shape() == targets.shape(), kBackward, "{} has shape {}, expected {}", name,
                values.shape().str(), targets.shape().str());
}

Tensor as_matrix(const Tensor& logits) {
  if (logits.ndim() == 2) return logits;
  const Shape leading = logits.shape().without(logits.ndim() - 1);
  return contiguous(logits).view({leading.numel(), logits.dim(-1)});
}

// One dim; a view of whatever walks in equal steps.
Tensor as_rows(const Tensor& x) { return x.ndim() == 1 ? x : contiguous(x).view({x.numel()}); }

Tensor in_dtype(const Tensor& x, DType dtype) { return x.dtype() == dtype ? x : cast(x, dtype); }

// Tensors that the kernel reads, kept until it is launched.
struct Targets {
  Tensor indices;
  Tensor weight;

  Targets(const Tensor& logits, const Tensor& targets, const CrossEntropyOptions& options)
      : indices(as_rows(targets)) {
    if (options.weight.defined())
      weight = contiguous(in_dtype(options.weight, compute_dtype(logits.dtype())));
  }
  CrossEntropyTargets arguments(const CrossEntropyOptions& options, BadTarget bad_target) const {
    return {.targets = read(indices),
            .weight = weight.defined() ? read(weight) : ConstView{},
            .ignore_index = options.ignore_index,
            .smoothing = options.label_smoothing,
            .bad_target = bad_target};
  }
};

}  // namespace

CrossEntropyResult cross_entropy_rows(const Tensor& logits, const Tensor& targets,
                                      const CrossEntropyOptions& options) {
  check_rows(kForward, logits, targets);
  check_options(kForward, logits, options);
  const TensorOptions kind{.dtype = compute_dtype(logits.dtype()), .device = logits.device()};
  const CrossEntropyResult out{.loss = Tensor::empty(targets.shape(), kind),
                               .log_sum_exp = Tensor::empty(targets.shape(), kind),
                               .row_weight = Tensor::empty(targets.shape(), kind)};
  const Targets t(logits, targets, options);
  const Tensor x = as_matrix(logits);
  const Shape rows{targets.numel()};
  launch<CrossEntropyKernel>(logits.device(),
                             {.logits = read(x),
                              .targets = t.arguments(options, throw_bad_target<kForward>),
                              .loss = write(out.loss.view(rows)),
                              .log_sum_exp = write(out.log_sum_exp.view(rows)),
                              .row_weight = write(out.row_weight.view(rows))});
  return out;
}

ReducedLoss reduce_loss(const CrossEntropyResult& rows, Reduction reduction, DType dtype) {
  constexpr const char* kWhere = "reduce_loss";
  ops::check_defined(kWhere, "the loss", rows.loss);
  ops::check_floating(kWhere, rows.loss);
  if (reduction == Reduction::kMean) {
    ops::check_operands(kWhere, rows.loss, rows.row_weight);
    ops::check_same_shape(kWhere, rows.loss, rows.row_weight);
  }
  switch (reduction) {
    case Reduction::kNone:
      return {.loss = in_dtype(rows.loss, dtype), .total_weight = {}};
    case Reduction::kSum:
      return {.loss = in_dtype(sum(rows.loss), dtype), .total_weight = {}};
    case Reduction::kMean: {
      const Tensor total = sum(rows.row_weight);
      return {.loss = in_dtype(div(sum(rows.loss), total), dtype), .total_weight = total};
    }
  }
  return {};
}

Tensor cross_entropy(const Tensor& logits, const Tensor& targets,
                     const CrossEntropyOptions& options) {
  const CrossEntropyResult rows = cross_entropy_rows(logits, targets, options);
  return reduce_loss(rows, options.reduction, logits.dtype()).loss;
}

Tensor cross_entropy_rows_backward(const Tensor& dloss, const Tensor& logits, const Tensor& targets,
                                   const Tensor& log_sum_exp, const CrossEntropyOptions& options) {
  check_rows(kBackward, logits, targets);
  check_options(kBackward, logits, options);
  check_row_values(logits, targets, "dloss", dloss);
  check_row_values(logits, targets, "log_sum_exp", log_sum_exp);
  const Tensor out = Tensor::empty(logits.shape(), logits.options());
  const Targets t(logits, targets, options);
  const Tensor x = as_matrix(logits), d = as_rows(dloss), l = as_rows(contiguous(log_sum_exp));
  launch<CrossEntropyBackwardKernel>(logits.device(),
                                     {.dloss = read(d),
                                      .logits = read(x),
                                      .targets = t.arguments(options, throw_bad_target<kBackward>),
                                      .log_sum_exp = read(l),
                                      .dlogits = write(out.view(x.shape()))});
  return out;
}

}  // namespace tessera
