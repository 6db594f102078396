#pragma once

/// Losses that compare with a margin, and of pairs and triples, with PyTorch's definitions. As in loss.h: values have a
/// Reduction, operands are floating and of equal shapes, else InvalidArgument; all operands but masks and indices get
/// gradients; 16 bits are computed and returned in f32. All twice.
///
/// Targets of +-1 are not checked: other values give what the formulas say.

#include <cstdint>
#include <functional>

#include "tessera/autograd/variable.h"
#include "tessera/tensor/ops/nn.h"

namespace tessera::nn {

struct MarginRankingLossOptions {
  LossReduction reduction = LossReduction::kMean;
  double margin = 0;
};
/// max(0, -target (input1 - input2) + margin), target 1 where input1 shall be the larger, else -1.
Variable margin_ranking_loss(const VariableOrTensor& input1, const VariableOrTensor& input2,
                             const VariableOrTensor& target,
                             const MarginRankingLossOptions& options = {});

struct HingeEmbeddingLossOptions {
  LossReduction reduction = LossReduction::kMean;
  double margin = 1;
};
/// input where target is 1, max(0, margin - input) where it is -1. (Where it is neither: their sum.)
Variable hinge_embedding_loss(const VariableOrTensor& input, const VariableOrTensor& target,
                              const HingeEmbeddingLossOptions& options = {});

struct CosineEmbeddingLossOptions {
  LossReduction reduction = LossReduction::kMean;
  double margin = 0;
};
/// c = the cosine of vectors [..., features]: 1 - c where target [...] is 1, max(0, c - margin) where it is -1.
Variable cosine_embedding_loss(const VariableOrTensor& input1, const VariableOrTensor& input2,
                               const VariableOrTensor& target,
                               const CosineEmbeddingLossOptions& options = {});

struct TripletMarginLossOptions {
  LossReduction reduction = LossReduction::kMean;
  double margin = 1;  ///< > 0
  double p = 2;       ///< of the norm
  double eps = 1e-6;  ///< added to each difference
  bool swap =
      false;  ///< the distance of positive and negative counts, where it is less than the anchor's
};
/// max(0, |anchor - positive| - |anchor - negative| + margin), over the last dim: [..., features] -> [...].
Variable triplet_margin_loss(const VariableOrTensor& anchor, const VariableOrTensor& positive,
                             const VariableOrTensor& negative,
                             const TripletMarginLossOptions& options = {});

/// The distance of two variables [..., features], as [...].
using DistanceFunction = std::function<Variable(const Variable&, const Variable&)>;
struct TripletMarginWithDistanceLossOptions {
  LossReduction reduction = LossReduction::kMean;
  DistanceFunction distance = {};  ///< empty: pairwise_distance with its defaults
  double margin = 1;               ///< > 0
  bool swap = false;               ///< as in TripletMarginLossOptions
};
/// triplet_margin_loss with a distance of one's own, which gives both distances one shape.
Variable triplet_margin_with_distance_loss(
    const VariableOrTensor& anchor, const VariableOrTensor& positive,
    const VariableOrTensor& negative, const TripletMarginWithDistanceLossOptions& options = {});

/// log(1 + exp(-target input)), target 1 or -1, without overflow.
Variable soft_margin_loss(const VariableOrTensor& input, const VariableOrTensor& target,
                          LossReduction reduction = LossReduction::kMean);

struct MultiMarginLossOptions {
  LossReduction reduction = LossReduction::kMean;
  std::int64_t p = 1;  ///< 1 or 2
  double margin = 1;
  Tensor weight = {};  ///< [classes], floating, of each class; undefined: all 1
};
/// weight[t] sum over classes i but t of max(0, margin - input[t] + input[i])^p / classes; input [..., classes], the
/// targets t [...], i64 or i32. A target that is no class is an InvalidArgument, at the next host wait on a queued
/// stream.
Variable multi_margin_loss(const VariableOrTensor& input, const Tensor& targets,
                           const MultiMarginLossOptions& options = {});

/// The sum over the true classes t and over the classes i that are not true of max(0, 1 - input[t] + input[i]) /
/// classes: input [..., classes] -> [...]. Targets [..., classes], i64 or i32, list the true classes of a row, up to the
/// first number below 0; one that is listed twice counts twice. A target that is no class is an InvalidArgument, as above.
/// It takes rows * classes^2 elements of memory.
Variable multilabel_margin_loss(const VariableOrTensor& input, const Tensor& targets,
                                LossReduction reduction = LossReduction::kMean);

struct MultilabelSoftMarginLossOptions {
  LossReduction reduction = LossReduction::kMean;
  Tensor weight = {};  ///< [classes], floating, of each class; undefined: all 1
};
/// The mean over the classes of weight (t softplus(-x) + (1 - t) softplus(x)): input and target [..., classes] -> [...].
Variable multilabel_soft_margin_loss(const VariableOrTensor& input, const VariableOrTensor& target,
                                     const MultilabelSoftMarginLossOptions& options = {});

}  // namespace tessera::nn
