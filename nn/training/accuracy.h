#pragma once

/// The fraction of predictions that are right. No gradients.
///
///     running.add(accuracy(logits, labels), labels.numel());   // running_mean.h

#include <cstdint>

#include "tessera/autograd/variable.h"
#include "tessera/tensor/ops/nn.h"
#include "tessera/tensor/tensor.h"

namespace tessera::nn {

/// Whether the class with the largest logit is the label, for floating logits [..., classes] and
/// labels [...] (i64 or i32; a label that is no class is never right): kMean is the fraction, 0-d
/// f32, NaN without labels; kSum the number, 0-d f32, exact below 2^24; kNone bool [...]. Of equal
/// logits argmax chooses. Throws InvalidArgument for shapes that do not match.
Tensor accuracy(const Tensor& logits, const Tensor& labels,
                LossReduction reduction = LossReduction::kMean);
Tensor accuracy(const Variable& logits, const Tensor& labels,
                LossReduction reduction = LossReduction::kMean);

/// Whether the label is among the k classes with the largest logits; of equal logits topk chooses.
/// Also throws InvalidArgument for k outside [1, classes].
Tensor top_k_accuracy(const Tensor& logits, const Tensor& labels, std::int64_t k,
                      LossReduction reduction = LossReduction::kMean);
Tensor top_k_accuracy(const Variable& logits, const Tensor& labels, std::int64_t k,
                      LossReduction reduction = LossReduction::kMean);

}  // namespace tessera::nn
