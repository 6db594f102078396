#include "tessera/distributed/nccl/nccl_issue.h"

#include <optional>
#include <utility>

#include "tessera/distributed/transports/reduce_on_gpu.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/cuda/device_guard.h"
#include "tessera/tensor/rank_context.h"

namespace tessera::distributed {
namespace {

std::int64_t bytes_of(std::size_t slots, std::size_t slot_bytes) {
  return static_cast<std::int64_t>(slots * slot_bytes);
}

}  // namespace

NcclRing::NcclRing(std::vector<std::byte*> slots, std::size_t slot_bytes)
    : slot_bytes_(slot_bytes), counters_(current_rank_context()->memory().shared_from_this()) {
  for (std::byte* data : slots) slots_.push_back({data, nullptr});
  counters_->add(MemoryCategory::kCommunication, bytes_of(slots_.size(), slot_bytes_));
}

NcclRing::~NcclRing() {
  counters_->subtract(MemoryCategory::kCommunication, bytes_of(slots_.size(), slot_bytes_));
}

std::byte* NcclRing::take(const DeviceStream& stream) {
  Slot& slot = slots_[next_];
  if (slot.used_until != nullptr) stream.cuda_queue().wait(*slot.used_until);
  return slot.data;
}

void NcclRing::used(const DeviceStream& stream) {
  slots_[next_].used_until = stream.cuda_queue().record();
  next_ = (next_ + 1) % slots_.size();
}

namespace {

// One rank's share of a member, in elements.
std::int64_t part_of(const ResolvedCollective& call, const ResolvedMember& member) {
  return call.kind == CollectiveKind::kReduceScatter ? member.count_out : member.count_in;
}

std::vector<std::int64_t> parts_of(const ResolvedCollective& call) {
  std::vector<std::int64_t> out;
  for (const ResolvedMember& member : call.members) out.push_back(part_of(call, member));
  return out;
}

// Where an in-place kind's elements are on this rank; NCCL only reads what is only input.
std::byte* in_place(const ResolvedMember& member) {
  return member.output != nullptr ? member.output : const_cast<std::byte*>(member.input);
}

}  // namespace

// Members that are sent through one buffer.
struct NcclIssue::Packed {
  std::vector<std::size_t> members;
  std::int64_t elements;  // of a part
  int ranks;
  std::byte* part;
  std::byte* whole;
};

std::vector<CopySegment> NcclIssue::pack(const Packed& packed) const {
  const auto size = static_cast<std::int64_t>(call_.element_size());
  const bool to_parts = call_.kind == CollectiveKind::kReduceScatter;
  std::vector<CopySegment> out;
  std::int64_t at = 0;
  for (const std::size_t i : packed.members) {
    const ResolvedMember& member = call_.members[i];
    const std::int64_t bytes = part_of(call_, member) * size;
    out.push_back({.from = member.input != nullptr ? member.input : member.output,
                   .to = (to_parts ? packed.whole : packed.part) + at,
                   .row_bytes = bytes,
                   .rows = to_parts ? packed.ranks : 1,
                   .from_pitch = bytes,
                   .to_pitch = packed.elements * size});
    at += bytes;
  }
  return out;
}

std::vector<CopySegment> NcclIssue::unpack(const Packed& packed) const {
  const auto size = static_cast<std::int64_t>(call_.element_size());
  const bool from_parts = call_.kind == CollectiveKind::kAllGather;
  std::vector<CopySegment> out;
  std::int64_t at = 0;
  for (const std::size_t i : packed.members) {
    const ResolvedMember& member = call_.members[i];
    const std::int64_t bytes = part_of(call_, member) * size;
    out.push_back({.from = (from_parts ? packed.whole : packed.part) + at,
                   .to = member.output,
                   .row_bytes = bytes,
                   .rows = from_parts ? packed.ranks : 1,
                   .from_pitch = packed.elements * size,
                   .to_pitch = bytes});
    at += bytes;
  }
  return out;
}

void NcclIssue::run_packed(NcclCommunicator& communicator, const Packed& packed,
                           NcclReduction reduction) {
  CUstream_st* stream = stream_.cuda_handle();
  const NcclCommunicator::Reduction by{reduction, call_.reduce.factor, call_.dtype};
  switch (call_.kind) {
    case CollectiveKind::kAllGather:
      return communicator.all_gather(packed.part, packed.whole, packed.elements, stream,
                                     call_.dtype);
    case CollectiveKind::kReduceScatter:
      return communicator.reduce_scatter(packed.whole, packed.part, packed.elements, stream, by);
    case CollectiveKind::kAllReduce:
      return communicator.all_reduce(packed.part, packed.elements, stream, by);
    case CollectiveKind::kBroadcast:
      return communicator.broadcast(packed.part, packed.elements, call_.root, stream, call_.dtype);
    default:
      return communicator.reduce(packed.part, packed.elements, call_.root, stream, by);
  }
}

void NcclIssue::run_direct(NcclCommunicator& communicator, const ResolvedMember& member,
                           NcclReduction reduction) {
  CUstream_st* stream = stream_.cuda_handle();
  const std::int64_t count = part_of(call_, member);
  const NcclCommunicator::Reduction by{reduction, call_.reduce.factor, call_.dtype};
  switch (call_.kind) {
    case CollectiveKind::kAllGather:
      return communicator.all_gather(member.input, member.output, count, stream, call_.dtype);
    case CollectiveKind::kReduceScatter:
      return communicator.reduce_scatter(member.input, member.output, count, stream, by);
    case CollectiveKind::kAllReduce:
      return communicator.all_reduce(in_place(member), count, stream, by);
    case CollectiveKind::kBroadcast:
      return communicator.broadcast(in_place(member), count, call_.root, stream, call_.dtype);
    default:
      return communicator.reduce(in_place(member), count, call_.root, stream, by);
  }
}

void NcclIssue::by_calls(RegisteredCommunicator& registered, NcclReduction reduction) {
  NcclCommunicator& communicator = *registered.communicator;
  const NcclRouteRequest request{.kind = call_.kind,
                                 .ranks = communicator.size(),
                                 .element_size = call_.element_size(),
                                 .slot_bytes = registered.ring ? registered.ring->slot_bytes() : 0};
  const NcclRoutes routes = nccl_routes(request, parts_of(call_));
  if (routes.packed.empty() && routes.direct.empty()) return;
  const bool packs = !routes.packed.empty();
  const NcclPackedBuffer buffer = nccl_packed_buffer(request, routes.packed_elements);
  MemoryBlock block;
  std::byte* data = nullptr;
  if (packs && registered.ring) {
    data = registered.ring->take(stream_);
  } else if (packs) {
    block = MemoryBlock::take(buffer.bytes, stream_, MemoryCategory::kCommunication);
    data = static_cast<std::byte*>(block.data());
  }
  const Packed packed{routes.packed, routes.packed_elements, communicator.size(),
                      data + buffer.part_at, data + buffer.whole_at};
  const cuda::DeviceGuard guard(communicator.device());
  const bool reads = call_.kind != CollectiveKind::kBroadcast || is_root(communicator);
  if (packs && reads) copy_segments(stream_.cuda_handle(), pack(packed));
  session_.issue({registered.communicator}, call_, [&] {
    if (packs) run_packed(communicator, packed, reduction);
    for (const std::size_t i : routes.direct) run_direct(communicator, call_.members[i], reduction);
  });
  const bool root_keeps = call_.kind == CollectiveKind::kBroadcast && is_root(communicator);
  const bool others_keep = call_.kind == CollectiveKind::kReduce && !is_root(communicator);
  if (packs && !root_keeps && !others_keep) copy_segments(stream_.cuda_handle(), unpack(packed));
  if (packs && registered.ring) registered.ring->used(stream_);
}

void NcclIssue::copy(const std::vector<ByteCopy>& copies) {
  std::vector<CopySegment> segments;
  for (const ByteCopy& each : copies) {
    if (each.bytes == 0 || each.to == each.from) continue;
    segments.push_back(
        {.from = each.from, .to = each.to, .row_bytes = static_cast<std::int64_t>(each.bytes)});
  }
  copy_segments(stream_.cuda_handle(), segments);
}

void NcclIssue::reduce(const ExchangePlan& plan) {
  for (const OrderedReduction& each : plan.reductions) {
    TESSERA_CHECK(each.sources.size() <= kMostGpuSources, call_.site.op.c_str(),
                  "{} by {} of {} is over {} ranks; on GPUs at most {} are added up in order",
                  call_.str(), call_.reduce.name(), dtype_name(call_.dtype), each.sources.size(),
                  kMostGpuSources);
    reduce_on_gpu(stream_.cuda_handle(), call_.dtype, call_.reduce, each.sources, each.out,
                  each.count);
  }
}

// An empty message would only say that ranks meet, which the other streams' order says too.
void NcclIssue::by_messages(const ExchangePlan& plan, const NcclCommunicators& communicators,
                            const Ways& ways) {
  const cuda::DeviceGuard guard(stream_.device().index);
  copy(plan.before);
  if (!communicators.empty()) {
    for (const Way& way : ways) {
      if (way.stream.defined() && !(way.stream == stream_)) way.stream.wait(stream_.record("send"));
    }
    session_.issue(communicators, call_, [&] {
      const auto way_of = [&](const Transfer& transfer) -> const Way& {
        return ways[static_cast<std::size_t>(transfer.peer)];
      };
      for (const Transfer& each : plan.sends) {
        const Way& way = way_of(each);
        if (each.bytes > 0)
          way.communicator->send(each.data, each.bytes, way.peer, way.stream.cuda_handle());
      }
      for (const Transfer& each : plan.receives) {
        const Way& way = way_of(each);
        if (each.bytes > 0)
          way.communicator->receive(each.data, each.bytes, way.peer, way.stream.cuda_handle());
      }
    });
    for (const Way& way : ways) {
      if (way.stream.defined() && !(way.stream == stream_)) stream_.wait(way.stream.record("sent"));
    }
  }
  copy(plan.after);
  reduce(plan);
}

}  // namespace tessera::distributed
