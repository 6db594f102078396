#pragma once

/// Operations of neural networks that are fused because their parts would be slower or less exact.

#include "tessera/tensor/tensor.h"

namespace tessera {

/// softmax(x)[i] = exp(x[i] - max) / sum over the last dim.
Tensor softmax(const Tensor& x);

struct CrossEntropyResult {
  Tensor loss;         ///< [rows], same dtype as logits
  Tensor log_sum_exp;  ///< [rows], what the derivative needs
};
/// Per row: log(sum(exp(logits))) - logits[target], from logits [rows, classes] and targets [rows]
/// of i64. A target outside [0, classes) throws InvalidArgument naming row and value; the kernel
/// finds it, so on a queued stream the error arrives at the next host wait.
CrossEntropyResult cross_entropy_rows(const Tensor& logits, const Tensor& targets);
/// dlogits = (softmax(logits) - onehot(target)) * dloss[row].
Tensor cross_entropy_rows_backward(const Tensor& dloss, const Tensor& logits, const Tensor& targets,
                                   const Tensor& log_sum_exp);

}  // namespace tessera
