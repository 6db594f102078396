#include "tessera/distributed/transports/local_mover.h"

#include <cstring>
#include <numeric>

#include "tessera/distributed/transports/reduce_in_order.h"
#include "tessera/distributed/transports/reduce_on_gpu.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/cuda/device_guard.h"
#include "tessera/tensor/cuda/queue.h"

namespace tessera::distributed {
namespace {

using Calls = LocalCalls;

void gather_member(const Calls& calls, int rank, std::size_t i, LocalMover& mover) {
  const ResolvedCollective& mine = *calls[static_cast<std::size_t>(rank)];
  const std::size_t part = static_cast<std::size_t>(mine.members[i].count_in) * mine.element_size();
  for (std::size_t p = 0; p < calls.size(); ++p)
    mover.copy(mine.members[i].output + p * part, calls[p]->members[i].input, part);
}

// Elements of one member.
struct Stretch {
  std::size_t member;
  std::int64_t begin;
  std::int64_t count;
};

// Reduces a stretch over all ranks into `out`.
void reduce_stretch(const Calls& calls, const Stretch& stretch, std::byte* out, LocalMover& mover) {
  if (stretch.count == 0) return;
  const ResolvedCollective& any = *calls[0];
  const std::size_t offset = static_cast<std::size_t>(stretch.begin) * any.element_size();
  std::vector<const void*> sources;
  sources.reserve(calls.size());
  for (const ResolvedCollective* call : calls)
    sources.push_back(call->members[stretch.member].input + offset);
  mover.reduce(any, sources, out, stretch.count);
}

void scatter_member(const Calls& calls, int rank, std::size_t i, LocalMover& mover) {
  const ResolvedCollective& mine = *calls[static_cast<std::size_t>(rank)];
  const std::int64_t part = mine.members[i].count_out;
  reduce_stretch(calls, {i, rank * part, part}, mine.members[i].output, mover);
}

// Each rank reduces a range of its own and copies it to all ranks. No other rank touches that
// range, so this works in place.
void all_reduce_member(const Calls& calls, int rank, std::size_t i, LocalMover& mover) {
  const ResolvedCollective& mine = *calls[static_cast<std::size_t>(rank)];
  const std::int64_t size = static_cast<std::int64_t>(calls.size());
  const std::int64_t begin = mine.members[i].count_in * rank / size;
  const std::int64_t count = mine.members[i].count_in * (rank + 1) / size - begin;
  const std::size_t offset = static_cast<std::size_t>(begin) * mine.element_size();
  std::byte* own = mine.members[i].output + offset;
  reduce_stretch(calls, {i, begin, count}, own, mover);
  for (const ResolvedCollective* peer : calls)
    mover.copy(peer->members[i].output + offset, own,
               static_cast<std::size_t>(count) * mine.element_size());
}

std::int64_t rows_before(const std::vector<std::int64_t>& rows, std::size_t rank) {
  return std::accumulate(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(rank),
                         std::int64_t{0});
}

void exchange_member(const Calls& calls, int rank, std::size_t i, LocalMover& mover) {
  const auto me = static_cast<std::size_t>(rank);
  const ResolvedCollective& mine = *calls[me];
  const std::size_t row =
      static_cast<std::size_t>(mine.members[i].row_elements) * mine.element_size();
  std::byte* to = mine.members[i].output;
  for (std::size_t p = 0; p < calls.size(); ++p) {
    const auto first = static_cast<std::size_t>(rows_before(calls[p]->rows_sent, me));
    const std::size_t bytes = static_cast<std::size_t>(mine.rows_received[p]) * row;
    if (bytes == 0) continue;
    mover.copy(to, calls[p]->members[i].input + first * row, bytes);
    to += bytes;
  }
}

void broadcast_member(const Calls& calls, int rank, std::size_t i, LocalMover& mover) {
  const ResolvedCollective& mine = *calls[static_cast<std::size_t>(rank)];
  if (rank == mine.root) return;
  mover.copy(mine.members[i].output, calls[static_cast<std::size_t>(mine.root)]->members[i].input,
             static_cast<std::size_t>(mine.members[i].count_in) * mine.element_size());
}

// The root adds up all of it; the others only lend their memory.
void reduce_member(const Calls& calls, int rank, std::size_t i, LocalMover& mover) {
  const ResolvedCollective& mine = *calls[static_cast<std::size_t>(rank)];
  if (rank != mine.root) return;
  reduce_stretch(calls, {i, 0, mine.members[i].count_in}, mine.members[i].output, mover);
}

void scatter_from_root(const Calls& calls, int rank, std::size_t i, LocalMover& mover) {
  const ResolvedCollective& mine = *calls[static_cast<std::size_t>(rank)];
  const std::size_t part =
      static_cast<std::size_t>(mine.members[i].count_out) * mine.element_size();
  const std::byte* whole = calls[static_cast<std::size_t>(mine.root)]->members[i].input;
  if (part > 0)
    mover.copy(mine.members[i].output, whole + static_cast<std::size_t>(rank) * part, part);
}

}  // namespace

void move_member(const LocalCalls& calls, int rank, std::size_t i, LocalMover& mover) {
  const ResolvedCollective& mine = *calls[static_cast<std::size_t>(rank)];
  switch (mine.kind) {
    case CollectiveKind::kAllGather:
      return gather_member(calls, rank, i, mover);
    case CollectiveKind::kReduceScatter:
      return scatter_member(calls, rank, i, mover);
    case CollectiveKind::kAllReduce:
      return all_reduce_member(calls, rank, i, mover);
    case CollectiveKind::kAllToAll:
      return exchange_member(calls, rank, i, mover);
    case CollectiveKind::kBroadcast:
      return broadcast_member(calls, rank, i, mover);
    case CollectiveKind::kReduce:
      return reduce_member(calls, rank, i, mover);
    case CollectiveKind::kGather:
      if (rank == mine.root) gather_member(calls, rank, i, mover);
      return;
    case CollectiveKind::kScatter:
      return scatter_from_root(calls, rank, i, mover);
    case CollectiveKind::kExchange:  // between pairs: see process_group_local.cc
    case CollectiveKind::kBarrier:
      return;
  }
}

namespace {

class CpuMover final : public LocalMover {
 public:
  LocalMark mark() override { return std::nullopt; }
  void wait(const LocalMark&) override {}
  void check_reach(const LocalCalls&, int) const override {}
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) override {
    if (bytes > 0 && to != from) std::memcpy(to, from, bytes);
  }
  void clear(std::byte* to, std::size_t bytes) override {
    if (bytes > 0) std::memset(to, 0, bytes);
  }
  void reduce(const ResolvedCollective& call, std::span<const void* const> sources, void* out,
              std::int64_t count) override {
    reduce_in_order(call.dtype, call.reduce, sources, out, count);
  }
};

class GpuMover final : public LocalMover {
 public:
  explicit GpuMover(const DeviceStream& stream) : stream_(stream) {}

