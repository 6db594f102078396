#pragma once

/// The implementation of a queued CPU stream: one thread that runs tasks from a queue. For
/// stream.cc. CUDA queues use task_failure() too.

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "tessera/tensor/memory/stream_pool.h"
#include "tessera/tensor/rank_context.h"

namespace tessera {

struct TracedWork;

/// One record of an event. It fires once, possibly with the error of its stream.
class Mark {
 public:
  void fire(std::exception_ptr error);
  /// Blocks until fired; returns the error that the mark carries.
  std::exception_ptr wait() const;
  bool fired() const;
  bool fired_without_error() const;

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable reached_;
  bool fired_ = false;
  std::exception_ptr error_;
};

/// The exception that is being handled, as waiting threads see it: an exception of Tessera as it
/// is, any other nested in an Error that names the closure and its stream. Call it in a catch
/// block.
std::exception_ptr task_failure(const char* task, const std::string& stream);

class WorkQueue {
 public:
  /// Starts the thread. `pool` is retired when the thread ends.
  static std::shared_ptr<WorkQueue> start(const std::string& name,
                                          std::shared_ptr<StreamPool> pool);
  WorkQueue(std::string name, std::shared_ptr<StreamPool> pool);
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  /// Each runs under the caller's RankContext, in the order of the calls. `name` must outlive them.
  /// `times`: receives begin and end; may be null.
  void run(const char* name, std::function<void()> work, std::shared_ptr<TracedWork> times);
  void record(std::shared_ptr<Mark> mark);
  void wait(std::shared_ptr<Mark> mark, std::shared_ptr<TracedWork> times);

  /// Blocks until everything so far has run; rethrows the failure and clears it.
  void synchronize();
  /// No more tasks will follow. Waits for the thread, except on a stream's worker thread, which
  /// this queue's tasks might be waiting for.
  void finish() noexcept;

 private:
  struct Task {
    const char* name = nullptr;
    std::function<void()> work;            // of run()
    std::shared_ptr<Mark> fires;           // of record()
    std::shared_ptr<Mark> waits;           // of wait()
    std::shared_ptr<RankContext> context;  // null for record()
    std::shared_ptr<TracedWork> times;
  };
  void push(Task task);
  void loop();
  bool next(Task* task);
  void execute(Task& task);
  void run_work(Task& task);
  void poison(std::exception_ptr error);
  std::exception_ptr failure() const;

  const std::string name_;
  const std::shared_ptr<StreamPool> pool_;  // counts tasks, see StreamPool::issued
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable done_;
  std::deque<Task> tasks_;
  bool idle_ = false;
  bool finishing_ = false;
  int synchronizing_ = 0;
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace tessera
