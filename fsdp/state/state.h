#pragma once

/// The state of a sharded model, and of its optimizer, as one whole: made on rank 0 or on all
/// ranks, taken from rank 0, the same for any number of ranks and any sharding.
///
///     nn::StateDict state = full_state_dict(model);               // rank 0 has it, others nothing
///     load_full_state_dict(twin, state);                          // rank 0 gives it to all
///
/// The sharded state needs nothing of this: nn::state_dict(model) shows every rank its local(),
/// without communication and without copies, and nn::load_state_dict(model) writes into it.
///
/// Names, order and dtypes are those of the model that nobody sharded: stored dtypes, whatever it
/// computes in. Tensors travel one at a time, so that no rank needs more than one whole tensor
/// beside what it keeps. Parameters that tensor parallelism cut are whole, too.
///
/// *Rank 0* is the first rank of the mesh: of the one given, or of the widest that a parameter is
/// sharded over. Buffers, and parameters that nobody sharded, are rank 0's own. So are parameters
/// that ranks of one mesh hold under one name with different values, as experts over meshes of
/// their own: a full state has room for one of them, and loading makes all the same.
///
/// Collective over the mesh, on the current stream, between steps. Used by the thread of the rank.

#include <cstdint>
#include <optional>

#include "tessera/distributed/mesh/device_mesh.h"
#include "tessera/nn/module.h"
#include "tessera/nn/optim/optimizer.h"
#include "tessera/nn/state/state_dict.h"

namespace tessera::fsdp {

/// Makes every parameter's local() and every buffer, persistent or not, what it is on the first
/// rank of `mesh`: before fully_shard, which trusts that all ranks hold the same; or after it,
/// along the axes that do not split a parameter. What is not materialised is allocated on the
/// mesh's device. Throws on all ranks: InvalidArgument for an undefined mesh, and where names,
/// dtypes or shapes differ from the first rank's; StateError where the first rank has no elements.
/// Nothing has been written then. Experts that are no part of a mesh (each rank's own under one
/// name) become the first rank's: give them other names, or set them afterwards.
void sync_module_states(nn::Module& module, const distributed::DeviceMesh& mesh);

struct FullStateOptions {
  bool rank0_only = true;  ///< else every rank gets everything
  bool offload = false;    ///< tensors on the CPU
  distributed::DeviceMesh mesh = {};
};
/// What nn::state_dict(model) would be of the unsharded model, in memory of its own. What
/// after_save hooks put in instead of local() stays as they made it. Throws as nn::state_dict.
nn::StateDict full_state_dict(nn::Module& module, const FullStateOptions& options = {});
/// What optimizer.state_dict() would be of the unsharded model. Ranks have updated the same
/// parameters. Throws as Optimizer::state_dict.
nn::StateDict full_optimizer_state(const nn::optim::Optimizer& optimizer,
                                   const FullStateOptions& options = {});

struct LoadFullStateOptions {
  /// Only rank 0's dict counts; the others may pass an empty one. false: every rank has the whole
  /// dict, and there is no communication.
  bool broadcast_from_rank0 = true;
  /// Names that are missing or unexpected are an error; else they are only reported.
  bool strict = true;
  /// Where what is not materialised is allocated; unset: on the mesh's device, else the CPU.
  std::optional<Device> device = std::nullopt;
  std::uint64_t seed = 1;  ///< for buffers that are not persistent, as nn::LoadStateDictOptions
  distributed::DeviceMesh mesh = {};
};
/// nn::load_state_dict for a dict of whole tensors: every rank copies its part of each, and
/// allocates no more than that for a model that is not materialised. The report is the same on all
/// ranks. A name is missing when a rank lacks it, and unexpected when no rank knows it. Throws on
/// all ranks, with one text: what nn::load_state_dict throws, and as it leaves the model;
/// InvalidArgument where a dict is to be broadcast and neither model nor options have a mesh.
nn::LoadReport load_full_state_dict(nn::Module& module, const nn::StateDict& state,
                                    const LoadFullStateOptions& options = {});

struct LoadFullOptimizerStateOptions {
  bool broadcast_from_rank0 = true;  ///< as LoadFullStateOptions
  distributed::DeviceMesh mesh = {};
};
/// Optimizer::load_state_dict for a dict of whole tensors. This rank's part of all states exists
/// twice while it runs. Throws on all ranks: what Optimizer::load_state_dict throws,
/// InvalidArgument for shapes other than the parameters' (then nothing has changed), and for a
/// missing mesh.
void load_full_optimizer_state(nn::optim::Optimizer& optimizer, const nn::StateDict& state,
                               const LoadFullOptimizerStateOptions& options = {});

}  // namespace tessera::fsdp
