#pragma once

/// Ranks compare what they are about to do before any data moves.
///
///     auto group = checked(world_group);      // on every rank, once, around the whole world's
///
/// Without it, wrong programs hang until the deadline, or mix up memory: one rank takes another
/// branch, skips a layer, gathers another dtype. In a checked group every collective first sends a
/// small record to the ranks 1, 2, 4, ... further in the group, and compares the records that it
/// receives with its own: kind, reduction, root, dtype, the extents of all members, the rows of an
/// all_to_all, group, number, and the caller's Label. The first difference is a CollectiveError
/// that names the field, both values, and the file and line of both calls. The group is aborted
/// with that text, so every rank fails with it within the time of a message.
///
/// Records between two ranks are paired in the order of their collectives, whatever the group: this
/// detects a rank that is in another group. So ranks that share several groups issue their
/// collectives in one order; only streams may run them in another. Exchanges between pairs are not
/// checked: the transports compare their sizes. A rank that never comes cannot be told from a slow
/// one; the deadline ends that wait.
///
/// Sub-groups are checked too. Costs about log2(ranks) small messages a collective:
/// tools/bench/bench_collectives measures it.

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "tessera/distributed/process_group.h"

namespace tessera::distributed {

std::shared_ptr<ProcessGroup> checked(std::shared_ptr<ProcessGroup> group);

// What ranks of a checked group tell each other of a collective. Private to this folder.

/// Sent as bytes between ranks of one build; texts are cut to fit.
struct CheckRecord {
  static constexpr std::size_t kShown = 8;

  std::uint64_t sequence = 0;
  double factor = 1;
  std::uint64_t extents = 0;  ///< hash over all members
  std::int64_t rows_to_peer = 0;
  std::int64_t rows_from_peer = 0;
  std::array<std::int64_t, kShown> counts{};  ///< of the first members
  std::int32_t members = 0;
  std::int32_t root = 0;
  std::int32_t line = 0;
  std::uint8_t kind = 0;
  std::uint8_t reduction = 0;
  std::uint8_t dtype = 0;
  std::uint8_t has_tensors = 0;
  std::uint8_t device = 0;  ///< its type
  std::array<char, 64> group{};
  std::array<char, 64> label{};
  std::array<char, 96> file{};
};

/// Of this rank's call, for `peer`, a rank of the group (rows alone depend on it).
CheckRecord make_check_record(const ProcessGroup& group, const Collective& call, int peer);

/// The first field in which two records differ, with both values and places: "dtype: f32 on rank 0
/// (a.cc:10), f64 on rank 2 (b.cc:20)"; empty where they mean the same.
struct RecordOf {
  const CheckRecord& record;
  int rank;  ///< in the world
};
std::string difference(const RecordOf& here, const RecordOf& there);

}  // namespace tessera::distributed
