#include "tessera/tensor/kernels/cross_entropy.h"
#include "tessera/tensor/kernels/launch.h"
#include "tessera/tensor/kernels/resolve.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/internal/elementwise_launch.h"
#include "tessera/tensor/ops/internal/op_checks.h"
#include "tessera/tensor/ops/internal/overlap.h"
#include "tessera/tensor/ops/nn.h"
#include "tessera/tensor/ops/reduce.h"

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
constexpr const char* kBackwardInPlace = "cross_entropy_rows_backward_";

// The part, with the number of all classes.
ClassPart checked_part(const char* where, const Tensor& logits, const ClassPart& part) {
  const std::int64_t columns = logits.dim(-1);
  if (part.classes == 0 && part.first == 0) return {.classes = columns};
  TESSERA_CHECK(
      part.first >= 0 && columns <= part.classes - part.first, where,
      "logits of shape {} are {} classes from {} on, of {} in all parts; they must lie in "
      "[0, {})",
      logits.shape().str(), columns, part.first, part.classes, part.classes);
  return part;
}

void check_options(const char* where, const Tensor& logits, const CrossEntropyOptions& options,
                   const ClassPart& part) {
  TESSERA_CHECK(options.label_smoothing >= 0 && options.label_smoothing <= 1, where,
                "label_smoothing is {}; it must lie in [0, 1]", options.label_smoothing);
  if (!options.weight.defined()) return;
  ops::check_floating(where, options.weight);
  ops::check_same_device(where, logits, options.weight);
  TESSERA_CHECK(options.weight.shape() == Shape{part.classes}, where,
                "the weight has shape {}; logits of shape {} need one of shape {}",
                options.weight.shape().str(), logits.shape().str(), Shape{part.classes}.str());
}

void check_rows(const char* where, const Tensor& logits, const Tensor& targets) {
  ops::check_defined(where, "logits", logits);
  ops::check_defined(where, "targets", targets);
  ops::check_floating(where, logits);
  ops::check_same_device(where, logits, targets);
  TESSERA_CHECK(targets.dtype() == DType::kI64 || targets.dtype() == DType::kI32, where,
                "targets have dtype {}; they must be i64 or i32", dtype_name(targets.dtype()));
  TESSERA_CHECK(
      logits.ndim() >= 1 && targets.shape() == logits.shape().without(logits.ndim() - 1), where,
      "needs logits [..., classes] and targets [...], got {} and {}; classes are the last "
      "dim, not the second one as in PyTorch",
      logits.shape().str(), targets.shape().str());
}

void check_row_values(const char* where, const Tensor& logits, const char* name,
                      const Tensor& values) {
  ops::check_defined(where, name, values);
  ops::check_same_device(where, logits, values);
  const DType dtype = compute_dtype(logits.dtype());
  const Shape rows = logits.shape().without(logits.ndim() - 1);
  TESSERA_CHECK(values.dtype() == dtype, where, "{} has dtype {}, expected {}; cast it", name,
                dtype_name(values.dtype()), dtype_name(dtype));
  TESSERA_CHECK(values.shape() == rows, where, "{} has shape {}, expected {}", name,
                values.shape().str(), rows.str());
}

Tensor as_matrix(const Tensor& logits) {
  if (logits.ndim() == 2) return logits;
  const Shape leading = logits.shape().without(logits.ndim() - 1);
  return reshape(logits, {leading.numel(), logits.dim(-1)});
}

// As one dim; a view if the elements have one common stride.
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
  CrossEntropyTargets arguments(const CrossEntropyOptions& options, const ClassPart& part,
                                BadTarget bad_target) const {
    return {.targets = read(indices),
            .weight = weight.defined() ? read(weight) : ConstView{},
            .first = part.first,
            .classes = part.classes,
            .ignore_index = options.ignore_index,
            .smoothing = options.label_smoothing,
            .bad_target = bad_target};
  }
};

// The operands of the derivative besides the logits.
struct BackwardOperands {
  const Tensor& dloss;
  const Tensor& targets;
  const Tensor& log_sum_exp;
  const CrossEntropyOptions& options;
  ClassPart part;
};

void check_backward(const char* where, const Tensor& logits, BackwardOperands& in) {
  check_rows(where, logits, in.targets);
  in.part = checked_part(where, logits, in.part);
  check_options(where, logits, in.options, in.part);
  check_row_values(where, logits, "dloss", in.dloss);
  check_row_values(where, logits, "log_sum_exp", in.log_sum_exp);
}

void check_apart(const char* name, const Tensor& logits, const Tensor& x) {
  TESSERA_CHECK(!x.defined() || !ops::overlap(x, logits), kBackwardInPlace,
                "the memory of {} is that of the logits, which are written over; clone() it", name);
}

