#pragma once

/// Softmax, and losses that contain it, fused: separate operations would be slower or less
/// accurate. Operands may have any strides. 16-bit values are computed in f32 and rounded once.

#include "tessera/tensor/tensor.h"

namespace tessera {

/// y = exp(x - max) / sum(exp(x - max)) over `dim`. Floating, at least 1 dim. A row is NaN if it
/// contains NaN or +inf, or only -inf.
Tensor softmax(const Tensor& x, int dim = -1);
/// x - max - log(sum(exp(x - max))) over `dim`.
Tensor log_softmax(const Tensor& x, int dim = -1);
/// y * (dy - sum(dy * y)), where y = softmax(x, dim). dy and y have one shape and dtype.
Tensor softmax_backward(const Tensor& dy, const Tensor& y, int dim = -1);
/// dy - exp(y) * sum(dy), where y = log_softmax(x, dim).
Tensor log_softmax_backward(const Tensor& dy, const Tensor& y, int dim = -1);

/// How the losses of the rows are combined.
enum class Reduction : std::uint8_t { kNone, kMean, kSum };

struct CrossEntropyOptions {
  Reduction reduction = Reduction::kMean;
  std::int64_t ignore_index = -100;  ///< rows with this target are ignored
  double label_smoothing = 0;        ///< in [0, 1]: the part of the target spread over all classes
  Tensor weight = {};                ///< [classes], floating, one per class; undefined: all 1
};

/// Cross entropy of logits [..., classes] with class indices [...] (i64 or i32), including softmax.
/// With p = softmax(logits), w the weights and s the smoothing, for each row
///     loss = -(1 - s) w[target] log p[target] - s / classes * sum_c w[c] log p[c],
/// and 0 if the target is ignore_index. kNone -> [...], in logits' dtype; else 0-d: kSum adds the
/// rows, kMean divides that sum by the sum of w[target] over the rows that are not ignored (NaN if
/// there are none). This is PyTorch's definition.
///
/// A target that is neither ignore_index nor in [0, classes) throws InvalidArgument with row and
/// value. The kernel finds it, so on a queued stream the next host wait throws it.
Tensor cross_entropy(const Tensor& logits, const Tensor& targets,
                     const CrossEntropyOptions& options = {});

/// The parts: the loss of each row, and the values for the derivative. Shaped like targets; f32 for
/// 16-bit logits, else logits' dtype.
struct CrossEntropyResult {
  Tensor loss;         ///< 0 in ignored rows
  Tensor log_sum_exp;  ///< log(sum(exp(logits)))
  Tensor row_weight;   ///< w[target]; 0 in ignored rows
};
CrossEntropyResult cross_entropy_rows(const Tensor& logits, const Tensor& targets,
                                      const CrossEntropyOptions& options = {});

struct ReducedLoss {
  Tensor loss;          ///< has the requested `dtype`
  Tensor total_weight;  ///< the sum of row_weight; undefined unless kMean
};
ReducedLoss reduce_loss(const CrossEntropyResult& rows, Reduction reduction, DType dtype);

/// The gradient of logits from the gradient of each row's loss, `dloss`, which has the dtype and
/// shape of log_sum_exp:
///   dloss ((1 - s) w[target] (p - onehot(target)) + s / classes (p sum_c w[c] - w)),
/// and 0 in ignored rows.
Tensor cross_entropy_rows_backward(const Tensor& dloss, const Tensor& logits, const Tensor& targets,
                                   const Tensor& log_sum_exp,
                                   const CrossEntropyOptions& options = {});
/// The same bits, written over the logits, which saves the memory of a result. The other operands
/// must not share memory with the logits, and the logits must not have overlapping elements (from
/// expand), else InvalidArgument. Non-contiguous logits that do not have 2 dims need a temporary
/// copy.
void cross_entropy_rows_backward_(const Tensor& logits, const Tensor& dloss, const Tensor& targets,
                                  const Tensor& log_sum_exp,
                                  const CrossEntropyOptions& options = {});

}  // namespace tessera