  LocalMark mark() override { return stream_.record("local collective"); }
  void wait(const LocalMark& mark) override {
    if (mark) stream_.wait(*mark);
  }

  // Copies pass through the host where they must; a kernel that adds cannot.
  void check_reach(const LocalCalls& calls, int rank) const override {
    const ResolvedCollective& mine = *calls[static_cast<std::size_t>(rank)];
    if (!is_reduction(mine.kind)) return;
    TESSERA_CHECK(static_cast<int>(calls.size()) <= kMostGpuSources, mine.site.op.c_str(),
                  "{} is over {} ranks; on GPUs rank threads add up at most {}", mine.str(),
                  calls.size(), kMostGpuSources);
    for (const ResolvedCollective* peer : calls) {
      TESSERA_CHECK_AS(
          DeviceError, stream_.cuda_queue().reaches(peer->device.index), mine.site.op.c_str(),
          "{}: {} cannot read the memory of {}, where rank {} is; put the ranks on one "
          "GPU",
          mine.str(), mine.device.str(), peer->device.str(), peer->site.rank);
    }
  }

  void copy(std::byte* to, const std::byte* from, std::size_t bytes) override {
    if (bytes > 0 && to != from) stream_.cuda_queue().copy(to, from, bytes);
  }

  void clear(std::byte* to, std::size_t bytes) override {
    if (bytes > 0) stream_.cuda_queue().fill_bytes(to, 0, bytes);
  }

  void reduce(const ResolvedCollective& call, std::span<const void* const> sources, void* out,
              std::int64_t count) override {
    if constexpr (kBuiltWithCuda) {
      const cuda::DeviceGuard guard(stream_.device().index);
      reduce_on_gpu(stream_.cuda_handle(), call.dtype, call.reduce, sources, out, count);
    }
  }

 private:
  const DeviceStream stream_;
};

}  // namespace

LocalMover& cpu_mover() {
  static CpuMover mover;
  return mover;
}

std::unique_ptr<LocalMover> make_gpu_mover(const DeviceStream& stream) {
  return std::make_unique<GpuMover>(stream);
}

}  // namespace tessera::distributed