// `logits` and `dlogits` are matrices, and may be the same one.
template <const char* const& where>
void launch_backward(const Tensor& logits, const BackwardOperands& in, const View& dlogits) {
  const Targets t(logits, in.targets, in.options);
  const Tensor d = as_rows(in.dloss), l = as_rows(contiguous(in.log_sum_exp));
  launch<CrossEntropyBackwardKernel>(
      logits.device(), {.dloss = read(d),
                        .logits = read(logits),
                        .targets = t.arguments(in.options, in.part, throw_bad_target<where>),
                        .log_sum_exp = read(l),
                        .dlogits = dlogits});
}

}  // namespace

CrossEntropyResult cross_entropy_rows(const Tensor& logits, const Tensor& targets,
                                      const CrossEntropyOptions& options, const ClassPart& part) {
  check_rows(kForward, logits, targets);
  const ClassPart columns = checked_part(kForward, logits, part);
  check_options(kForward, logits, options, columns);
  const TensorOptions kind{.dtype = compute_dtype(logits.dtype()), .device = logits.device()};
  const CrossEntropyResult out{
      .loss = Tensor::empty(targets.shape(), kind),
      .log_sum_exp = Tensor::empty(targets.shape(), kind),
      .row_weight = Tensor::empty(targets.shape(), kind),
      .largest = part.classes > 0 ? Tensor::empty(targets.shape(), kind) : Tensor()};
  const Targets t(logits, targets, options);
  const Tensor x = as_matrix(logits);
  const Shape rows{targets.numel()};
  launch<CrossEntropyKernel>(
      logits.device(), {.logits = read(x),
                        .targets = t.arguments(options, columns, throw_bad_target<kForward>),
                        .loss = write(out.loss.view(rows)),
                        .log_sum_exp = write(out.log_sum_exp.view(rows)),
                        .row_weight = write(out.row_weight.view(rows)),
                        .largest = out.largest.defined() ? write(out.largest.view(rows)) : View{}});
  return out;
}

ReducedLoss reduce_loss(const CrossEntropyResult& rows, LossReduction reduction) {
  constexpr const char* kWhere = "reduce_loss";
  ops::check_defined(kWhere, "the loss", rows.loss);
  ops::check_floating(kWhere, rows.loss);
  if (reduction == LossReduction::kMean) {
    ops::check_operands(kWhere, rows.loss, rows.row_weight);
    ops::check_same_shape(kWhere, rows.loss, rows.row_weight);
  }
  switch (reduction) {
    case LossReduction::kNone:
      return {.loss = rows.loss, .total_weight = {}};
    case LossReduction::kSum:
      return {.loss = sum(rows.loss), .total_weight = {}};
    case LossReduction::kMean: {
      const Tensor total = sum(rows.row_weight);
      return {.loss = div(sum(rows.loss), total), .total_weight = total};
    }
  }
  return {};
}

Tensor cross_entropy(const Tensor& logits, const Tensor& targets,
                     const CrossEntropyOptions& options) {
  const CrossEntropyResult rows = cross_entropy_rows(logits, targets, options);
  return reduce_loss(rows, options.reduction).loss;
}

Tensor cross_entropy_rows_backward(const Tensor& dloss, const Tensor& logits, const Tensor& targets,
                                   const Tensor& log_sum_exp, const CrossEntropyOptions& options,
                                   const ClassPart& part) {
  BackwardOperands in{dloss, targets, log_sum_exp, options, part};
  check_backward(kBackward, logits, in);
  const Tensor x = as_matrix(logits);
  // If the logits had to be copied, the copy may be overwritten.
  const bool is_copy = !(x.storage() == logits.storage());
  // The products of the layer before read the result: its rows begin as the logits' do.
  const RowPitch pitch = logits.is_contiguous() ? RowPitch::kPacked : RowPitch::kAligned;
  const Tensor out =
      is_copy ? x.view(logits.shape()) : empty_rows(logits.shape(), pitch, logits.options());
  launch_backward<kBackward>(x, in, write(out.view(x.shape())));
  return out;
}

void cross_entropy_rows_backward_(const Tensor& logits, const Tensor& dloss, const Tensor& targets,
                                  const Tensor& log_sum_exp, const CrossEntropyOptions& options,
                                  const ClassPart& part) {
  BackwardOperands in{dloss, targets, log_sum_exp, options, part};
  check_backward(kBackwardInPlace, logits, in);
  ops::check_writable(kBackwardInPlace, logits);
  check_apart("dloss", logits, dloss);
  check_apart("targets", logits, targets);
  check_apart("log_sum_exp", logits, log_sum_exp);
  check_apart("the weight", logits, options.weight);
  const Tensor x = as_matrix(logits);
  const bool is_copy = !(x.storage() == logits.storage());
  launch_backward<kBackwardInPlace>(x, in, is_copy ? write(x) : overwrite(x, kBackwardInPlace));
  if (!is_copy) return;
  copy_(logits, x.view(logits.shape()));
  logits.set_last_writer(kBackwardInPlace);
}

}  // namespace tessera
