#pragma once

/// The base of optimizers: parameters in groups, a set of state tensors for each, and what
/// schedules and checkpoints see of them.
///
///     backward(loss);
///     optimizer.step();
///     optimizer.zero_grad();
///
/// A step works on local() and grad() and so needs to know nothing of sharding: an optimizer may be
/// built before or after fully_shard, and before or after initialize. State is allocated at the
/// first step, in MemoryCategory::kOptimizer, for this rank's real rows only; that of 16-bit
/// parameters is f32. Used by the thread of its rank.
///
/// An optimizer's own class adds its options, one set for each group: see group_optimizer.h.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/nn/parameter.h"
#include "tessera/nn/state/state_dict.h"

namespace tessera::nn {
class Module;
}

namespace tessera::nn::optim {

/// How zero_grad() clears gradients: kNone drops them, so that the next backward writes them anew;
/// kZero sets them to zero and keeps their memory.
enum class ZeroGrad : std::uint8_t { kNone, kZero };

struct StepOptions {
  /// 0-d f64 on the gradients' device: gradients count as multiplied by it. The coefficient of
  /// clipping, for instance (nn/training/clip_grad.h), then needs no pass over the gradients of its
  /// own, and does not come to the host. Undefined: 1.
  Tensor gradient_scale = {};
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// "AdamW"
  virtual std::string type_name() const = 0;

  /// One update of every parameter that is trainable and has a gradient; the others are left alone,
  /// state included. A step that throws leaves no new state behind. A gradient scale leaves the
  /// gradients of Adam, AdamW, SGD and Lion as they are; those of others are multiplied in place.
  void step(const StepOptions& options = {});
  /// The same for one of the parameters. Throws InvalidArgument for one that is not among them.
  void step(const Parameter& parameter);
  /// Throws StateError listing the groups of the sharding layer in which unreduced gradients wait;
  /// then no gradient is changed. kZero skips parameters that have no gradient.
  void zero_grad(ZeroGrad to = ZeroGrad::kNone);

  /// All groups', each once, tied ones too.
  const std::vector<Parameter>& parameters() const { return parameters_; }
  /// Groups count from 0. These throw InvalidArgument for a group that does not exist.
  int group_count() const { return static_cast<int>(initial_lrs_.size()); }
  double lr(int group = 0) const;
  /// The learning rate at the group's creation; schedules multiply it.
  double initial_lr(int group = 0) const;
  /// From the next step on; of one group, or of all. Throw InvalidArgument unless >= 0.
  void set_lr(int group, double lr);
  void set_lr(double lr);

  /// A state tensor of a parameter, by its name in the optimizer's header ("momentum"); undefined
  /// before the first step.
  Tensor state(const Parameter& parameter, const std::string& name) const;
  /// Updates of this parameter so far.
  std::int64_t steps(const Parameter& parameter) const;

  /// All that a continued run needs, by names of parameters:
  ///     type                     "AdamW"
  ///     groups.0.lr              every option of each group, and initial_lr
  ///     parameters.up.weight     the group that it is in
  ///     state.up.weight.step     how often it was updated, and its state tensors
  /// Tensors are the optimizer's own; clone() gives copies. Throws InvalidArgument listing
  /// parameters without a name and names that several have: names come from nn::initialize.
  StateDict state_dict() const;
  /// Takes a saved state over, options and learning rates included; what was there before is
  /// dropped. Groups, their parameters, shapes and dtypes must agree. Throws InvalidArgument
  /// listing everything that does not; then nothing is changed.
  void load_state_dict(const StateDict& saved);
  /// Throws what load_state_dict() would throw, and changes nothing. Tensors may be on the null device:
  /// those of a file, for instance, whose elements are read only later.
  void check_state_dict(const StateDict& saved) const;
  /// The same without a copy: the tensors become the optimizer's own, so nothing else may use them, and
  /// they are on their parameters' devices. For large states that were made to be loaded.
  void take_state_dict(const StateDict& saved);

 protected:
  Optimizer() = default;

