#pragma once

/// Invalid input that a kernel finds, for example an index out of range. A GPU cannot throw: the
/// kernel records the fault and continues without touching memory out of range, and the next host
/// wait of its queue throws (Queue::synchronize and copy_to_host, Mark::synchronize).
///
/// Each queue and each CUDA graph owns one slot, in host memory that GPUs can write. A queue's slot
/// keeps its address as long as the queue lives. The queues on which a graph is replayed check the
/// graph's slot too. The first fault since the last wait is kept, later ones are dropped; which of
/// several faults comes first is not deterministic. A fault without a later wait is never reported.
///
///     // on the host: handler(callback, numbers) throws, with the same text as the CPU's kernel
///     const FaultReporter faults{fault_slot(stream), handler, callback};
///     // in the kernel
///     if (index < 0 || index >= extent) return report_fault(faults, index, position, extent, dim);
///
/// The host functions are thread-safe.

#include <cstdint>
#include <exception>

struct CUstream_st;  // of the CUDA runtime

namespace tessera::cuda {

/// A host function, cast to one common type; the handler casts it back.
using FaultCallback = void (*)();
inline constexpr int kFaultNumbers = 4;
/// Throws the exception for a fault. Runs on the host, in a wait.
using FaultHandler = void (*)(FaultCallback callback, const std::int64_t* numbers);

/// The states of a slot, in order.
inline constexpr unsigned kNoFault = 0;
inline constexpr unsigned kWritingFault = 1;
inline constexpr unsigned kCompleteFault = 2;

struct alignas(64) FaultSlot {
  unsigned state = kNoFault;
  FaultHandler handler = nullptr;
  FaultCallback callback = nullptr;
  std::int64_t numbers[kFaultNumbers] = {};
};

/// The data that a kernel needs to report faults of one kind: a kernel parameter, passed by value.
struct FaultReporter {
  FaultSlot* slot = nullptr;
  FaultHandler handler = nullptr;
  FaultCallback callback = nullptr;
};

/// The slot of the queue with this stream, or of the graph that the stream is captured into. A
/// stream without a queue, also the null stream, gets the slot of the null stream, which
/// take_fault() clears; for tests of kernels. Throws OutOfMemory if the host has no pinned memory
/// left.
FaultSlot* fault_slot(CUstream_st* stream);

/// Returns the exception of a complete fault, once; null if there is none. Work that reports to the
/// slot may still be running.
std::exception_ptr take_fault(FaultSlot& slot);

/// Owns the slot of one stream or graph, and must outlive its work. Private to this folder.
class OwnFaultSlot {
 public:
  /// Throws OutOfMemory.
  OwnFaultSlot();
  ~OwnFaultSlot();
  OwnFaultSlot(const OwnFaultSlot&) = delete;
  OwnFaultSlot& operator=(const OwnFaultSlot&) = delete;

  FaultSlot& slot() const { return *slot_; }

 private:
  FaultSlot* slot_;
};
/// Sets the result of fault_slot() for the stream; null: removes it.
void set_fault_slot(CUstream_st* stream, FaultSlot* slot);

#if defined(__CUDACC__) || defined(TESSERA_EMULATED_GPU)
/// Records the fault unless the slot already has one.
__device__ inline void report_fault(const FaultReporter& to, std::int64_t a, std::int64_t b = 0,
                                    std::int64_t c = 0, std::int64_t d = 0) {
  volatile FaultSlot* slot = to.slot;
  if (slot->state != kNoFault || atomicCAS(&to.slot->state, kNoFault, kWritingFault) != kNoFault)
    return;
  slot->handler = to.handler;
  slot->callback = to.callback;
  const std::int64_t numbers[kFaultNumbers] = {a, b, c, d};
  for (int i = 0; i < kFaultNumbers; ++i) slot->numbers[i] = numbers[i];
  __threadfence_system();  // a host that sees the state also sees the other fields
  slot->state = kCompleteFault;
}
#endif

}  // namespace tessera::cuda
