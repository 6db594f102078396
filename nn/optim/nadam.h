#pragma once

/// NAdam with PyTorch's definition (Dozat, "Incorporating Nesterov momentum into Adam", 2016); per element, t counting
/// a parameter's updates from 1:
///
///     g = +-grad + weight_decay * p                                  minus to maximize
///     decoupled_weight_decay: g = +-grad,  p = p - lr * weight_decay * p
///     mu_t = beta1 (1 - 0.96^(t momentum_decay) / 2)
///     m = beta1 m + (1 - beta1) g,  v = beta2 v + (1 - beta2) g^2
///     p = p - lr * ((1 - mu_t) / (1 - mu_1 ... mu_t) g + mu_t+1 / (1 - mu_1 ... mu_t+1) m)
///             / (sqrt(v / (1 - beta2^t)) + eps)
///
/// State: "exp_avg" (m), "exp_avg_sq" (v), each of local()'s shape. The product of the mu is no state, as it is in
/// PyTorch: a loaded run computes it anew from the options then.

#include <array>
#include <cstdint>
#include <map>

#include "tessera/nn/optim/group_optimizer.h"

namespace tessera::nn::optim {

struct NAdamOptions {
  double lr = 2e-3;                            ///< >= 0
  std::array<double, 2> betas = {0.9, 0.999};  ///< in [0, 1)
  double eps = 1e-8;
  double weight_decay = 0;
  double momentum_decay = 4e-3;
  bool decoupled_weight_decay = false;
  bool maximize = false;
};

class NAdam final : public GroupOptimizer<NAdamOptions> {
 public:
  /// Throw InvalidArgument for no parameters, one in two groups, or options outside their ranges.
  NAdam(const std::vector<Parameter>& parameters, const NAdamOptions& options);
  NAdam(const Module& module,
        const NAdamOptions& options) = delete;  ///< NAdam(module.parameters(), ...)
  explicit NAdam(std::vector<Group> groups);

  std::string type_name() const override { return "NAdam"; }

 private:
  void update(const std::vector<Parameter>& parameters) override;
  void check_options(const NAdamOptions& options) const override;
  OptionList list_options(NAdamOptions& options) const override;
  std::vector<std::string> state_names(const NAdamOptions& options) const override;

  /// mu_1 ... mu_t for `steps` = t updates.
  struct MuProduct {
    std::int64_t steps = 0;
    double product = 1;
  };
  double mu_product(const Parameter& parameter, std::int64_t steps);
  std::map<const void*, MuProduct> mu_products_;  // by Parameter::id()
};

}  // namespace tessera::nn::optim
