#pragma once

/// L-BFGS as PyTorch has it (Liu and Nocedal, "On the limited memory BFGS method", 1989): a quasi-Newton method whose
/// step calls a function that computes the loss and its gradients, several times.
///
///     optim::LBFGS optimizer(model.parameters(), {.strong_wolfe = true});
///     optimizer.step([&] {
///       optimizer.zero_grad();
///       const Variable loss = mse_loss(model(x), y);
///       backward(loss);
///       return loss;
///     });
///
/// For deterministic losses of whole batches. All parameters together are one vector, so there is one group, and the
/// history takes 2 history_size vectors of memory. Loss and conditions are read on the host, several times in each
/// iteration.
///
/// Whole parameters only: a step with one that is sharded over ranks throws StateError. The history is not part of
/// state_dict(), as it is in PyTorch: a continued run gathers it anew.

#include <cstdint>
#include <functional>

#include "tessera/autograd/variable.h"
#include "tessera/nn/optim/group_optimizer.h"

namespace tessera::nn::optim {

struct LBFGSOptions {
  double lr = 1;               ///< >= 0
  std::int64_t max_iter = 20;  ///< iterations of a step, >= 1
  std::int64_t max_eval =
      0;  ///< calls of the function in a step, with a line search one more; 0: 1.25 max_iter
  double tolerance_grad = 1e-7;     ///< a step ends where no gradient is larger
  double tolerance_change = 1e-9;   ///< or where neither loss nor an element changes by more
  std::int64_t history_size = 100;  ///< >= 1
  /// The length of a move is found by trying, until the strong Wolfe conditions hold: PyTorch's line_search_fn =
  /// "strong_wolfe". Else it is lr; in the first iteration of all lr min(1, 1 / sum |gradient|).
  bool strong_wolfe = false;
};

class LBFGS final : public GroupOptimizer<LBFGSOptions> {
 public:
  /// Throws InvalidArgument for no parameters, or options outside their ranges.
  LBFGS(const std::vector<Parameter>& parameters, const LBFGSOptions& options);
  LBFGS(const Module& module,
        const LBFGSOptions& options) = delete;  ///< LBFGS(module.parameters(), ...)

  /// The loss of one element, whose gradients it has put into the parameters.
  using Closure = std::function<Variable()>;
  /// One step; returns the first loss. Throws StateError for a parameter that is sharded and for
  /// several groups; InvalidArgument for a function that returns something else.
  Variable step(const Closure& closure);
  /// Without a function: throws StateError.
  using Optimizer::step;

  std::string type_name() const override { return "LBFGS"; }

 private:
  struct Iteration;

  void update(const std::vector<Parameter>& parameters) override;
  void check_options(const LBFGSOptions& options) const override;
  OptionList list_options(LBFGSOptions& options) const override;
  std::vector<std::string> state_names(const LBFGSOptions& options) const override;

  Tensor flat_gradient() const;
  void move(const Tensor& direction, double length) const;
  void remember(const Tensor& gradient);
  Tensor direction(const Tensor& gradient) const;
  void search(const Closure& closure, Iteration& now, double slope);
  bool iterate(const Closure& closure, Iteration& now);

  // Since the optimizer was built.
  struct Pair {
    Tensor change;  // of the parameters
    Tensor gradient_change;
    double inverse_product;
  };
  std::vector<Pair> history_;  // oldest first
  std::int64_t iterations_ = 0;
  double scale_ = 1;  // of the first approximation of the inverse Hessian
  Tensor last_gradient_, last_direction_;
  double last_length_ = 0;
};

}  // namespace tessera::nn::optim
