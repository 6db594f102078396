#pragma once

/// What a kernel finds wrong with its input, an index out of range for instance. Nothing can be
/// thrown on a GPU: the kernel records the fault and goes on, touching no memory out of range, and
/// the next host wait of its queue throws (Queue::synchronize and copy_to_host, Mark::synchronize).
///
/// Each queue owns one slot, in memory of the host that GPUs can write, at one address for as long
/// as the queue lives, and each CUDA graph one, which the queues that it is replayed on look at
/// too. The first fault since the last wait stays, later ones are dropped; which of several comes
/// first is not fixed. A fault that nobody waits for is forgotten.
///
///     // on the host: handler(callback, numbers) throws, with the text that the CPU's kernel has
///     const FaultReporter faults{fault_slot(stream), handler, callback};
///     // in the kernel
///     if (index < 0 || index >= extent) return report_fault(faults, index, position, extent, dim);
///
/// The functions of the host may be called from any thread.

#include <cstdint>
#include <exception>

struct CUstream_st;  // of the CUDA runtime

namespace tessera::cuda {

/// A function of the host under a type that all have here; the handler casts it back.
using FaultCallback = void (*)();
inline constexpr int kFaultNumbers = 4;
/// Throws what the fault means. Runs on the host, in a wait.
using FaultHandler = void (*)(FaultCallback callback, const std::int64_t* numbers);

/// States of a slot, in turn.
inline constexpr unsigned kNoFault = 0;
inline constexpr unsigned kWritingFault = 1;
inline constexpr unsigned kCompleteFault = 2;

struct alignas(64) FaultSlot {
  unsigned state = kNoFault;
  FaultHandler handler = nullptr;
  FaultCallback callback = nullptr;
  std::int64_t numbers[kFaultNumbers] = {};
};

/// What a kernel needs to report faults of one kind: a parameter of it, by value.
struct FaultReporter {
  FaultSlot* slot = nullptr;
  FaultHandler handler = nullptr;
  FaultCallback callback = nullptr;
};

/// The slot of the queue with this stream, or of the graph that it is captured into. A stream that
/// belongs to no queue, the null stream too, has the slot of the null stream, which take_fault()
/// empties: for tests of kernels. Throws OutOfMemory where the host has no pinned memory left.
FaultSlot* fault_slot(CUstream_st* stream);

/// The exception that a complete fault means, once; null when there is none. The work that reports
/// to the slot may go on meanwhile.
std::exception_ptr take_fault(FaultSlot& slot);

/// Owns the slot of one stream or graph. Private to this folder: who has it outlives the work.
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
/// What fault_slot() answers for the stream; null: it ends.
void set_fault_slot(CUstream_st* stream, FaultSlot* slot);

#if defined(__CUDACC__) || defined(TESSERA_EMULATED_GPU)
/// Records the fault unless there is one already.
__device__ inline void report_fault(const FaultReporter& to, std::int64_t a, std::int64_t b = 0,
                                    std::int64_t c = 0, std::int64_t d = 0) {
  volatile FaultSlot* slot = to.slot;
  if (slot->state != kNoFault || atomicCAS(&to.slot->state, kNoFault, kWritingFault) != kNoFault)
    return;
  slot->handler = to.handler;
  slot->callback = to.callback;
  const std::int64_t numbers[kFaultNumbers] = {a, b, c, d};
  for (int i = 0; i < kFaultNumbers; ++i) slot->numbers[i] = numbers[i];
  __threadfence_system();  // the host that sees the state sees the rest
  slot->state = kCompleteFault;
}
#endif

}  // namespace tessera::cuda