  /// Updates these, all of which are trainable and have a gradient. steps() is as before the
  /// update.
  virtual void update(const std::vector<Parameter>& parameters) = 0;

  /// True if update() multiplies gradients by gradient_scale() where that is defined. Otherwise they
  /// are multiplied before it is called.
  virtual bool applies_gradient_scale() const { return false; }
  /// Of the step that runs.
  const Tensor& gradient_scale() const { return gradient_scale_; }

  /// The shape of a parameter's state; nullopt: it has no state of this name, though others of its group do. local()'s,
  /// unless an optimizer says otherwise.
  virtual std::optional<Shape> state_shape(const Parameter& parameter,
                                           const std::string& name) const;

  struct StateTensor {
    Tensor tensor;  ///< state_shape()'s shape, local()'s device, f32 for 16-bit dtypes
    bool is_new;    ///< its elements are arbitrary
  };
  /// Made when there is none. Throws StateError when the parameter was sharded, converted or moved
  /// since it was made.
  StateTensor state_for_update(const Parameter& parameter, const std::string& name);
  /// The same, with new elements set to `initial`.
  Tensor filled_state(const Parameter& parameter, const std::string& name, double initial = 0);

  /// For GroupOptimizer. A new group of these, without the ones that are listed twice. Throws
  /// InvalidArgument for a parameter that is in another group.
  void add_parameters(std::vector<Parameter>& parameters, double lr);
  /// Drops the group's states that are not among `names`.
  void keep_states(int group, const std::vector<std::string>& names);
  /// Throws InvalidArgument unless it exists.
  std::size_t checked_group(int group) const;
  /// Throws InvalidArgument for one that is in no group.
  int group_of(const Parameter& parameter) const;

 private:
  struct LoadedState;
  using Problems = std::vector<std::string>;

  virtual double group_lr(int group) const = 0;
  virtual void set_group_lr(int group, double lr) = 0;
  virtual StateDict group_options(int group) const = 0;
  /// What is wrong with them.
  virtual Problems group_options_problems(int group, const StateDict& saved) const = 0;
  virtual void set_group_options(int group, const StateDict& saved) = 0;
  /// The states that a parameter has once it was updated under these options.
  virtual std::vector<std::string> group_state_names(int group, const StateDict& saved) const = 0;

  std::vector<LoadedState> checked_states(const StateDict& saved, bool needs_elements) const;
  void load(const StateDict& saved, bool take);
  void run_update(const std::vector<Parameter>& parameters, const StepOptions& options);
  Problems check_saved_groups(const StateDict& saved) const;
  void check_saved_members(const StateDict& saved, Problems& problems) const;
  std::vector<LoadedState> read_states(const StateDict& saved, bool needs_elements,
                                       Problems& problems) const;
  void check_saved_state(const LoadedState& loaded, const std::vector<std::string>& names,
                         bool needs_elements, Problems& problems) const;

  std::vector<Parameter> parameters_;
  std::vector<double> initial_lrs_;         // by group
  std::map<const void*, int> group_by_id_;  // by Parameter::id(), as the following
  std::map<const void*, std::map<std::string, Tensor>> states_;
  std::map<const void*, std::int64_t> steps_;
  // Of the update that runs.
  std::vector<std::pair<const void*, std::string>> new_states_;
  Tensor gradient_scale_;
};

/// step(part) for each part of `segments` (of ops/optim.h) whose parameters agree in dtype and
/// device: one launch for most models.
template <class Segment, class Step>
void step_by_kind(const std::vector<Segment>& segments, const Step& step) {
  std::vector<std::vector<Segment>> parts;
  for (const Segment& segment : segments) {
    const auto fits = [&](const std::vector<Segment>& part) {
      return part.front().parameter.dtype() == segment.parameter.dtype() &&
             part.front().parameter.device() == segment.parameter.device();
    };
    std::size_t at = 0;
    while (at < parts.size() && !fits(parts[at])) ++at;
    if (at == parts.size()) parts.emplace_back();
    parts[at].push_back(segment);
  }
  for (const std::vector<Segment>& part : parts) step(part);
}

}  // namespace tessera::nn::optim
