#include "tessera/tensor/streams/work_queue.h"

#include <pthread.h>

#include <utility>

#include "tessera/tensor/check.h"
#include "tessera/tensor/trace.h"

namespace tessera {

void Mark::fire(std::exception_ptr error) {
  {
    const std::lock_guard lock(mutex_);
    error_ = std::move(error);
    fired_ = true;
  }
  reached_.notify_all();
}

std::exception_ptr Mark::wait() const {
  std::unique_lock lock(mutex_);
  reached_.wait(lock, [this] { return fired_; });
  return error_;
}

bool Mark::fired() const {
  const std::lock_guard lock(mutex_);
  return fired_;
}

bool Mark::fired_without_error() const {
  const std::lock_guard lock(mutex_);
  return fired_ && error_ == nullptr;
}

WorkQueue::WorkQueue(std::string name, std::shared_ptr<StreamPool> pool)
    : name_(std::move(name)), pool_(std::move(pool)) {}

std::shared_ptr<WorkQueue> WorkQueue::start(const std::string& name,
                                            std::shared_ptr<StreamPool> pool) {
  auto queue = std::make_shared<WorkQueue>(name, std::move(pool));
  // The thread shares ownership: it may outlive the stream, see finish().
  queue->thread_ = std::thread([queue] { queue->loop(); });
  return queue;
}

void WorkQueue::run(const char* name, std::function<void()> work,
                    std::shared_ptr<TracedWork> times) {
  push({.name = name,
        .work = std::move(work),
        .fires = nullptr,
        .waits = nullptr,
        .context = current_rank_context(),
        .times = std::move(times)});
}

void WorkQueue::record(std::shared_ptr<Mark> mark) {
  push({.name = "record",
        .work = nullptr,
        .fires = std::move(mark),
        .waits = nullptr,
        .context = nullptr,
        .times = nullptr});
}

void WorkQueue::wait(std::shared_ptr<Mark> mark, std::shared_ptr<TracedWork> times) {
  push({.name = "wait",
        .work = nullptr,
        .fires = nullptr,
        .waits = std::move(mark),
        .context = current_rank_context(),
        .times = std::move(times)});
}

void WorkQueue::push(Task task) {
  bool wakes = false;
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    pool_->issued.fetch_add(1, std::memory_order_relaxed);
    wakes = std::exchange(idle_, false);
  }
  if (wakes) wake_.notify_one();
}

void WorkQueue::loop() {
  detail::thread_state().is_stream_worker = true;
  pthread_setname_np(pthread_self(), name_.substr(0, 15).c_str());
  Task task;
  while (next(&task)) {
    execute(task);
    task = {};  // destroys the closure's captures before the task counts as done
    bool wakes = false;
    {
      const std::lock_guard lock(mutex_);
      pool_->completed.fetch_add(1, std::memory_order_release);
      wakes = synchronizing_ > 0;
    }
    if (wakes) done_.notify_all();
  }
  pool_->retire();
}

bool WorkQueue::next(Task* task) {
  std::unique_lock lock(mutex_);
  wake_.wait(lock, [this] {
    idle_ = tasks_.empty() && !finishing_;
    return !idle_;
  });
  if (tasks_.empty()) return false;
  *task = std::move(tasks_.front());
  tasks_.pop_front();
  return true;
}

void WorkQueue::execute(Task& task) {
  if (task.fires) {
    task.fires->fire(failure());
    return;
  }
  const RankScope scope(task.context);
  const WorkTimer timer(task.times.get());
  if (task.waits) {
    if (std::exception_ptr error = task.waits->wait()) poison(std::move(error));
  } else if (failure() == nullptr) {
    run_work(task);
  }
}

void WorkQueue::run_work(Task& task) {
  try {
    task.work();
  } catch (...) {
    poison(task_failure(task.name, name_));
  }
}

std::exception_ptr task_failure(const char* task, const std::string& stream) {
  const auto named = [&](const char* what) {
    return Error(error_text("stream",
                            fmt::format("\"{}\" failed on stream \"{}\": {}", task, stream, what)));
  };
  try {
    try {
      throw;
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      std::throw_with_nested(named(error.what()));
    } catch (...) {
      std::throw_with_nested(named("an exception that is not a std::exception"));
    }
  } catch (...) {
    return std::current_exception();
  }
}

void WorkQueue::poison(std::exception_ptr error) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_ != nullptr) return;
    failure_ = error;
  }
  current_rank_context()->report_failure(std::move(error));
}

std::exception_ptr WorkQueue::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void WorkQueue::synchronize() {
  TESSERA_CHECK_AS(StateError, std::this_thread::get_id() != thread_.get_id(), "stream.synchronize",
                   "stream \"{}\" would wait for itself: call it outside of its closures", name_);
  std::exception_ptr failure;
  {
    std::unique_lock lock(mutex_);
    const std::uint64_t target = pool_->issued.load(std::memory_order_relaxed);
    ++synchronizing_;
    done_.wait(lock, [&] { return pool_->completed.load(std::memory_order_acquire) >= target; });
    --synchronizing_;
    failure = std::exchange(failure_, nullptr);
  }
  if (failure != nullptr) std::rethrow_exception(std::move(failure));
}

void WorkQueue::finish() noexcept {
  {
    const std::lock_guard lock(mutex_);
    finishing_ = true;
    wake_.notify_one();
  }
  if (detail::thread_state().is_stream_worker) {
    thread_.detach();
  } else {
    thread_.join();
  }
}

}  // namespace tessera
