#pragma once

/// Plans by what they depend on, made at the first use. Knows nothing of cuDNN.

#include <map>
#include <memory>
#include <mutex>

namespace tessera::cuda {

/// Any thread. Entries live as long as the process: their number is that of the geometries that a
/// program uses. While one plan is made, other threads wait, which most often want the same.
template <class Problem, class Entry>
class PlanCache {
 public:
  /// The entry of `problem`; make() gives it where there is none yet, as a unique_ptr that may be
  /// null (there is no plan, which is remembered too).
  template <class Make>
  Entry* get(const Problem& problem, Make make) {
    const std::lock_guard lock(mutex_);
    auto at = entries_.find(problem);
    if (at == entries_.end()) at = entries_.emplace(problem, make()).first;
    return at->second.get();
  }

 private:
  std::mutex mutex_;
  std::map<Problem, std::unique_ptr<Entry>> entries_;
};

}  // namespace tessera::cuda
