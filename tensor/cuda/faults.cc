#include "tessera/tensor/cuda/faults.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "tessera/tensor/cuda/capture.h"
#include "tessera/tensor/cuda/check_cuda.h"

namespace tessera::cuda {
namespace {

constexpr std::size_t kSlotsOfPage = 4096 / sizeof(FaultSlot);

// All slots of the process. Pinned memory is never unpinned: that would wait for GPUs.
class SlotStore {
 public:
  static SlotStore& instance() {
    static auto* store = new SlotStore;
    return *store;
  }

  FaultSlot* take() {
    const std::lock_guard lock(mutex_);
    return take_locked();
  }
  void give_back(FaultSlot* slot) noexcept {
    const std::lock_guard lock(mutex_);
    free_.push_back(slot);  // has room: see pin_page
  }

  void set(CUstream_st* stream, FaultSlot* slot) {
    const std::lock_guard lock(mutex_);
    if (slot != nullptr) {
      by_stream_[stream] = slot;
    } else {
      by_stream_.erase(stream);
    }
  }
  FaultSlot* of(CUstream_st* stream) {
    const std::lock_guard lock(mutex_);
    const auto found = by_stream_.find(stream);
    if (found != by_stream_.end()) return found->second;
    if (nobodys_ == nullptr) nobodys_ = take_locked();
    return nobodys_;
  }

 private:
  FaultSlot* take_locked() {
    if (free_.empty()) pin_page();
    FaultSlot* slot = free_.back();
    free_.pop_back();
    *slot = FaultSlot{};
    return slot;
  }
  void pin_page() {
    const RelaxedCapture relaxed;  // another thread may be capturing
    void* page = nullptr;
    check_cuda(cudaHostAlloc(&page, kSlotsOfPage * sizeof(FaultSlot),
                             cudaHostAllocPortable | cudaHostAllocMapped),
               "fault_slot", "cudaHostAlloc");
    slots_ += kSlotsOfPage;
    free_.reserve(slots_);
    for (std::size_t i = kSlotsOfPage; i-- > 0;)
      free_.push_back(std::construct_at(static_cast<FaultSlot*>(page) + i));
  }

  std::mutex mutex_;
  std::size_t slots_ = 0;
  std::vector<FaultSlot*> free_;
  std::map<CUstream_st*, FaultSlot*> by_stream_;
  FaultSlot* nobodys_ = nullptr;
};

}  // namespace

FaultSlot* fault_slot(CUstream_st* stream) { return SlotStore::instance().of(stream); }

std::exception_ptr take_fault(FaultSlot& slot) {
  static std::mutex mutex;
  FaultSlot fault;
  {
    const std::lock_guard lock(mutex);  // several host threads may wait
    const std::atomic_ref<unsigned> state(slot.state);
    if (state.load(std::memory_order_acquire) != kCompleteFault) return nullptr;
    fault.handler = slot.handler;
    fault.callback = slot.callback;
    std::copy(slot.numbers, slot.numbers + kFaultNumbers, fault.numbers);
    state.store(kNoFault, std::memory_order_release);
  }
  try {
    fault.handler(fault.callback, fault.numbers);
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

OwnFaultSlot::OwnFaultSlot() : slot_(SlotStore::instance().take()) {}
OwnFaultSlot::~OwnFaultSlot() { SlotStore::instance().give_back(slot_); }

void set_fault_slot(CUstream_st* stream, FaultSlot* slot) {
  SlotStore::instance().set(stream, slot);
}

}  // namespace tessera::cuda
