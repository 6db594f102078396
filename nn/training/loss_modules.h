#pragma once

/// The losses of loss.h, margin_loss.h and likelihood_loss.h as modules, for code that keeps its loss as a member:
///
///     nn::HuberLoss criterion({.delta = 0.5});
///     const Variable loss = criterion(model(x), targets);
///
/// A call is the function with the module's options, which are those of the function. They have no parameters; a weight
/// in the options stays where it is when the module is moved or saved.

#include "tessera/nn/layer.h"
#include "tessera/nn/training/likelihood_loss.h"
#include "tessera/nn/training/loss.h"
#include "tessera/nn/training/margin_loss.h"

namespace tessera::nn {

/// Of losses that have no other option.
struct LossOptions {
  LossReduction reduction = LossReduction::kMean;
};

namespace detail {

template <class Derived, class OptionsOfLoss>
class LossModule : public Layer<Derived> {
 public:
  using Options = OptionsOfLoss;
  explicit LossModule(const Options& options = {}) : options_(options) {}
  const Options& options() const { return options_; }

 private:
  Options options_;
};

/// function(input, target, options).
template <class Derived, class OptionsOfLoss,
          Variable (*function)(const VariableOrTensor&, const VariableOrTensor&,
                               const OptionsOfLoss&)>
class PairLoss : public LossModule<Derived, OptionsOfLoss> {
 public:
  using LossModule<Derived, OptionsOfLoss>::LossModule;
  Variable forward(const Variable& input, const Variable& target) {
    return function(input, target, this->options());
  }
};

/// function(first, second, third, options).
template <class Derived, class OptionsOfLoss,
          Variable (*function)(const VariableOrTensor&, const VariableOrTensor&,
                               const VariableOrTensor&, const OptionsOfLoss&)>
class TripleLoss : public LossModule<Derived, OptionsOfLoss> {
 public:
  using LossModule<Derived, OptionsOfLoss>::LossModule;
  Variable forward(const Variable& first, const Variable& second, const Variable& third) {
    return function(first, second, third, this->options());
  }
};

/// function(input, class indices, options).
template <class Derived, class OptionsOfLoss,
          Variable (*function)(const VariableOrTensor&, const Tensor&, const OptionsOfLoss&)>
class ClassLoss : public LossModule<Derived, OptionsOfLoss> {
 public:
  using LossModule<Derived, OptionsOfLoss>::LossModule;
  Variable forward(const Variable& input, const Tensor& targets) {
    return function(input, targets, this->options());
  }
};

inline Variable mse(const VariableOrTensor& input, const VariableOrTensor& target,
                    const LossOptions& options) {
  return mse_loss(input, target, options.reduction);
}
inline Variable l1(const VariableOrTensor& input, const VariableOrTensor& target,
                   const LossOptions& options) {
  return l1_loss(input, target, options.reduction);
}
inline Variable soft_margin(const VariableOrTensor& input, const VariableOrTensor& target,
                            const LossOptions& options) {
  return soft_margin_loss(input, target, options.reduction);
}

inline Variable multilabel_margin(const VariableOrTensor& input, const Tensor& targets,
                                  const LossOptions& options) {
  return multilabel_margin_loss(input, targets, options.reduction);
}

}  // namespace detail

// Called with (input, target).

class MSELoss final : public detail::PairLoss<MSELoss, LossOptions, detail::mse> {
 public:
  using PairLoss::PairLoss;
};

class L1Loss final : public detail::PairLoss<L1Loss, LossOptions, detail::l1> {
 public:
  using PairLoss::PairLoss;
};

class HuberLoss final : public detail::PairLoss<HuberLoss, HuberLossOptions, huber_loss> {
 public:
  using PairLoss::PairLoss;
};

class SmoothL1Loss final
    : public detail::PairLoss<SmoothL1Loss, SmoothL1LossOptions, smooth_l1_loss> {
 public:
  using PairLoss::PairLoss;
};

class BCELoss final
    : public detail::PairLoss<BCELoss, BinaryCrossEntropyOptions, binary_cross_entropy> {
 public:
  using PairLoss::PairLoss;
};

class BCEWithLogitsLoss final
    : public detail::PairLoss<BCEWithLogitsLoss, BceWithLogitsOptions, bce_with_logits_loss> {
 public:
  using PairLoss::PairLoss;
};

class KLDivLoss final : public detail::PairLoss<KLDivLoss, KlDivOptions, kl_div> {
 public:
  using PairLoss::PairLoss;
};

class PoissonNLLLoss final
    : public detail::PairLoss<PoissonNLLLoss, PoissonNllLossOptions, poisson_nll_loss> {
 public:
  using PairLoss::PairLoss;
};

class HingeEmbeddingLoss final
    : public detail::PairLoss<HingeEmbeddingLoss, HingeEmbeddingLossOptions, hinge_embedding_loss> {
 public:
  using PairLoss::PairLoss;
};

class SoftMarginLoss final
    : public detail::PairLoss<SoftMarginLoss, LossOptions, detail::soft_margin> {
 public:
  using PairLoss::PairLoss;
};

class MultiLabelSoftMarginLoss final
    : public detail::PairLoss<MultiLabelSoftMarginLoss, MultilabelSoftMarginLossOptions,
                              multilabel_soft_margin_loss> {
 public:
  using PairLoss::PairLoss;
};

// Called with three variables.

/// (input, target, var)
class GaussianNLLLoss final
    : public detail::TripleLoss<GaussianNLLLoss, GaussianNllLossOptions, gaussian_nll_loss> {
 public:
  using TripleLoss::TripleLoss;
};

/// (input1, input2, target)
class MarginRankingLoss final
    : public detail::TripleLoss<MarginRankingLoss, MarginRankingLossOptions, margin_ranking_loss> {
 public:
  using TripleLoss::TripleLoss;
};

/// (input1, input2, target)
class CosineEmbeddingLoss final
    : public detail::TripleLoss<CosineEmbeddingLoss, CosineEmbeddingLossOptions,
                                cosine_embedding_loss> {
 public:
  using TripleLoss::TripleLoss;
};

/// (anchor, positive, negative)
class TripletMarginLoss final
    : public detail::TripleLoss<TripletMarginLoss, TripletMarginLossOptions, triplet_margin_loss> {
 public:
  using TripleLoss::TripleLoss;
};

/// (anchor, positive, negative)
class TripletMarginWithDistanceLoss final
    : public detail::TripleLoss<TripletMarginWithDistanceLoss, TripletMarginWithDistanceLossOptions,
                                triplet_margin_with_distance_loss> {
 public:
  using TripleLoss::TripleLoss;
};

// Called with (input, class indices).

class NLLLoss final : public detail::ClassLoss<NLLLoss, NllLossOptions, nll_loss> {
 public:
  using ClassLoss::ClassLoss;
};

class MultiLabelMarginLoss final
    : public detail::ClassLoss<MultiLabelMarginLoss, LossOptions, detail::multilabel_margin> {
 public:
  using ClassLoss::ClassLoss;
};

class MultiMarginLoss final
    : public detail::ClassLoss<MultiMarginLoss, MultiMarginLossOptions, multi_margin_loss> {
 public:
  using ClassLoss::ClassLoss;
};

/// Called with (logits, class indices) or (logits, class probabilities).
class CrossEntropyLoss final : public detail::LossModule<CrossEntropyLoss, CrossEntropyOptions> {
 public:
  using LossModule::LossModule;
  Variable forward(const Variable& logits, const Tensor& targets) {
    return cross_entropy(logits, targets, options());
  }
  Variable forward(const Variable& logits, const Variable& probabilities) {
    return cross_entropy(logits, probabilities, options());
  }
};

}  // namespace tessera::nn
