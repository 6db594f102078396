#pragma once

/// Finds where the first NaN or Inf comes from.
///
///     AnomalyGuard anomaly;
///     backward(loss(model(x)));   // throws AnomalyError at the operation that made the first one
///
/// While it is on, every result of an operation with variables, recorded or not, and every gradient
/// in a backward pass is read on the host and checked. The error names the operation, the module
/// that it ran in and what the tensor holds. In backward that is the operation whose derivative
/// gave the value and the module it was recorded in; forward must then have run in anomaly mode
/// too. Slow: for finding an error, not for training. Belongs to the thread. On the null device
/// there is nothing to check.

#include <string>

#include "tessera/tensor/error.h"
#include "tessera/tensor/tensor.h"
#include "tessera/tensor/thread_state.h"

namespace tessera {

/// A value that is no number, where anomaly mode was on.
class AnomalyError : public Error {
 public:
  using Error::Error;
};

/// Anomaly mode on (or off) until the end of the scope.
class AnomalyGuard {
 public:
  explicit AnomalyGuard(bool on = true);
  ~AnomalyGuard();
  AnomalyGuard(const AnomalyGuard&) = delete;
  AnomalyGuard& operator=(const AnomalyGuard&) = delete;

 private:
  bool previous_;
};

namespace detail {

inline bool anomaly_mode() { return thread_state().settings.anomaly_mode; }

/// True when all elements are finite; also for undefined tensors and dtypes that hold no NaN.
bool all_finite(const Tensor& x);
/// Throws AnomalyError: `what` ("result 0 of \"log\" in ...") holds what x holds.
[[noreturn]] void throw_anomaly(const char* where, const std::string& what, const Tensor& x);
/// Result `i` of an operation that just ran on this thread.
void check_result(const char* operation, int i, const Tensor& x);

}  // namespace detail
}  // namespace tessera
