#pragma once

/// What went wrong in a closure or a kernel of a stream, or of a CUDA graph. Private to this
/// folder.

#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "tessera/tensor/cuda/faults.h"

namespace tessera::cuda {

/// Outlives the stream while work may run. Thread-safe.
class QueueFailure {
 public:
  FaultSlot& fault_slot() const { return fault_slot_.slot(); }
  void add_witness(std::function<bool()> witness);
  /// A fault of a kernel is noted as what a closure threw is, and what witnesses know.
  void look_for_fault();
  bool any() const;
  void note(std::exception_ptr error) noexcept;
  /// What is noted here from now on is noted there too. False: it was already.
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

/// The queue replays the graph: what goes wrong in the graph's work is noted by the queue, whose
/// host waits look for it.
void follow(const std::shared_ptr<QueueFailure>& queue, const std::shared_ptr<QueueFailure>& graph);

}  // namespace tessera::cuda
