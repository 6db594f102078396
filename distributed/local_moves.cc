#include "tessera/distributed/local_moves.h"

#include <cstring>
#include <numeric>

#include "tessera/distributed/reduce_in_order.h"

namespace tessera::distributed {
namespace {

using Calls = LocalCalls;

void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, bytes);
}

void gather_member(const Calls& calls, int rank, std::size_t i) {
  const ResolvedCollective& mine = *calls[static_cast<std::size_t>(rank)];
  const std::size_t part = static_cast<std::size_t>(mine.members[i].count_in) * mine.element_size();
  for (std::size_t p = 0; p < calls.size(); ++p)
    copy_bytes(mine.members[i].output + p * part, calls[p]->members[i].input, part);
}

// Reduces elements [begin, begin + count) of member i over all ranks into `out`.
void reduce_range(const Calls& calls, std::size_t i, std::int64_t begin, std::int64_t count,
                  std::byte* out, const ResolvedCollective& mine) {
  if (count == 0) return;
  const std::size_t offset = static_cast<std::size_t>(begin) * mine.element_size();
  std::vector<const void*> sources;
  sources.reserve(calls.size());
  for (const ResolvedCollective* call : calls) sources.push_back(call->members[i].input + offset);
  reduce_in_order(mine.dtype, mine.reduce, sources, out, count);
}

void scatter_member(const Calls& calls, int rank, std::size_t i) {
  const ResolvedCollective& mine = *calls[static_cast<std::size_t>(rank)];
  const std::int64_t part = mine.members[i].count_out;
  reduce_range(calls, i, rank * part, part, mine.members[i].output, mine);
}

// Each rank reduces a stretch of its own and hands it to everyone: nobody else touches that
// stretch, so it works in place.
void all_reduce_member(const Calls& calls, int rank, std::size_t i) {
  const ResolvedCollective& mine = *calls[static_cast<std::size_t>(rank)];
  const std::int64_t size = static_cast<std::int64_t>(calls.size());
  const std::int64_t begin = mine.members[i].count_in * rank / size;
  const std::int64_t count = mine.members[i].count_in * (rank + 1) / size - begin;
  const std::size_t offset = static_cast<std::size_t>(begin) * mine.element_size();
  std::byte* own = mine.members[i].output + offset;
  reduce_range(calls, i, begin, count, own, mine);
  for (const ResolvedCollective* peer : calls)
    copy_bytes(peer->members[i].output + offset, own,
               static_cast<std::size_t>(count) * mine.element_size());
}

std::int64_t rows_before(const std::vector<std::int64_t>& rows, std::size_t rank) {
  return std::accumulate(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(rank),
                         std::int64_t{0});
}

void exchange_member(const Calls& calls, int rank, std::size_t i) {
  const auto me = static_cast<std::size_t>(rank);
  const ResolvedCollective& mine = *calls[me];
  const std::size_t row =
      static_cast<std::size_t>(mine.members[i].row_elements) * mine.element_size();
  std::byte* to = mine.members[i].output;
  for (std::size_t p = 0; p < calls.size(); ++p) {
    const auto first = static_cast<std::size_t>(rows_before(calls[p]->rows_sent, me));
    const std::size_t bytes = static_cast<std::size_t>(mine.rows_received[p]) * row;
    if (bytes == 0) continue;
    copy_bytes(to, calls[p]->members[i].input + first * row, bytes);
    to += bytes;
  }
}

void broadcast_member(const Calls& calls, int rank, std::size_t i) {
  const ResolvedCollective& mine = *calls[static_cast<std::size_t>(rank)];
  if (rank == mine.root) return;
  copy_bytes(mine.members[i].output, calls[static_cast<std::size_t>(mine.root)]->members[i].input,
             static_cast<std::size_t>(mine.members[i].count_in) * mine.element_size());
}

// The root adds up all of it; the others only lend their memory.
void reduce_member(const Calls& calls, int rank, std::size_t i) {
  const ResolvedCollective& mine = *calls[static_cast<std::size_t>(rank)];
  if (rank != mine.root) return;
  reduce_range(calls, i, 0, mine.members[i].count_in, mine.members[i].output, mine);
}

void scatter_from_root(const Calls& calls, int rank, std::size_t i) {
  const ResolvedCollective& mine = *calls[static_cast<std::size_t>(rank)];
  const std::size_t part =
      static_cast<std::size_t>(mine.members[i].count_out) * mine.element_size();
  const std::byte* whole = calls[static_cast<std::size_t>(mine.root)]->members[i].input;
  if (part > 0)
    copy_bytes(mine.members[i].output, whole + static_cast<std::size_t>(rank) * part, part);
}

}  // namespace

void move_member(const LocalCalls& calls, int rank, std::size_t i) {
  const ResolvedCollective& mine = *calls[static_cast<std::size_t>(rank)];
  switch (mine.kind) {
    case CollectiveKind::kAllGather:
      return gather_member(calls, rank, i);
    case CollectiveKind::kReduceScatter:
      return scatter_member(calls, rank, i);
    case CollectiveKind::kAllReduce:
      return all_reduce_member(calls, rank, i);
    case CollectiveKind::kAllToAll:
      return exchange_member(calls, rank, i);
    case CollectiveKind::kBroadcast:
      return broadcast_member(calls, rank, i);
    case CollectiveKind::kReduce:
      return reduce_member(calls, rank, i);
    case CollectiveKind::kGather:
      if (rank == mine.root) gather_member(calls, rank, i);
      return;
    case CollectiveKind::kScatter:
      return scatter_from_root(calls, rank, i);
    case CollectiveKind::kExchange:  // between pairs: see local_exchange.cc
    case CollectiveKind::kBarrier:
      return;
  }
}

}  // namespace tessera::distributed
