#pragma once

/// Adamax with PyTorch's definition (Kingma and Ba, "Adam", 2014, section 7.1); per element, t counting a parameter's
/// updates from 1:
///
///     g = +-grad + weight_decay * p                                  minus to maximize
///     m = beta1 m + (1 - beta1) g
///     u = max(beta2 u, |g| + eps)
///     p = p - lr / (1 - beta1^t) * m / u
///
/// State: "exp_avg" (m), "exp_inf" (u), each of local()'s shape.

#include <array>

#include "tessera/nn/optim/group_optimizer.h"

namespace tessera::nn::optim {

struct AdamaxOptions {
  double lr = 2e-3;                            ///< >= 0
  std::array<double, 2> betas = {0.9, 0.999};  ///< in [0, 1)
  double eps = 1e-8;
  double weight_decay = 0;
  bool maximize = false;
};

class Adamax final : public GroupOptimizer<AdamaxOptions> {
 public:
  /// Throw InvalidArgument for no parameters, one in two groups, or options outside their ranges.
  Adamax(const std::vector<Parameter>& parameters, const AdamaxOptions& options);
  Adamax(const Module& module,
         const AdamaxOptions& options) = delete;  ///< Adamax(module.parameters(), ...)
  explicit Adamax(std::vector<Group> groups);

  std::string type_name() const override { return "Adamax"; }

 private:
  void update(const std::vector<Parameter>& parameters) override;
  void check_options(const AdamaxOptions& options) const override;
  OptionList list_options(AdamaxOptions& options) const override;
  std::vector<std::string> state_names(const AdamaxOptions& options) const override;
};

}  // namespace tessera::nn::optim
