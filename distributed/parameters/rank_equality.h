#pragma once

/// Do all ranks hold the same? For tests, for runs that drift apart, and before work that takes it
/// for granted.
///
/// Compared are names, dtypes, shapes and bits: a NaN equals itself, 0 and -0 differ. Ranks
/// exchange 128 bits for each tensor instead of its elements. Of a sharded parameter the global
/// shape and the sharded axes are compared over all ranks, and the elements between ranks that hold
/// the same part. On the null device there are no elements to compare.
///
/// All throw StateError on every rank with one text, which lists what differs by name: each with
/// the first rank (of the world) that does, and how. Collective over `group`; the host waits.

#include <span>
#include <string>

#include "tessera/distributed/process_group.h"
#include "tessera/nn/module.h"

namespace tessera::distributed {

struct NamedTensor {
  std::string name;
  Tensor tensor;  ///< any layout and device; undefined ones equal each other
};

/// Matched by name, those of one name in their order; an entry that some ranks lack differs.
void assert_equal_across_ranks(ProcessGroup& group, std::span<const NamedTensor> tensors);
/// Of local(), by full name. Those not materialised yet equal each other.
void assert_equal_across_ranks(ProcessGroup& group, std::span<const nn::Parameter> parameters);
void assert_equal_across_ranks(ProcessGroup& group, std::span<const nn::Buffer> buffers);
/// All parameters and buffers of a model, by their names in it.
void assert_equal_across_ranks(ProcessGroup& group, const nn::Module& module);

}  // namespace tessera::distributed
