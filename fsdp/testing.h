#pragma once

/// Checks for tests of sharded models, of any model:
///
///     MyModel plain(options), model(options);           // `plain` is not sharded
///     nn::initialize(plain, {.seed = 1});
///     ... shard model, initialize it, train both ...
///     const std::string report = fsdp::check_sharded_parity(plain, model);   // before zero_grad()
///     if (!report.empty()) ...
///     fsdp::assert_module_states_equal(model, *world.group());
///
/// Both functions read local(), grad() and buffers, never value(), so groups may be in any state.
/// Elements are compared on the host, which waits for the current stream. Only the rank's own
/// thread may call them.

#include <functional>
#include <string>
#include <vector>

#include "tessera/distributed/mesh/device_mesh.h"
#include "tessera/distributed/process_group.h"
#include "tessera/nn/module.h"

namespace tessera::fsdp {

struct ShardedParityOptions {
  /// Removed from the sharded model's names wherever they occur: prefixes that wrappers add
  /// ("module.").
  std::vector<std::string> prefixes_to_ignore = {};
  /// |a - b| <= tolerance * max(1, |b|), where b is the unsharded value; 0: equal. A NaN equals
  /// nothing.
  double tolerance = 0;
  bool gradients = true;  ///< compare grad() too
  /// Parameters of the sharded model to skip: unreduced gradients differ from the unsharded
  /// model's, and an unsharded parameter has no mesh.
  std::vector<nn::Parameter> ignored_parameters = {};
};

/// Compares a sharded model with an unsharded reference that every rank holds in full, parameter by
/// parameter in order: names, global shapes and stored dtypes; that the parameter has a mesh, and
/// that its placements on that mesh match the rows it holds (FSDP over tensor parallelism shards by
/// both axes in a defined order, see distributed/mesh/placement.h); local() against the same part
/// of the reference; and gradients, which both must have or neither. Gradients may differ in dtype.
///
/// Returns the differences, one line each, with the worst element; empty if there are none. Checks
/// this rank only, without collectives. Throws StateError for parameters that are not materialized.
std::string check_sharded_parity(const nn::Module& replicated, const nn::Module& sharded,
                                 const ShardedParityOptions& options = {});
/// The same check; throws StateError with that text.
void assert_sharded_parity(const nn::Module& replicated, const nn::Module& sharded,
                           const ShardedParityOptions& options = {});

struct ModuleStatesOptions {
  /// Parameters with one of these tags may differ between ranks ("expert"): skipped.
  std::vector<std::string> except_tags = {};
  bool buffers = true;
  /// Returns the difference of `other` from `first`, the tensor of the first rank that holds the
  /// same part; empty if there is none. Both are flat, on the host, of one dtype and equal length.
  /// Every rank's tensors are then sent to all ranks, one at a time. Unset: bits must be equal,
  /// compared by a 128-bit hash.
  std::function<std::string(const Tensor& first, const Tensor& other)> compare = {};
};

/// Checks that all ranks have the same parameters and buffers by name, dtype and global shape, and
/// that ranks that hold the same part have equal elements: replicas are compared, ranks along a
/// shard axis are not. Throws StateError on every rank with one text that names the states and the
/// ranks. Collective.
void assert_module_states_equal(const nn::Module& model, distributed::ProcessGroup& group,
                                const ModuleStatesOptions& options = {});
/// The same along each axis of a mesh, and so over all its ranks.
void assert_module_states_equal(const nn::Module& model, const distributed::DeviceMesh& mesh,
                                const ModuleStatesOptions& options = {});

}  // namespace tessera::fsdp
