#pragma once

/// What one rank sends, receives, copies and adds in a collective between processes. Plain data,
/// made when the collective is issued, so that the closure that executes it neither resolves nor
/// allocates tensor memory.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tessera/distributed/resolved_collective.h"
#include "tessera/tensor/memory/allocator.h"

namespace tessera::distributed {

/// A message to or from one peer. Two ranks' messages pair up where number and terms are equal, in
/// the order of their lists.
struct Transfer {
  int peer = 0;
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  std::uint64_t number = 0;  ///< of the collective, or of the message between the two ranks
  std::uint64_t terms = 0;   ///< equal where both ranks mean the same number of bytes
};

struct ByteCopy {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  std::size_t bytes = 0;
};

struct OrderedReduction {
  std::vector<const void*> sources{};  ///< in rank order
  std::byte* out = nullptr;
  std::int64_t count = 0;
};

struct ExchangePlan {
  std::vector<ByteCopy> before{};  ///< ahead of all transfers
  std::vector<Transfer> sends{};
  std::vector<Transfer> receives{};
  std::vector<ByteCopy> after{};               ///< behind all transfers
  std::vector<OrderedReduction> reductions{};  ///< behind the copies
};

/// Parts of members for one peer that are smaller than this are packed into one message.
inline constexpr std::size_t kPackedPartBytes = 16 * 1024;

/// Memory that a plan uses between its steps. It belongs to the stream the plan runs on, so it may
/// be given back as soon as the plan is queued: only later work of that stream gets it.
struct PlannedExchange {
  ExchangePlan plan;
  MemoryBlock staging;
};

/// Every rank makes its plan from the same call, so sends and receives match; those of an
/// all_to_all or an exchange where the ranks agree on the rows and sizes. Takes staging memory from
/// `stream`.
PlannedExchange plan_exchange(const ResolvedCollective& call, int size, const DeviceStream& stream);

/// The steps before and after the transfers.
void run_copies(const std::vector<ByteCopy>& copies);
void run_reductions(const ExchangePlan& plan, DType dtype, ReduceOp op);

}  // namespace tessera::distributed
