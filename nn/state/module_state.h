#pragma once

/// The state of a model: its parameters and persistent buffers by name, to save, to load, to
/// compare.
///
///     nn::StateDict state = nn::state_dict(model);
///     nn::load_state_dict(other, state);
///
/// The state of a whole training run is one dict, and one file (state_file.h): each part under a
/// prefix of its own.
///
///     nn::StateDict run;
///     run.add("model.", nn::state_dict(model));
///     run.add("optimizer.", optimizer.state_dict());     // names: after initialize() or a load
///     run.add("scheduler.", scheduler.state_dict());
///     run.add("scaler.", scaler.state_dict());
///     run.set("step", step);
///     nn::save_state(path, run);
///     ...
///     const nn::StateDict run = nn::load_state(path);
///     nn::load_state_dict(model, run.part("model."));
///     optimizer.load_state_dict(run.part("optimizer."));
///     scheduler.load_state_dict(run.part("scheduler."));
///     scaler.load_state_dict(run.part("scaler."));
///     step = run.integer("step");
///
/// The run goes on bit for bit. The model comes first: its load gives the names that the
/// optimizer's asks for, also where the model was never initialised.
///
/// What is in it is this rank's: of a sharded parameter, local(). fsdp/state has files that any
/// number of ranks can load.

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/nn/module.h"
#include "tessera/nn/state/state_dict.h"
#include "tessera/tensor/device.h"

namespace tessera::nn {

struct StateDictOptions {
  std::string prefix = {};  ///< put before every name, with its dot: "model."
};

/// Parameters and persistent buffers, by qualified name, in PyTorch's order: a module's own
/// parameters, its own buffers, then its children. A tied parameter is saved once, under its
/// first name. The tensors are those of the model, so they change with it; clone() the dict to keep them.
/// Runs the hooks before_save and after_save. Throws StateError for a model that is not
/// materialised, naming the members without elements.
StateDict state_dict(Module& module, const StateDictOptions& options = {});

struct LoadStateDictOptions {
  /// Names that are missing or unexpected are an error; else they are only reported.
  bool strict = true;
  /// Patterns of the model's names (nn/name_pattern.h), "blocks.**": only what matches one is loaded, and only
  /// its names can be missing, unexpected or of another shape. A pattern that matches no name in the dict is an
  /// error. Empty: everything.
  std::vector<std::string> only = {};
  Device device = default_device();  ///< where what is not materialised is allocated
  std::string prefix = {};  ///< of the model's names in the dict; what stands elsewhere is ignored
  /// For the initializers of buffers that are not persistent, as InitializeOptions::seed.
  std::uint64_t seed = 1;
};

/// Copies the dict's elements into the model's, which keep shape and place: floating dtypes are
/// converted, integer dtypes likewise (low bits); between floating, integer and bool there is no
/// way. A tied parameter is found under any of its names, also under several with equal elements.
///
/// Replaces initialize(): what is not materialised is allocated on `device` and gets its full name.
/// What is missing in a lenient load stays as it is, so also without elements. Buffers that are not
/// persistent are computed, each time.
///
/// Throws InvalidArgument that lists all problems: names missing or unexpected (strict), shapes or
/// kinds of dtype that differ, entries that are no tensors or have no elements, copies of a tied
/// parameter that differ. Throws StateError for a member that was never registered, as initialize().
/// Nothing has been written then, with one exception: where the model has after_load hooks, missing
/// and unexpected names are checked after the load, because a hook may accept them.
LoadReport load_state_dict(Module& module, const StateDict& state,
                           const LoadStateDictOptions& options = {});

}  // namespace tessera::nn
