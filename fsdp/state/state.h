#pragma once

/// Full state of a sharded model and of its optimizer: created on rank 0 or on all ranks, loaded
/// from rank 0, independent of the number of ranks and of the sharding.
///
///     nn::StateDict state = full_state_dict(model);               // on rank 0; empty elsewhere
///     load_full_state_dict(other_model, state);                   // rank 0 sends it to all
///
/// The sharded state needs no function here: nn::state_dict(model) returns each rank's local(),
/// without communication and without copies, and nn::load_state_dict(model) writes into it.
///
/// Names, order and dtypes are those of the unsharded model: stored dtypes, whatever dtype it
/// computes in. Tensors are sent one at a time, so no rank needs memory for more than one full
/// tensor besides its own data. Tensor-parallel parameters are full, too.
///
/// *Rank 0* is the first rank of the mesh: of the given mesh, or of the widest mesh that a
/// parameter is sharded over. Buffers and unsharded parameters are saved from rank 0. So are
/// parameters that have one name but different values on ranks of one mesh, such as experts on
/// meshes of their own: a full state has room for only one of them, and loading makes all of them
/// equal.
///
/// Collective over the mesh, on the current stream, between steps. Only the rank's own thread may
/// call.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/distributed/mesh/device_mesh.h"
#include "tessera/nn/module.h"
#include "tessera/nn/optim/optimizer.h"
#include "tessera/nn/state/state_dict.h"

namespace tessera::fsdp {

/// Copies every parameter's local() and every buffer, persistent or not, from the first rank of
/// `mesh`. Before fully_shard, which assumes equal values on all ranks, everything is copied. After
/// it, parameters are copied along the axes that do not shard them. Members that are not
/// materialized are allocated on the mesh's device. Throws on all ranks, before anything is
/// written: InvalidArgument for an undefined mesh, and if names, dtypes or shapes differ from the
/// first rank's; StateError if a rank that sends its values is not materialized (the first rank,
/// and after sharding the first rank of each group of replicas). Experts that belong to no mesh
/// (each rank's own under one name) become equal to the first rank's: give them different names, or
/// set them afterwards.
void sync_module_states(nn::Module& module, const distributed::DeviceMesh& mesh);

struct FullStateOptions {
  bool rank0_only = true;  ///< false: all ranks get the full state
  bool offload = false;    ///< tensors on the CPU
  distributed::DeviceMesh mesh = {};
};
/// The result of nn::state_dict(model) on the unsharded model, in memory of its own. Entries that
/// after_save hooks replaced are kept as the hooks made them. Throws as nn::state_dict.
///
/// The first time in a process that batch norms have running statistics of one rank alone, with
/// other ranks in the mesh (that of options, or the widest that a parameter is sharded or replicated
/// over), it prints local_batch_norm_warning() to standard error.
nn::StateDict full_state_dict(nn::Module& module, const FullStateOptions& options = {});
/// Writes what nn::save_state() would write of full_state_dict(), without ever having it: each tensor is
/// gathered when rank 0 writes it, so no rank needs more memory than for the largest one. A file that was
/// at `path` is replaced once the new one is complete. Throws on all ranks what nn::save_state() throws on
/// rank 0; then all tensors were gathered all the same.
void save_full_state(const std::string& path, nn::Module& module,
                     const distributed::DeviceMesh& mesh = {});
/// What full_state_dict(), save_full_state() and checkpoint::save() warn of: the batch norms of the module
/// whose saved statistics are those of rank 0's batches, and the remedy. Empty if there are none. `where` is the
/// function that the text names.
std::string local_batch_norm_warning(nn::Module& module,
                                     const std::string& where = "full_state_dict");
/// The result of optimizer.state_dict() on the unsharded model. All ranks must have updated the
/// same parameters. Throws as Optimizer::state_dict.
nn::StateDict full_optimizer_state(const nn::optim::Optimizer& optimizer,
                                   const FullStateOptions& options = {});

struct LoadFullStateOptions {
  /// Only rank 0's dict is used; other ranks may pass an empty one. false: every rank has the full
  /// dict, and there is no communication.
  bool broadcast_from_rank0 = true;
  /// Missing or unexpected names are errors; false: they are only reported.
  bool strict = true;
  /// Patterns of names (nn/name_pattern.h), "blocks.**": only what matches one is loaded, and only its names
  /// can be missing, unexpected or of another shape. A pattern that matches nothing in the dict is an
  /// error. Empty: everything.
  std::vector<std::string> only = {};
  /// Device for parameters that are not materialized. Unset: the mesh's device, else the CPU.
  std::optional<Device> device = std::nullopt;
  std::uint64_t seed = 1;  ///< for buffers that are not persistent, as nn::LoadStateDictOptions
  distributed::DeviceMesh mesh = {};
};
/// nn::load_state_dict for a dict of full tensors: every rank copies its part of each tensor and
/// allocates no more than that for a model that is not materialized. The report is the same on all
/// ranks. A name is missing if any rank lacks it, and unexpected if no rank knows it. Throws on all
/// ranks with the same text: the errors of nn::load_state_dict, leaving the model as that function
/// does; InvalidArgument if a dict is to be broadcast and neither model nor options have a mesh.
nn::LoadReport load_full_state_dict(nn::Module& module, const nn::StateDict& state,
                                    const LoadFullStateOptions& options = {});

struct LoadFullOptimizerStateOptions {
  bool broadcast_from_rank0 = true;  ///< as LoadFullStateOptions
  distributed::DeviceMesh mesh = {};
};
/// Optimizer::load_state_dict for a dict of full tensors. Needs memory for a second copy of this
/// rank's part of all states while it runs. Throws on all ranks: the errors of
/// Optimizer::load_state_dict; InvalidArgument for a missing mesh, and for shapes that differ from
/// the parameters' (then nothing has changed).
void load_full_optimizer_state(nn::optim::Optimizer& optimizer, const nn::StateDict& state,
                               const LoadFullOptimizerStateOptions& options = {});

}  // namespace tessera::fsdp
