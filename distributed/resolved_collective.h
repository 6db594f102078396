#pragma once

/// A collective as transports see it: addresses instead of tensors, resolved when it is issued.
/// Plain data that a closure takes by value.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tessera/distributed/process_group.h"

namespace tessera::distributed {

/// One member. In-place kinds have output == input.
struct ResolvedMember {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::int64_t count_in = 0;  ///< elements
  std::int64_t count_out = 0;
  std::int64_t row_elements = 0;  ///< all_to_all
};

/// One tensor of an exchange.
struct ResolvedMessage {
  int peer = 0;
  std::uint64_t place = 0;  ///< see PeerMessage
  std::byte* data = nullptr;
  std::int64_t count = 0;  ///< elements
};

struct ResolvedCollective {
  CollectiveKind kind = CollectiveKind::kBarrier;
  ReduceOp reduce{};
  int root = 0;
  DType dtype = DType::kF32;
  Device device = kCpu;
  std::vector<ResolvedMember> members{};
  std::vector<std::int64_t> rows_sent{};  ///< all_to_all: by rank, for every member
  std::vector<std::int64_t> rows_received{};
  std::vector<ResolvedMessage> sends{};  ///< exchange
  std::vector<ResolvedMessage> receives{};
  Channel channel = Channel::kUser;
  CollectiveSite site{};
  FlightTicket ticket{};

  std::size_t element_size() const { return dtype_size(dtype); }
  /// "all_gather #17 (layers.1) of group "world"".
  std::string str() const;
  /// Equal on ranks that mean the same collective: kind, reduction, root, dtype, type of device and
  /// the extents of all members; of an all_to_all the extents of a row, since ranks may hold
  /// different numbers of them.
  std::uint64_t fingerprint() const;
  /// The same for people: "all_gather of f32, 3 members, 120 elements in"; GPUs are named.
  std::string terms() const;
};

/// What is wrong with the rows that two ranks of an all_to_all mean to exchange; empty where they
/// agree. `ranks`: the group's in the world.
std::string row_mismatch(const ResolvedCollective& here, const ResolvedCollective& there,
                         std::span<const int> ranks);

bool is_reduction(CollectiveKind kind);  ///< has a ReduceOp
bool has_root(CollectiveKind kind);
bool is_in_place(CollectiveKind kind);  ///< has one list of tensors

/// Null when there are none.
const Tensor* first_tensor(const Collective& call);
/// The device all members share; the CPU when there are none.
Device collective_device(const Collective& call);
/// For errors.
CollectiveSite site_of(const ProcessGroup& group, const Collective& call);

/// Resolves addresses. Outputs count a version up unless their storage is filling. Throws
/// StateError for released storage, InvalidArgument for a device that CPU transports do not carry.
ResolvedCollective resolve(const ProcessGroup& group, const Collective& call);

/// "rank 2", "ranks 0, 1, 3".
std::string ranks_text(std::span<const int> ranks);

/// Throw with the site of the call: `[all_gather] rank 0: all_gather #17 (layers.1) of group
/// "world" <what>`.
[[noreturn]] void throw_aborted(const ResolvedCollective& call, const std::string& what);
[[noreturn]] void throw_collective_error(const ResolvedCollective& call, const std::string& what);
/// What is wrong with a collective that waits for a rank whose group has ended: the rank returned
/// from the body, often because its data ran out first.
std::string needs_rank_that_left(int world_rank);
[[noreturn]] void throw_timeout(const ResolvedCollective& call, const std::string& what);

}  // namespace tessera::distributed
