#include "tessera/nn/data/read_ahead.h"

#include <utility>

namespace tessera::nn::data {

ReadAhead::ReadAhead(int workers, std::int64_t ahead, Make make)
    : make_(std::move(make)), ahead_(ahead) {
  try {
    for (int worker = 0; worker < workers; ++worker) workers_.emplace_back([this] { run(); });
  } catch (...) {
    stop_and_join();
    throw;
  }
}

ReadAhead::~ReadAhead() { stop_and_join(); }

void ReadAhead::stop_and_join() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    ++course_;
  }
  changed_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

bool ReadAhead::can_start() const {
  return taken_next_ > 0 && made_next_ < taken_next_ + ahead_ && made_next_ <= last_;
}

ReadAhead::Outcome ReadAhead::attempt(std::int64_t step, const Wanted& wanted) const noexcept {
  try {
    return {.result = make_(step, wanted), .failure = {}};
  } catch (...) {
    return {.result = {}, .failure = std::current_exception()};
  }
}

void ReadAhead::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stop_ || can_start(); });
    if (stop_) return;
    const std::int64_t step = made_next_++, course = course_;
    lock.unlock();
    Outcome outcome = attempt(step, [&] { return course == course_; });
    lock.lock();
    if (course != course_) continue;  // another step was requested meanwhile
    ready_.emplace(step, std::move(outcome));
    changed_.notify_all();
  }
}

ReadAhead::Result ReadAhead::take(std::int64_t step, std::int64_t last) {
  Outcome outcome;
  if (workers_.empty()) {
    outcome = attempt(step, [] { return true; });
  } else {
    if (step != taken_next_) cancel();
    std::unique_lock lock(mutex_);
    if (taken_next_ == 0) taken_next_ = made_next_ = step;
    last_ = last;
    changed_.notify_all();
    changed_.wait(lock, [&] { return ready_.contains(step); });
    outcome = std::move(ready_.extract(step).mapped());
    ++taken_next_;
    changed_.notify_all();
  }
  if (outcome.failure) std::rethrow_exception(outcome.failure);
  return std::move(outcome.result);
}

void ReadAhead::cancel() {
  std::map<std::int64_t, Outcome> dropped;
  const std::lock_guard lock(mutex_);
  dropped.swap(ready_);
  taken_next_ = made_next_ = 0;
  ++course_;
}

}  // namespace tessera::nn::data
