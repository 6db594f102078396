#include "tessera/nn/training/accuracy.h"

#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/ops.h"

namespace tessera::nn {
namespace {

void check(const char* where, const Tensor& logits, const Tensor& labels) {
  TESSERA_CHECK(logits.defined() && labels.defined(), where, "{} undefined",
                logits.defined() ? "the labels are" : "the logits are");
  TESSERA_CHECK(is_floating(logits.dtype()), where, "the logits are {}; they must be floating",
                dtype_name(logits.dtype()));
  TESSERA_CHECK(labels.dtype() == DType::kI64 || labels.dtype() == DType::kI32, where,
                "the labels are {}; they must be i64 or i32", dtype_name(labels.dtype()));
  const bool matches =
      logits.ndim() >= 1 && labels.shape() == logits.shape().without(logits.ndim() - 1);
  TESSERA_CHECK(matches, where,
                "logits of shape {} need labels of that shape without classes, got {}",
                logits.shape().str(), labels.shape().str());
  TESSERA_CHECK(logits.dim(-1) >= 1, where, "logits of shape {} have no classes",
                logits.shape().str());
}

Tensor reduced(const Tensor& right, LossReduction reduction) {
  switch (reduction) {
    case LossReduction::kNone:
      return right;
    case LossReduction::kSum:
      return sum(cast(right, DType::kF32));
    case LossReduction::kMean:
      return mean(cast(right, DType::kF32));
  }
  return {};
}

}  // namespace

Tensor accuracy(const Tensor& logits, const Tensor& labels, LossReduction reduction) {
  check("nn.accuracy", logits, labels);
  return reduced(eq(argmax(logits), labels), reduction);
}

Tensor accuracy(const Variable& logits, const Tensor& labels, LossReduction reduction) {
  return accuracy(logits.tensor(), labels, reduction);
}

Tensor top_k_accuracy(const Tensor& logits, const Tensor& labels, std::int64_t k,
                      LossReduction reduction) {
  constexpr const char* kWhere = "nn.top_k_accuracy";
  check(kWhere, logits, labels);
  TESSERA_CHECK(k >= 1 && k <= logits.dim(-1), kWhere, "k is {} of {} classes", k, logits.dim(-1));
  const Tensor largest = topk(logits, k).indices;
  return reduced(any(eq(largest, labels.unsqueeze(-1)), {-1}), reduction);
}

Tensor top_k_accuracy(const Variable& logits, const Tensor& labels, std::int64_t k,
                      LossReduction reduction) {
  return top_k_accuracy(logits.tensor(), labels, k, reduction);
}

}  // namespace tessera::nn
