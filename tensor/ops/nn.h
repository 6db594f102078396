#pragma once

/// Softmax, and losses that have it inside: fused, because their parts would be slower or less
/// exact. Operands may have any strides. Values of 16 bits are computed in f32 and rounded once.

#include "tessera/tensor/tensor.h"

namespace tessera {

/// y = exp(x - max) / sum(exp(x - max)) over `dim`. Floating, at least 1 dim. NaN where a row of
/// `dim` holds NaN, +inf or nothing but -inf.
Tensor softmax(const Tensor& x, int dim = -1);
/// x - max - log(sum(exp(x - max))) over `dim`.
Tensor log_softmax(const Tensor& x, int dim = -1);
/// y * (dy - sum(dy * y)), where y = softmax(x, dim). dy and y of one shape and dtype.
Tensor softmax_backward(const Tensor& dy, const Tensor& y, int dim = -1);
/// dy - exp(y) * sum(dy), where y = log_softmax(x, dim).
Tensor log_softmax_backward(const Tensor& dy, const Tensor& y, int dim = -1);

/// What becomes of a loss per row.
enum class Reduction : std::uint8_t { kNone, kMean, kSum };

struct CrossEntropyOptions {
  Reduction reduction = Reduction::kMean;
  std::int64_t ignore_index = -100;  ///< rows with this target count for nothing
  double label_smoothing = 0;        ///< in [0, 1]: the share of the target given to all classes
  Tensor weight = {};                ///< [classes], floating, of each class; undefined: all 1
};

/// Cross entropy of logits [..., classes] with class indices [...] (i64 or i32), softmax included.
/// With p = softmax(logits), w the weights and s the smoothing, per row
///     loss = -(1 - s) w[target] log p[target] - s / classes * sum_c w[c] log p[c],
/// 0 where the target is ignore_index. kNone -> [...], in logits' dtype; else 0-d: kSum adds the
/// rows, kMean divides that by the sum of w[target] over the rows that count, which is NaN when
/// none does. This is PyTorch's definition.
///
/// A target that is neither ignore_index nor in [0, classes) throws InvalidArgument naming row and
/// value; the kernel finds it, so on a queued stream the error arrives at the next host wait.
Tensor cross_entropy(const Tensor& logits, const Tensor& targets,
                     const CrossEntropyOptions& options = {});

/// The pieces: what the rows lose and what the derivative needs, shaped like targets, in f32 for
/// logits of 16 bits, else in logits' dtype.
struct CrossEntropyResult {
  Tensor loss;         ///< 0 in rows that are ignored
  Tensor log_sum_exp;  ///< log(sum(exp(logits)))
  Tensor row_weight;   ///< w[target]; 0 in rows that are ignored
};
CrossEntropyResult cross_entropy_rows(const Tensor& logits, const Tensor& targets,
                                      const CrossEntropyOptions& options = {});

struct ReducedLoss {
  Tensor loss;          ///< of `dtype`
  Tensor total_weight;  ///< the sum of row_weight; undefined but for kMean
};
ReducedLoss reduce_loss(const CrossEntropyResult& rows, Reduction reduction, DType dtype);

/// The gradient of logits from that of each row's loss, `dloss`, of the dtype and shape of
/// log_sum_exp:
///   dloss ((1 - s) w[target] (p - onehot(target)) + s / classes (p sum_c w[c] - w)),
/// and 0 in rows that are ignored.
Tensor cross_entropy_rows_backward(const Tensor& dloss, const Tensor& logits, const Tensor& targets,
                                   const Tensor& log_sum_exp,
                                   const CrossEntropyOptions& options = {});
/// The same bits, written over the logits, which saves the memory of a result. The other operands
/// must not share memory with the logits, and the logits must not repeat elements (expand), else
/// InvalidArgument. Logits of other than 2 dims that are not contiguous take a copy for the time.
void cross_entropy_rows_backward_(const Tensor& logits, const Tensor& dloss, const Tensor& targets,
                                  const Tensor& log_sum_exp,
                                  const CrossEntropyOptions& options = {});

}  // namespace tessera
