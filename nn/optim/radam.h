#pragma once

/// RAdam with PyTorch's definition (Liu et al., "On the variance of the adaptive learning rate and beyond", 2019); per
/// element, t counting a parameter's updates from 1:
///
///     g = +-grad + weight_decay * p                                  minus to maximize
///     decoupled_weight_decay: g = +-grad,  p = p - lr * weight_decay * p
///     m = beta1 m + (1 - beta1) g,  v = beta2 v + (1 - beta2) g^2,  n = m / (1 - beta1^t)
///     r = 2 / (1 - beta2) - 1,  r_t = r - 2 t beta2^t / (1 - beta2^t)
///     r_t > 5: p = p - lr * n * sqrt((r_t - 4) (r_t - 2) r / ((r - 4) (r - 2) r_t))
///                      * sqrt(1 - beta2^t) / (sqrt(v) + eps)
///     else:    p = p - lr * n
///
/// State: "exp_avg" (m), "exp_avg_sq" (v), each of local()'s shape.

#include <array>

#include "tessera/nn/optim/group_optimizer.h"

namespace tessera::nn::optim {

struct RAdamOptions {
  double lr = 1e-3;                            ///< >= 0
  std::array<double, 2> betas = {0.9, 0.999};  ///< in [0, 1)
  double eps = 1e-8;
  double weight_decay = 0;
  bool decoupled_weight_decay = false;
  bool maximize = false;
};

class RAdam final : public GroupOptimizer<RAdamOptions> {
 public:
  /// Throw InvalidArgument for no parameters, one in two groups, or options outside their ranges.
  RAdam(const std::vector<Parameter>& parameters, const RAdamOptions& options);
  RAdam(const Module& module,
        const RAdamOptions& options) = delete;  ///< RAdam(module.parameters(), ...)
  explicit RAdam(std::vector<Group> groups);

  std::string type_name() const override { return "RAdam"; }

 private:
  void update(const std::vector<Parameter>& parameters) override;
  void check_options(const RAdamOptions& options) const override;
  OptionList list_options(RAdamOptions& options) const override;
  std::vector<std::string> state_names(const RAdamOptions& options) const override;
};

}  // namespace tessera::nn::optim
