#pragma once

/// Adadelta with PyTorch's definition (Zeiler, "ADADELTA: an adaptive learning rate method", 2012); per element:
///
///     g = +-grad + weight_decay * p                                  minus to maximize
///     v = rho v + (1 - rho) g^2
///     d = sqrt(u + eps) / sqrt(v + eps) * g
///     u = rho u + (1 - rho) d^2
///     p = p - lr * d
///
/// State: "square_avg" (v), "acc_delta" (u), each of local()'s shape.

#include "tessera/nn/optim/group_optimizer.h"

namespace tessera::nn::optim {

struct AdadeltaOptions {
  double lr = 1;     ///< >= 0
  double rho = 0.9;  ///< in [0, 1]
  double eps = 1e-6;
  double weight_decay = 0;
  bool maximize = false;
};

class Adadelta final : public GroupOptimizer<AdadeltaOptions> {
 public:
  /// Throw InvalidArgument for no parameters, one in two groups, or options outside their ranges.
  Adadelta(const std::vector<Parameter>& parameters, const AdadeltaOptions& options);
  Adadelta(const Module& module,
           const AdadeltaOptions& options) = delete;  ///< Adadelta(module.parameters(), ...)
  explicit Adadelta(std::vector<Group> groups);

  std::string type_name() const override { return "Adadelta"; }

 private:
  void update(const std::vector<Parameter>& parameters) override;
  void check_options(const AdadeltaOptions& options) const override;
  OptionList list_options(AdadeltaOptions& options) const override;
  std::vector<std::string> state_names(const AdadeltaOptions& options) const override;
};

}  // namespace tessera::nn::optim
