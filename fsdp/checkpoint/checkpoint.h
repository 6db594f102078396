#pragma once

/// Checkpoints: all that a training run needs to go on, in a folder that is there completely or not at
/// all, for any number of ranks and any sharding.
///
///     const checkpoint::State state{.group = world.group(), .model = &model,
///                                   .optimizer = &optimizer, .values = &values};
///     checkpoint::save("run/checkpoints/step-120", state);
///     ...
///     checkpoint::load_newest("run/checkpoints", state);
///
/// Each rank writes the parts that it has to a safetensors file of its own. index.json says which
/// part of which tensor is where, with checksums (index.h). Other programs read the files as ordinary
/// safetensors files. A finished folder may be copied and moved.
///
/// Names are those of the unsharded model: "model.blocks.0.up.weight",
/// "optimizer.state.blocks.0.up.weight.momentum". A tied parameter is saved once, frozen parameters
/// are saved too. Values that are not sharded, and buffers, are those of the first rank that has them.
///
/// Every function with a State is collective over its group, on the rank's own thread, between steps.
/// All ranks see one file system.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/distributed/process_group.h"
#include "tessera/nn/module.h"
#include "tessera/nn/optim/optimizer.h"
#include "tessera/nn/optim/schedule.h"
#include "tessera/nn/state/state_dict.h"
#include "tessera/nn/training/grad_scaler.h"

namespace tessera::checkpoint {

/// What a checkpoint holds; members that are null are not part of it.
struct State {
  std::shared_ptr<distributed::ProcessGroup> group = nullptr;  ///< null: this process alone
  nn::Module* model = nullptr;
  nn::optim::Optimizer* optimizer = nullptr;
  nn::optim::LrScheduler* scheduler = nullptr;
  nn::GradScaler* scaler = nullptr;
  /// The program's own values and tensors: counters, the position in the data, averages of the
  /// weights. Saved from the first rank, and parts that are marked (StateDict::mark_part) from all.
  /// load() replaces what it has by what was saved under the same names.
  nn::StateDict* values = nullptr;
};

/// Writes a new folder. The files are written to a folder with another name beside it, and that is
/// renamed once everything is on the disk: until then nothing is at the path, and other checkpoints are
/// never touched.
///
/// Throws on all ranks with one text: CheckpointError if something is at the path already, if a file
/// cannot be written, naming rank and file, and before anything is written if the disk has fewer free
/// bytes than are needed; InvalidArgument if ranks disagree about a tensor; what a member's
/// state_dict() throws on any rank. Then nothing is left behind but the folders above, unless a process
/// was killed: an unfinished folder begins with a dot, and nothing reads it. If only the sync after the
/// rename fails, the checkpoint is there, and a crash of the machine may lose it.
void save(const std::string& folder, const State& state);

struct LoadOptions {
  /// Names that are missing or unexpected in the model are an error; false: they are reported.
  bool strict = true;
  Device device = default_device();  ///< for parameters that are not materialized
  std::uint64_t seed = 1;  ///< for buffers that are not persistent, as LoadStateDictOptions
};

/// Reads a checkpoint into the members of the state, whatever ranks and sharding saved it. Each rank
/// reads the bytes of its own parts. Dtypes of the model are converted, as nn::load_state_dict does.
///
/// Throws on all ranks with one text: CheckpointError that names file and tensor for a folder without a
/// valid index and for damaged bytes; InvalidArgument if the checkpoint lacks a member that the
/// state has, or does not fit one. Model, optimizer, values and the bytes to be read are checked
/// before the first member changes; schedule and scaler check theirs when they are loaded, last. An
/// optimizer whose parameters are not materialized is checked after the model.
nn::LoadReport load(const std::string& folder, const State& state, const LoadOptions& options = {});

/// "PARENT/step-120".
std::string step_folder(const std::string& parent, std::int64_t step);

struct StepCheckpoint {
  std::int64_t step = 0;
  std::string folder;
  std::string problem;  ///< why it cannot be loaded; empty: it is complete
};
/// The folders step-N of a folder, by N. Each is opened: its index is checked, and that all files are
/// there with their sizes; not the bytes of the tensors. Empty if there is no such folder. Not
/// collective.
std::vector<StepCheckpoint> list(const std::string& parent);
/// The complete one with the largest N; nothing if there is none. Not collective: ask on one rank, and
/// tell the others.
std::optional<std::string> newest(const std::string& parent);
/// Loads the newest one that is complete and returns its folder; nothing, and no change, if there is
/// none. Collective. Throws as load(); the text names the one before it, if there is one.
std::optional<std::string> load_newest(const std::string& parent, const State& state,
                                       const LoadOptions& options = {});
/// Removes complete ones but for the `count` with the largest N. Others are left alone. Not collective.
/// Throws InvalidArgument for a count below 1, CheckpointError if a folder cannot be removed.
void keep_newest(const std::string& parent, int count);

}  // namespace tessera::checkpoint
