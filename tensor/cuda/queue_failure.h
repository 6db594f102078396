#pragma once

/// What went wrong in a closure or a kernel of a stream. Private to this folder.

#include <exception>
#include <functional>
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
  void note(std::exception_ptr error);
  void rethrow() const;
  void rethrow_once();

 private:
  void ask_witnesses();

  const OwnFaultSlot fault_slot_;
  mutable std::mutex mutex_;
  std::exception_ptr error_;
  std::vector<std::function<bool()>> witnesses_;
};

}  // namespace tessera::cuda
