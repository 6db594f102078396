#pragma once

/// What ranks of a checked group tell each other of a collective. Private to this folder.

#include <array>
#include <cstdint>
#include <string>

#include "tessera/distributed/process_group.h"

namespace tessera::distributed {

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
