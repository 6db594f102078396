#pragma once

/// A cache of plans, made at their first use. Independent of cuDNN.

#include <map>
#include <memory>
#include <mutex>

namespace tessera::cuda {

/// Thread-safe. Entries are never removed: their number is that of the geometries in the program.
/// While one plan is made, other threads wait; they most often need the same one.
template <class Problem, class Entry>
class PlanCache {
 public:
  /// The entry of `problem`. If it is not cached, make() returns it as a unique_ptr. A null pointer
  /// stands for "no plan exists" and is cached too.
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
