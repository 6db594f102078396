#include "tessera/autograd/recompute.h"

#include <memory>
#include <optional>
#include <string>

#include "tessera/autograd/function.h"
#include "tessera/autograd/grad_mode.h"
#include "tessera/autograd/ops/autocast.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/random_scope.h"
#include "tessera/tensor/scope_name.h"
#include "tessera/tensor/thread_state.h"

namespace tessera {
namespace {

// What a result must look like each time.
struct ResultInfo {
  bool defined = false;
  Shape shape = {};
  DType dtype = DType::kF32;
  Device device = {};

  static ResultInfo of(const Variable& result) {
    if (!result.defined() || !result.tensor().defined()) return {};
    return {.defined = true,
            .shape = result.shape(),
            .dtype = result.dtype(),
            .device = result.device()};
  }
  bool operator==(const ResultInfo&) const = default;
  std::string str() const {
    if (!defined) return "undefined";
    return "of shape " + shape.str() + ", " + dtype_name(dtype) + " on " + device.str();
  }
};

// Everything that the first run depended on.
class Recomputation {
 public:
  Recomputation(RecomputedFunction function, const std::vector<Variable>& inputs)
      : function_(std::move(function)) {
    for (const Variable& input : inputs) inputs_.push_back(saved(input));
  }

  std::vector<Variable> run(const std::vector<Variable>& inputs) const { return function_(inputs); }

  // Called once, after the first run.
  void keep_captured(const std::vector<Variable>& captured) {
    for (const Variable& variable : captured) captured_.push_back(saved(variable));
  }
  void keep_results(const std::vector<Variable>& results) {
    for (const Variable& result : results) results_.push_back(ResultInfo::of(result));
  }

  Gradients backward(const Gradients& dy, const BackwardContext& context) const {
    std::vector<Variable> roots;
    Gradients gradients;
    for (const Variable& gradient : dy) {
      if (gradient.defined()) gradients.push_back(gradient);
    }
    if (!gradients.empty()) {
      const std::vector<Variable> results = run_again();
      for (std::size_t i = 0; i < dy.size(); ++i) {
        if (dy[i].defined()) roots.push_back(results[i]);
      }
      context.continue_through(roots, std::move(gradients));
    }
    return Gradients(inputs_.size() + captured_.size());
  }

 private:
  static SavedVariable saved(const Variable& variable) {
    return variable.defined() && variable.tensor().defined() ? SavedVariable(variable, "recompute")
                                                             : SavedVariable();
  }

  std::vector<Variable> run_again() const {
    std::vector<Variable> inputs;
    for (const SavedVariable& input : inputs_)
      inputs.push_back(input.saved() ? input.unpack() : Variable());
    for (const SavedVariable& variable : captured_) variable.unpack();
    const detail::ThreadSettingsScope settings(settings_);
    const GradModeGuard recording(true);
    const detail::AutocastScope autocast(settings_.autocast);  // with casts of its own
    const random::RestoreScope random(random_);
    const ScopeRestore scope(scope_);
    std::vector<Variable> results = run(inputs);
    check_results(results);
    return results;
  }

  void check_results(const std::vector<Variable>& results) const {
    TESSERA_CHECK_AS(StateError, results.size() == results_.size(), "recompute",
                     "the function returned {} results in forward and {} in backward; it must "
                     "give the same each time",
                     results_.size(), results.size());
    for (std::size_t i = 0; i < results.size(); ++i) {
      const ResultInfo again = ResultInfo::of(results[i]);
      TESSERA_CHECK_AS(StateError, again == results_[i], "recompute",
                       "result {} of the function was {} in forward and is {} in backward; it "
                       "must give the same each time",
                       i, results_[i].str(), again.str());
    }
  }

  RecomputedFunction function_;
  std::vector<SavedVariable> inputs_;
  std::vector<SavedVariable> captured_;
  std::vector<ResultInfo> results_;
  detail::ThreadSettings settings_ = detail::thread_state().settings;
  random::State random_ = random::capture();
  std::shared_ptr<const ScopeName> scope_ = current_scope();
};

std::vector<Variable> not_among(const std::vector<Variable>& noted,
                                const std::vector<Variable>& inputs) {
  std::vector<Variable> out;
  for (const Variable& variable : noted) {
    bool is_input = false;
    for (const Variable& input : inputs) is_input = is_input || input.same_as(variable);
    if (!is_input) out.push_back(variable);
  }
  return out;
}

}  // namespace

bool in_recomputed_forward() { return !grad_enabled() && detail::RecordingProbe::is_active(); }

std::vector<Variable> recompute(RecomputedFunction function, const std::vector<Variable>& inputs) {
  if (!grad_enabled()) return function(inputs);
  auto again = std::make_shared<Recomputation>(std::move(function), inputs);
  detail::RecordingProbe probe;
  std::vector<Variable> results;
  {
    const NoGradGuard no_graph;
    results = again->run(inputs);
    detail::is_recording(
        std::span<const Variable>(results));  // an external variable may be a result as it is
  }
  const std::vector<Variable> captured = not_among(probe.noted(), inputs);
  again->keep_captured(captured);
  again->keep_results(results);
  std::vector<Variable> sources = inputs;
  sources.insert(sources.end(), captured.begin(), captured.end());
  std::vector<Tensor> tensors;
  for (const Variable& result : results)
    tensors.push_back(result.defined() ? result.tensor() : Tensor());
  std::vector<Variable> recorded =
      record_differentiable("recompute", std::move(tensors), sources,
                            [again](const Gradients& dy, const BackwardContext& context) {
                              return again->backward(dy, context);
                            });
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (!results[i].defined()) recorded[i] = Variable();
  }
  return recorded;
}

}  // namespace tessera
