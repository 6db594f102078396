#include "tessera/tensor/kernels/threads.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "tessera/tensor/rank_context.h"

namespace tessera {
namespace {

// Watches the state until done(state) is true, but only for a short time: the next kernel of a model follows within microseconds.
// Returns the last state. Afterwards a thread sleeps, because on a busy machine another thread needs the core.
template <class Done>
std::uint32_t watch(const std::atomic<std::uint32_t>& state, const Done& done) {
  using Clock = std::chrono::steady_clock;
  constexpr auto kWatched = std::chrono::microseconds(100);
  constexpr int kLooks = 32;  // between two looks at the clock
  std::uint32_t now = state.load(std::memory_order_acquire);
  if (done(now)) return now;
  const Clock::time_point end = Clock::now() + kWatched;
  do {
    for (int i = 0; i < kLooks; ++i) {
      __builtin_ia32_pause();
      now = state.load(std::memory_order_acquire);
      if (done(now)) return now;
    }
  } while (Clock::now() < end);
  return now;
}

// Sleeps until done(state) is true, and returns the state.
template <class Done>
std::uint32_t sleep_until(const std::atomic<std::uint32_t>& state, std::uint32_t now,
                          const Done& done) {
  while (!done(now)) {
    state.wait(now, std::memory_order_acquire);
    now = state.load(std::memory_order_acquire);
  }
  return now;
}

// Helpers are counted in 10 bits.
constexpr int kMostThreads = 1024;

// True on a thread that computes pieces.
constinit thread_local bool t_computes = false;

// The helpers of one thread, its owner.
class Helpers {
 public:
  Helpers() = default;
  ~Helpers() {
    state_.fetch_or(kStopped);
    state_.notify_all();
    for (std::thread& helper : threads_) helper.join();  // Untimed: a helper waits for state_ alone
  }
  Helpers(const Helpers&) = delete;
  Helpers& operator=(const Helpers&) = delete;

