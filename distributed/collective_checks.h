#pragma once

/// The checks of collectives.h, which come before anything is issued, and the sizes of a call.
/// Private to this folder.

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/distributed/process_group.h"

namespace tessera::distributed {

/// Members: defined, contiguous, of one dtype, on one device that the group carries; a root of the
/// group; a reduction that the dtype knows; peers of the group; no memory that is written and used
/// twice; messages to oneself that are sent and received.
void check_call(const ProcessGroup& group, const Collective& call);

/// Each of `large` has `size` times the elements of its place in `small`. For lists that only the
/// root has, the other ranks pass none.
struct PairedLists {
  std::span<const Tensor> small;
  std::span<const Tensor> large;
  const char* small_role;
  const char* large_role;
};
void check_pairs(const char* op, int size, const PairedLists& lists);
void check_only_at_root(const char* op, const ProcessGroup& group, int root,
                        std::span<const Tensor> list, const char* role);

/// Of an all_to_all: counts for every rank, and the elements of
/// a row of each member, whose rows add up to the counts.
void check_counts(const char* role, const std::vector<std::int64_t>& counts, int size);
std::vector<std::int64_t> check_row_members(std::span<const Tensor> inputs,
                                            std::span<const Tensor> outputs,
                                            const std::vector<std::int64_t>& sent,
                                            const std::vector<std::int64_t>& received);

/// What this rank puts on the wire: padding included, headers not.
std::int64_t bytes_sent(const ProcessGroup& group, const Collective& call);

}  // namespace tessera::distributed
