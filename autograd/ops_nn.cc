#include "tessera/tensor/ops_nn.h"

#include "tessera/autograd/function.h"
#include "tessera/autograd/ops.h"
#include "tessera/tensor/ops_elementwise.h"
#include "tessera/tensor/ops_reduce.h"

namespace tessera {
namespace {

Tensor reduced(const Tensor& loss, Reduction reduction) {
  switch (reduction) {
    case Reduction::kNone:
      return loss;
    case Reduction::kMean:
      return mean(loss);
    case Reduction::kSum:
      return sum(loss);
  }
  return loss;
}

// The gradient of each row's loss from that of the reduced one.
Tensor row_gradient(const Tensor& dy, std::int64_t rows, Reduction reduction) {
  switch (reduction) {
    case Reduction::kNone:
      return dy;
    case Reduction::kMean:
      return mul(dy, 1.0 / static_cast<double>(rows)).expand({rows});
    case Reduction::kSum:
      return dy.expand({rows});
  }
  return dy;
}

}  // namespace

Variable cross_entropy(const Variable& logits, const Tensor& targets, Reduction reduction) {
  CrossEntropyResult rows = cross_entropy_rows(logits.tensor(), targets);
  return record("cross_entropy", reduced(rows.loss, reduction), {logits},
                [logits = Saved(logits, "cross_entropy"), targets = Saved(targets, "cross_entropy"),
                 log_sum_exp = Saved(rows.log_sum_exp, "cross_entropy"),
                 reduction](const Tensor& dy, const BackwardContext&) {
                  const Tensor dloss = row_gradient(dy, logits.unpack().dim(0), reduction);
                  return std::vector<Tensor>{cross_entropy_rows_backward(
                      dloss, logits.unpack(), targets.unpack(), log_sum_exp.unpack())};
                });
}

}  // namespace tessera