  void run(std::int64_t pieces, int threads, KernelPiece piece, const void* body) {
    start_threads(threads - 1);
    job_ = {.threads = std::min(threads, static_cast<int>(threads_.size()) + 1),
            .piece = piece,
            .body = body};
    for (int t = 0; t < job_.threads; ++t) {
      part(t).next.store(pieces * t / job_.threads, std::memory_order_relaxed);
      part(t).end = pieces * (t + 1) / job_.threads;
    }
    open(job_.threads - 1);
    compute(0, 0);
    close();
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

 private:
  // Pieces that one thread computes before others. Parts share no cache line.
  struct alignas(128) Part {
    std::atomic<std::int64_t> next = 0;
    std::int64_t end = 0;
  };
  // Written while no helper is inside; a helper reads it only inside.
  struct Job {
    int threads = 0;
    KernelPiece piece = nullptr;
    const void* body = nullptr;
  };

  // state_: how many helpers are inside the job, how many more may enter it, whether the owner sleeps until all have left,
  // whether helpers must end, and the job's number. That starts again at 0 after 1,023: a helper that has slept for
  // so long may miss one job, and the others do its part.
  static constexpr std::uint32_t kInside = 1, kAllInside = 0x3FF, kPlace = 1U << 10,
                                 kAllPlaces = 0x3FFU << 10, kOwnerSleeps = 1U << 20,
                                 kStopped = 1U << 21, kJob = 1U << 22;

  Part& part(int thread) { return parts_[static_cast<std::size_t>(thread)]; }

  void start_threads(int count) {
    while (!refused_ && static_cast<int>(threads_.size()) < count) {
      while (parts_.size() < threads_.size() + 2) parts_.emplace_back();
      try {
        threads_.emplace_back(
            [this, number = static_cast<int>(threads_.size()) + 1] { help(number); });
      } catch (const std::system_error&) {
        refused_ = true;  // not asked for again; fewer threads are slower, and nothing else
      }
    }
  }

  // Begins a job with places for so many helpers, and wakes them if they sleep.
  void open(int places) {
    const std::uint32_t job = (state_.load(std::memory_order_relaxed) / kJob + 1) * kJob;
    state_.store(job + static_cast<std::uint32_t>(places) * kPlace);
    if (places == static_cast<int>(threads_.size())) return state_.notify_all();
    for (int i = 0; i < places; ++i) state_.notify_one();
  }

  // Lets no helper enter any more, and waits for those inside.
  void close() {
    const auto is_empty = [](std::uint32_t state) { return (state & kAllInside) == 0; };
    state_.fetch_and(~kAllPlaces, std::memory_order_acq_rel);
    if (is_empty(watch(state_, is_empty))) return;
    sleep_until(state_, state_.fetch_or(kOwnerSleeps, std::memory_order_acq_rel) | kOwnerSleeps,
                is_empty);
  }

  // `number` belongs to the helper for ever, its thread number to one job: that depends on how many have entered before.
  void help(int number) {
    pthread_setname_np(pthread_self(), "kernel");
    t_computes = true;
    std::uint32_t last = 0;  // the number of the job that this helper was in
    const auto is_called = [&](std::uint32_t state) {
      return (state & kStopped) != 0 || ((state & kAllPlaces) != 0 && state / kJob != last);
    };
    for (;;) {
      std::uint32_t now = sleep_until(state_, watch(state_, is_called), is_called);
      if ((now & kStopped) != 0) return;
      if (!state_.compare_exchange_strong(now, now - kPlace + kInside, std::memory_order_acq_rel))
        continue;
      last = now / kJob;
      compute(job_.threads - static_cast<int>((now & kAllPlaces) / kPlace), number % job_.threads);
      const std::uint32_t left = state_.fetch_sub(kInside, std::memory_order_acq_rel) - kInside;
      if ((left & kAllInside) == 0 && (left & kOwnerSleeps) != 0) state_.notify_all();
    }
  }

  // Computes the pieces of one part, then those that are left of the others. The part is that of the helper's last job, if it
  // had as many threads: what that job wrote may still be in the core's cache.
  void compute(int thread, int first) {
    for (int i = 0; i < job_.threads; ++i) {
      Part& from = part((first + i) % job_.threads);
      for (;;) {
        const std::int64_t piece = from.next.fetch_add(1, std::memory_order_relaxed);
        if (piece >= from.end) break;
        try {
          job_.piece(job_.body, piece, thread);
        } catch (...) {
          const std::lock_guard lock(error_mutex_);
          if (!error_) error_ = std::current_exception();
        }
      }
    }
  }

  std::atomic<std::uint32_t> state_ = 0;
  Job job_;
  std::deque<Part> parts_;  // of the owner and of each helper
  std::mutex error_mutex_;
  std::exception_ptr error_;
  std::vector<std::thread> threads_;
  bool refused_ = false;
};

// The calling thread's helpers. Static variables may still compute after the main thread's helpers have ended. A forked process
// has none of them.
class OwnHelpers {
 public:
  ~OwnHelpers() {
    if (process_ != getpid()) helpers_.release();
    helpers_.reset();
    t_computes = true;
  }
  Helpers& get() { return *helpers_; }

 private:
  pid_t process_ = getpid();
  std::unique_ptr<Helpers> helpers_ = std::make_unique<Helpers>();
};

Helpers& own_helpers() {
  thread_local OwnHelpers own;
  return own.get();
}

class ComputesScope {
 public:
  ComputesScope() { t_computes = true; }
  ~ComputesScope() { t_computes = false; }
  ComputesScope(const ComputesScope&) = delete;
  ComputesScope& operator=(const ComputesScope&) = delete;
};

}  // namespace

void run_pieces(std::int64_t pieces, int threads, KernelPiece piece, const void* body) {
  const int most = t_computes ? 1 : std::min(threads, current_rank_context()->threads());
  const auto used = static_cast<int>(std::min<std::int64_t>({most, pieces, kMostThreads}));
  if (used > 1) {
    const ComputesScope computes;
    return own_helpers().run(pieces, used, piece, body);
  }
  for (std::int64_t i = 0; i < pieces; ++i) piece(body, i, 0);
}

}  // namespace tessera
