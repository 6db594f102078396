#pragma once

/// The entries of an optimizer's state under the names that its parameters have in the model. The
/// optimizer itself uses the parameters' full names, which begin with the names of modules around the
/// model.

#include <map>
#include <optional>
#include <string>

#include "tessera/nn/module.h"
#include "tessera/nn/optim/optimizer.h"
#include "tessera/nn/state/state_dict.h"

namespace tessera::checkpoint {

class OptimizerNames {
 public:
  /// Without a model, parameters keep their full names. Both must outlive the object.
  OptimizerNames(const nn::optim::Optimizer& optimizer, nn::Module* model);

  /// The parameters of the optimizer by their names in the model.
  const std::map<std::string, nn::Parameter>& parameters() const { return parameters_; }
  /// The optimizer's state_dict() under these names.
  nn::StateDict state_dict() const;

  /// Whether an entry ("state.up.weight.momentum", "parameters.up.weight") belongs to a parameter,
  /// also to one of another rank.
  static bool is_of_parameter(const std::string& entry);
  /// The parameter of such an entry; null if this rank's optimizer does not have it.
  const nn::Parameter* parameter_of(const std::string& entry) const;
  /// The entry's name for the optimizer. It is of no parameter, or of one that the optimizer has.
  std::string own_name(const std::string& entry) const;

 private:
  const nn::optim::Optimizer& optimizer_;
  std::map<std::string, nn::Parameter> parameters_;
};

}  // namespace tessera::checkpoint
