#include "tessera/distributed/nccl/nccl_ring.h"

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

std::byte* NcclRing::take(const Stream& stream) {
  Slot& slot = slots_[next_];
  if (slot.used_until != nullptr) stream.cuda_queue().wait(*slot.used_until);
  return slot.data;
}

void NcclRing::used(const Stream& stream) {
  slots_[next_].used_until = stream.cuda_queue().record();
  next_ = (next_ + 1) % slots_.size();
}

}  // namespace tessera::distributed
