#pragma once

/// The threads that make the batches of coming steps. Private to nn; DataLoader uses it.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace tessera::nn::data {

/// Makes results of consecutive steps on threads, ahead of the caller that takes them.
class ReadAhead {
 public:
  using Result = std::shared_ptr<void>;
  /// Whether the result is still needed. If not, Make may return early, with any result.
  using Wanted = std::function<bool()>;
  /// Called on several threads at once.
  using Make = std::function<Result(std::int64_t step, const Wanted& wanted)>;

  /// At most `ahead` results (at least 1) are made or waiting at a time. 0 workers: take() makes
  /// them itself. Throws what the construction of threads throws.
  ReadAhead(int workers, std::int64_t ahead, Make make);
  /// Waits for the calls of `make` in progress, and starts no more.
  ~ReadAhead();
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  /// Returns the result of a step, or throws what making it threw. Consecutive steps have been made
  /// ahead; any other step is made now, and the steps after it ahead. No step above `last` is made
  /// ahead. Only one thread may call it.
  Result take(std::int64_t step, std::int64_t last);
  /// Drops waiting results and makes no more until the next take().
  void cancel();

 private:
  struct Outcome {
    Result result;
    std::exception_ptr failure;
  };
  void run();
  Outcome attempt(std::int64_t step, const Wanted& wanted) const noexcept;
  bool can_start() const;
  void stop_and_join();

  const Make make_;
  const std::int64_t ahead_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  std::int64_t taken_next_ = 0;  // the step that take() should ask for next; 0: none
  std::int64_t made_next_ = 0;   // the step that a worker starts next
  std::int64_t last_ = 0;
  /// Changes whenever the steps in progress are no longer needed.
  std::atomic<std::int64_t> course_{0};
  std::map<std::int64_t, Outcome> ready_;
  std::vector<std::thread> workers_;
};

}  // namespace tessera::nn::data
