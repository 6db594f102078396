#pragma once

/// What all optimizers share about their options: each group has a set of its own.
///
///     optim::SGD optimizer(model.parameters(), {.lr = 0.1});     // one group
///     optimizer.add_group({.parameters = head.parameters(), .options = {.lr = 0.01}});
///     optimizer.group(1).options.lr
///
/// To write an optimizer, derive, implement the five virtuals below and update(), and call
/// add_groups() in the constructors: see sgd.cc.

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tessera/nn/optim/optimizer.h"
#include "tessera/nn/optim/parameter_group.h"
#include "tessera/tensor/check.h"

namespace tessera::nn::optim {

/// `Options` is a plain struct with a member `double lr`.
template <class Options>
class GroupOptimizer : public Optimizer {
 public:
  using Group = ParameterGroup<Options>;

  const std::vector<Group>& groups() const { return groups_; }
  /// These throw InvalidArgument for a group that does not exist.
  const Group& group(int index) const { return groups_[checked_group(index)]; }
  const Options& options(int group = 0) const { return groups_[checked_group(group)].options; }
  /// From the next step on; initial_lr() stays. State that the new options do without is dropped,
  /// state that they ask for appears at the next step: save after it. Throws InvalidArgument for
  /// options outside their ranges.
  void set_options(int group, const Options& options) {
    const std::size_t at = checked_group(group);
    check_options(options);
    groups_[at].options = options;
    keep_states(group, state_names(options));
  }
  /// Takes in more parameters. Throws InvalidArgument for options outside their ranges, and for a
  /// parameter that is in another group; then nothing is changed.
  void add_group(Group group) {
    check_options(group.options);
    for (const Parameter& parameter : group.parameters) check_parameter(parameter);
    add_parameters(group.parameters, group.options.lr);
    groups_.push_back(std::move(group));
  }

 protected:
  /// For constructors. Throws as add_group does, and where there is no parameter at all.
  void add_groups(std::vector<Group> groups) {
    for (Group& group : groups) add_group(std::move(group));
    TESSERA_CHECK(!parameters().empty(), "nn.optim",
                  "an optimizer needs parameters: the model has none, or the list is empty");
  }
  const Options& options_for(const Parameter& parameter) const {
    return groups_[static_cast<std::size_t>(group_of(parameter))].options;
  }

  /// Throws InvalidArgument naming what is outside its range.
  virtual void check_options(const Options& options) const = 0;
  /// Throws InvalidArgument for a parameter that this optimizer cannot take.
  virtual void check_parameter(const Parameter& /*parameter*/) const {}
  /// Every option by the name that saved states have it under.
  virtual OptionList list_options(Options& options) const = 0;
  /// The states that a parameter has once it was updated.
  virtual std::vector<std::string> state_names(const Options& options) const = 0;

 private:
  double group_lr(int group) const final { return options(group).lr; }
  void set_group_lr(int group, double lr) final {
    Options changed = options(group);
    changed.lr = lr;
    check_options(changed);
    groups_[checked_group(group)].options = changed;
  }
  StateDict group_options(int group) const final {
    Options copy = options(group);
    return save_options(list_options(copy));
  }
  std::vector<std::string> group_options_problems(int group, const StateDict& saved) const final {
    Options loaded = options(group);
    std::vector<std::string> problems = load_options(list_options(loaded), saved);
    if (!problems.empty()) return problems;
    try {
      check_options(loaded);
    } catch (const InvalidArgument& error) {
      problems.push_back(error.what());
    }
    return problems;
  }
  Options loaded_options(int group, const StateDict& saved) const {
    Options loaded = options(group);
    load_options(list_options(loaded), saved);
    return loaded;
  }
  void set_group_options(int group, const StateDict& saved) final {
    groups_[checked_group(group)].options = loaded_options(group, saved);
  }
  std::vector<std::string> group_state_names(int group, const StateDict& saved) const final {
    return state_names(loaded_options(group, saved));
  }

  std::vector<Group> groups_;
};

}  // namespace tessera::nn::optim
