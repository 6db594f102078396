#pragma once

/// Adam and AdamW, with PyTorch's definitions (Kingma and Ba, "Adam", 2014; Loshchilov and Hutter,
/// "Decoupled weight decay regularization", 2017; Reddi et al., "On the convergence of Adam and
/// beyond", 2018); per element, t counting a parameter's updates from 1:
///
///     Adam:  g = +-grad + weight_decay * p                   minus to maximize
///     AdamW: g = +-grad,  p = p - lr * weight_decay * p
///     m = beta1 m + (1 - beta1) g,  v = beta2 v + (1 - beta2) g^2
///     amsgrad: h = max(h, v), and h in place of v below
///     p = p - lr / (1 - beta1^t) * m / (sqrt(v / (1 - beta2^t)) + eps)
///
/// State: "exp_avg" (m), "exp_avg_sq" (v), with amsgrad "max_exp_avg_sq" (h), each of local()'s
/// shape. One launch a step, whatever the number of parameters and groups.

#include <array>

#include "tessera/nn/optim/group_optimizer.h"

namespace tessera::nn::optim {

struct AdamOptions {
  double lr = 1e-3;                            ///< >= 0
  std::array<double, 2> betas = {0.9, 0.999};  ///< in [0, 1)
  double eps = 1e-8;
  double weight_decay = 0;
  bool amsgrad = false;
  bool maximize = false;
};

struct AdamWOptions {
  double lr = 1e-3;                            ///< >= 0
  std::array<double, 2> betas = {0.9, 0.999};  ///< in [0, 1)
  double eps = 1e-8;
  double weight_decay = 1e-2;
  bool amsgrad = false;
  bool maximize = false;
};

/// What both share.
template <class Options>
class AdamFamily : public GroupOptimizer<Options> {
 protected:
  void update(const std::vector<Parameter>& parameters) override;
  bool applies_gradient_scale() const override { return true; }
  void check_options(const Options& options) const override;
  OptionList list_options(Options& options) const override;
  std::vector<std::string> state_names(const Options& options) const override;
};
extern template class AdamFamily<AdamOptions>;
extern template class AdamFamily<AdamWOptions>;

class Adam final : public AdamFamily<AdamOptions> {
 public:
  /// Throw InvalidArgument for no parameters, one in two groups, or options outside their ranges.
  Adam(const std::vector<Parameter>& parameters, const AdamOptions& options);
  Adam(const Module& module,
       const AdamOptions& options) = delete;  ///< Adam(module.parameters(), ...)
  explicit Adam(std::vector<Group> groups);
  std::string type_name() const override { return "Adam"; }
};

class AdamW final : public AdamFamily<AdamWOptions> {
 public:
  /// As Adam's.
  AdamW(const std::vector<Parameter>& parameters, const AdamWOptions& options);
  AdamW(const Module& module,
        const AdamWOptions& options) = delete;  ///< AdamW(module.parameters(), ...)
  explicit AdamW(std::vector<Group> groups);
  std::string type_name() const override { return "AdamW"; }
};

}  // namespace tessera::nn::optim
