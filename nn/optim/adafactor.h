#pragma once

/// Adafactor with PyTorch's definition (Shazeer and Stern, "Adafactor: adaptive learning rates with sublinear memory
/// cost", 2018), t counting a parameter's updates from 1:
///
///     g = +-grad                                                       minus to maximize
///     rho = min(lr, 1 / sqrt(t)),  w = t^beta2_decay
///     a = max(eps2, rms(p)) rho,   p = p - lr * weight_decay * p
///     matrices, over the last two dims: r = (1 - w) r + w (mean of g^2 in each row)
///                                       c = (1 - w) c + w (mean of g^2 in each column)
///                                       v = r c / max(mean of r, eps1)
///     else: v = (1 - w) v + w g^2
///     u = g / sqrt(max(v, eps1^2)),  p = p - a u / max(1, rms(u) / d)
///
/// State of matrices: "row_var" (r) [.., rows, 1] and "col_var" (c) [.., 1, columns]: a sum of their extents, and not
/// their product; of others "variance" (v), of local()'s shape.
///
/// Whole parameters only: a step with one that is sharded over ranks throws StateError. Nothing comes to the host.

#include "tessera/nn/optim/group_optimizer.h"

namespace tessera::nn::optim {

struct AdafactorOptions {
  double lr = 1e-2;           ///< >= 0
  double beta2_decay = -0.8;  ///< <= 0
  /// Negative: the distance from 1 to the next number in the parameter's dtype, as PyTorch's None.
  double eps1 = -1;
  double eps2 = 1e-3;
  double d = 1;  ///< >= 1: above this rms an update is scaled down
  double weight_decay = 0;
  bool maximize = false;
};

class Adafactor final : public GroupOptimizer<AdafactorOptions> {
 public:
  /// Throw InvalidArgument for no parameters, one in two groups, or options outside their ranges.
  Adafactor(const std::vector<Parameter>& parameters, const AdafactorOptions& options);
  Adafactor(const Module& module,
            const AdafactorOptions& options) = delete;  ///< Adafactor(module.parameters(), ...)
  explicit Adafactor(std::vector<Group> groups);

  std::string type_name() const override { return "Adafactor"; }

 private:
  void update(const std::vector<Parameter>& parameters) override;
  void update_one(const Parameter& parameter);
  Tensor updated_variance(const Parameter& parameter, const Tensor& g, double eps1);
  std::optional<Shape> state_shape(const Parameter& parameter,
                                   const std::string& name) const override;
  void check_options(const AdafactorOptions& options) const override;
  OptionList list_options(AdafactorOptions& options) const override;
  std::vector<std::string> state_names(const AdafactorOptions& options) const override;
};

}  // namespace tessera::nn::optim
