#pragma once

/// The failure of a closure or a kernel of a stream or of a CUDA graph. Private to this folder.

#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "tessera/tensor/cuda/faults.h"

namespace tessera::cuda {

/// Lives as long as work may still run, also after the stream. Thread-safe.
class QueueFailure {
 public:
  FaultSlot& fault_slot() const { return fault_slot_.slot(); }
  void add_witness(std::function<bool()> witness);
  /// Notes a kernel's fault like a closure's exception, and calls the host-wait callbacks.
  void look_for_fault();
  bool any() const;
  void note(std::exception_ptr error) noexcept;
  /// Failures noted here from now on are noted in the listener too. Returns false if it was added
  /// before.
  bool add_listener(const std::shared_ptr<QueueFailure>& listener);
  void rethrow() const;
  void rethrow_once();

 private:
  void ask_witnesses();

  const OwnFaultSlot fault_slot_;
  mutable std::mutex mutex_;
  std::exception_ptr error_;
  std::vector<std::shared_ptr<const std::function<bool()>>> witnesses_;
  std::vector<std::weak_ptr<QueueFailure>> listeners_;
};

/// The queue replays the graph: failures of the graph's work are noted in the queue, and the
/// queue's host waits look for them.
void follow(const std::shared_ptr<QueueFailure>& queue, const std::shared_ptr<QueueFailure>& graph);

}  // namespace tessera::cuda
