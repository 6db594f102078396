#pragma once

/// Checks for tests of sharded models, of any model:
///
///     MyModel twin(options), model(options);            // the twin is left whole
///     nn::initialize(twin, {.seed = 1});
///     ... shard model, initialize it, train both ...
///     const std::string report = fsdp::check_sharded_parity(twin, model);    // before zero_grad()
///     if (!report.empty()) ...
///     fsdp::assert_module_states_equal(model, *world.group());
///
/// Both read local(), grad() and buffers, never value(), so the state of a group does not matter.
/// Elements are compared on the host, which waits for the current stream. Used by the thread of its
/// rank.

#include <functional>
#include <string>
#include <vector>

#include "tessera/distributed/mesh/device_mesh.h"
#include "tessera/distributed/process_group.h"
#include "tessera/nn/module.h"

namespace tessera::fsdp {

struct ShardedParityOptions {
  /// Left out of the sharded model's names wherever they stand: what wrappers add ("module.").
  std::vector<std::string> prefixes_to_ignore = {};
  /// |a - b| <= tolerance * max(1, |b|), with b the twin's; 0: equal. A NaN equals nothing.
  double tolerance = 0;
  bool gradients = true;  ///< compare grad() too
  /// Of the sharded model: left out. What nobody reduces differs from the twin's, and what nobody
  /// shards has no mesh.
  std::vector<nn::Parameter> ignored_parameters = {};
};

/// Compares a sharded model with its twin that every rank holds whole, parameter by parameter in
/// order: names, global shapes and stored dtypes; that the parameter has a mesh, and that its
/// placements on that mesh say where its rows lie (FSDP over tensor parallelism cuts in turns: see
/// distributed/mesh/placement.h); local() against the same part of the twin's; and gradients, of which
/// both have one or neither. Gradients may differ in dtype.
///
/// Answers what differs, a line each, with the worst element; empty when nothing does. Of this rank
/// alone: no collective. Throws StateError for parameters that are not materialised.
std::string check_sharded_parity(const nn::Module& replicated, const nn::Module& sharded,
                                 const ShardedParityOptions& options = {});
/// The same as an error: StateError with that text.
void assert_sharded_parity(const nn::Module& replicated, const nn::Module& sharded,
                           const ShardedParityOptions& options = {});

struct ModuleStatesOptions {
  /// Parameters with one of these tags are meant to differ from rank to rank ("expert"): left out.
  std::vector<std::string> except_tags = {};
  bool buffers = true;
  /// What is wrong with `other`, beside `first` of the first rank that holds the same part; empty
  /// when nothing is. Both are flat, on the host, of one dtype and equally long. Every rank's
  /// tensors then travel to all ranks, one at a time. Unset: equal bits, told by 128 of them.
  std::function<std::string(const Tensor& first, const Tensor& other)> compare = {};
};

/// All ranks have the same parameters and buffers, by name, dtype and global shape; their elements
/// are compared between ranks that hold the same part: replicas always, the ranks of a shard axis
/// never. Throws StateError on every rank with one text, which names the states and the ranks.
/// Collective.
void assert_module_states_equal(const nn::Module& model, distributed::ProcessGroup& group,
                                const ModuleStatesOptions& options = {});
/// Along each axis of a mesh, so over all of it.
void assert_module_states_equal(const nn::Module& model, const distributed::DeviceMesh& mesh,
                                const ModuleStatesOptions& options = {});

}  // namespace tessera::fsdp
