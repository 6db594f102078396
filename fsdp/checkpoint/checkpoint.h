#pragma once

/// A checkpoint is a folder with the state of a training run. It exists completely or not at all, and any
/// number of ranks with any sharding can load it.
///
///     const checkpoint::State state{.group = world.group(), .model = &model,
///                                   .optimizer = &optimizer, .values = &values};
///     checkpoint::save("run/checkpoints/step-120", state);
///     ...
///     checkpoint::load_newest("run/checkpoints", state);
///
/// Each rank writes its parts of the tensors to its own safetensors file. index.json lists the parts,
/// their files and checksums (index.h). Other programs can read the files as ordinary safetensors
/// files. A finished folder may be copied and moved.
///
/// Names are those of the unsharded model: "model.blocks.0.up.weight",
/// "optimizer.state.blocks.0.up.weight.momentum". A tied parameter is saved once. Frozen parameters
/// are saved too. Buffers, and values that are not sharded, are saved from the first rank that has them; of batch
/// norms that are not synchronized these are the statistics of rank 0's batches, and save() warns of them
/// once (fsdp::local_batch_norm_warning).
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
  /// weights. They are saved from the first rank, and marked parts (StateDict::mark_part) from all ranks.
  /// load() sets every saved entry, whether or not the dict had one of that name.
  nn::StateDict* values = nullptr;
};

/// Writes a checkpoint to a new folder. The files are first written to a folder with another name in the
/// same place, which is renamed once everything is on the disk. Until then nothing exists at the path.
/// Other checkpoints are never changed.
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
  /// Patterns of names (nn/name_pattern.h), "blocks.**": of the model, only what matches one is loaded, and only its names
  /// can be missing, unexpected or of another shape. A pattern that matches nothing in the checkpoint is an
  /// error. Empty: everything.
  std::vector<std::string> only = {};
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
/// Returns the folders step-N in `parent`, sorted by N. Checks the index of each, and that all its files
/// exist with the right sizes, but does not read the tensors. Empty if `parent` does not exist. Not
/// collective.
std::vector<StepCheckpoint> list(const std::string& parent);
/// Returns the complete checkpoint with the largest N, or nothing if there is none. Not collective: call
/// it on one rank and send the result to the others.
std::optional<std::string> newest(const std::string& parent);
/// Loads the checkpoint that newest() returns on the first rank, and returns its folder. Without one, it
/// returns nothing and changes nothing. Collective. Throws as load(); if the checkpoint is damaged, the
/// text names the complete checkpoint before it.
std::optional<std::string> load_newest(const std::string& parent, const State& state,
                                       const LoadOptions& options = {});
/// Removes all complete checkpoints except the `count` with the largest N. Incomplete ones stay. Not
/// collective. Throws InvalidArgument for a count below 1, CheckpointError if a folder cannot be removed.
void keep_newest(const std::string& parent, int count);

}  // namespace tessera::checkpoint
