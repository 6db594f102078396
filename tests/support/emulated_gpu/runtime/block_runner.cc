#include "tessera/tests/support/emulated_gpu/runtime/block_runner.h"

#include <cstdlib>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "tessera/tests/support/emulated_gpu/runtime/fiber.h"

constinit thread_local tessera::emulated::Index3 threadIdx, blockIdx, blockDim, gridDim;

namespace tessera::emulated {
namespace {

constexpr unsigned kMostThreads = 1024;
constexpr unsigned kWarp = 32;
constexpr std::size_t kMostSharedBytes = 227 << 10;
#if defined(TESSERA_THREAD_SANITIZER)
constexpr bool kFiberForEachThread = true;  // so that it can tell them apart
#else
constexpr bool kFiberForEachThread = false;
#endif

// A counter that threads wait to see change.
struct Gate {
  std::uint64_t generation = 0;
  char rounds[2] = {};  // addresses that stand for the even and the odd generation
};

struct Warp {
  WarpValues values[2];  // two rounds in turn: a slow lane still reads the earlier one
  std::uint32_t arrived = 0;
  Gate gate;
};

// A thread of the running block. It has a fiber from its begin to its end.
struct Thread {
  Index3 index;
  Fiber* fiber = nullptr;
  const Gate* waits_at = nullptr;
  std::uint64_t seen = 0;
  bool done = false;

  bool ready() const { return waits_at == nullptr || waits_at->generation != seen; }
};

std::string about(const char* kernel, const std::string& what) {
  return std::string("kernel \"") + kernel + "\" " + what;
}

// Fibers that no host thread uses, of the whole process. Never destroyed.
class FiberStore {
 public:
  static FiberStore& instance() {
    static auto* store = new FiberStore;
    return *store;
  }
  std::unique_ptr<Fiber> take() {
    {
      const std::lock_guard lock(mutex_);
      if (!fibers_.empty()) {
        std::unique_ptr<Fiber> fiber = std::move(fibers_.back());
        fibers_.pop_back();
        return fiber;
      }
    }
    return std::make_unique<Fiber>();
  }
  void give_back(std::unique_ptr<Fiber> fiber) {
    const std::lock_guard lock(mutex_);
    fibers_.push_back(std::move(fiber));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
};

// The order in which the threads of a block run: another one for each of three blocks, and then
// again others. Steps have no divisor in common with the number of threads.
struct ThreadOrder {
  unsigned threads, first, step;

  ThreadOrder(Index3 block, unsigned threads) : threads(threads) {
    const unsigned number = block.x + block.y * 7 + block.z * 13;
    first = number % threads;
    step = number % 3 == 0 ? 1 : threads - 1;
    if (number % 3 != 2) return;
    step = 5 + number % 17;
    while (std::gcd(step, threads) != 1) ++step;
    step %= threads;
  }
  unsigned at(unsigned turn) const {
    return static_cast<unsigned>((first + std::uint64_t{turn} * step) % threads);
  }
};

// Runs the blocks of one host thread.
class BlockRunner {
 public:
  static BlockRunner& of_this_thread() {
    static thread_local BlockRunner runner;
    return runner;
  }
  ~BlockRunner() { give_fibers_back(); }

  void run(const Launch& launch, const char* kernel, const std::function<void()>& body) {
    launch_ = &launch;
    body_ = &body;
    count_ = launch.block.x * launch.block.y * launch.block.z;
    shared_.assign(launch.shared_bytes / sizeof(Unit) + 1, Unit{});
    gridDim = launch.grid;
    blockDim = launch.block;
    for (unsigned z = 0; z < launch.grid.z; ++z)
      for (unsigned y = 0; y < launch.grid.y; ++y)
        for (unsigned x = 0; x < launch.grid.x; ++x) run_block({x, y, z}, kernel);
    if (kFiberForEachThread) give_fibers_back();  // the sanitizer has room for few
  }

  BarrierVotes synchronize(bool vote) {
    votes_ += vote ? 1 : 0;
    const std::uint64_t round = barrier_.generation;
    const char* token = &barrier_.rounds[round % 2];
    release(token);
    if (++arrived_ < count_) {
      wait_at(barrier_, round);
    } else {
      arrived_ = 0;
      result_ = std::exchange(votes_, 0);
      ++barrier_.generation;
    }
    acquire(token);
    return {.count = result_, .threads = static_cast<int>(count_)};
  }

  const WarpValues& exchange(std::uint64_t value) {
    Warp& warp = warps_[current_flat() / kWarp];
    const unsigned lane = current_flat() % kWarp;
    const std::uint64_t round = warp.gate.generation;
    const char* token = &warp.gate.rounds[round % 2];
    release(token);
    WarpValues& values = warp.values[round % 2];
    values.lane[lane] = value;
    warp.arrived |= 1u << lane;
    if (warp.arrived == ~0u) {
      warp.arrived = 0;
      ++warp.gate.generation;
    } else {
      wait_at(warp.gate, round);
    }
    acquire(token);
    return values;
  }

  unsigned current_flat() const { return static_cast<unsigned>(current_ - threads_.data()); }
  void* shared() { return shared_.data(); }

 private:
  struct alignas(16) Unit {
    std::byte bytes[16];
  };

  void run_block(Index3 block, const char* kernel) {
    blockIdx = block;
    arrived_ = begun_ = 0;
    votes_ = 0;
    left_ = count_;
    threads_.assign(count_, Thread{});
    warps_.assign((count_ + kWarp - 1) / kWarp, Warp{});
    const ThreadOrder order(block, count_);
    order_ = &order;
    release(&launch_);
    while (begun_ < count_) begin_fiber();
    while (left_ > 0) {
      bool progressed = false;
      for (unsigned turn = 0; turn < count_; ++turn) {
        Thread& thread = threads_[order.at(turn)];
        if (thread.done || !thread.ready()) continue;
        resume(thread);
        progressed = true;
      }
      if (!progressed) give_up(block, kernel);
    }
    acquire(&body_);
  }

  // A fiber runs one thread after another until one waits.
  void begin_fiber() {
    if (idle_.empty()) idle_.push_back(FiberStore::instance().take());
    Fiber* fiber = idle_.back().release();
    idle_.pop_back();
    fiber->start(&BlockRunner::fiber_main);
    enter(fiber);
  }

  void resume(Thread& thread) {
    current_ = &thread;
    threadIdx = thread.index;
    thread.waits_at = nullptr;
    enter(thread.fiber);
  }

  void enter(Fiber* fiber) {
    running_ = fiber;
    ended_ = false;
    fiber->enter();
    if (ended_) idle_.emplace_back(fiber);
  }

  // On a fiber: lets others run until `gate` changes.
  void wait_at(const Gate& gate, std::uint64_t seen) {
    current_->waits_at = &gate;
    current_->seen = seen;
    release(&left_);
    running_->leave(false);
  }

  static void fiber_main() {
    BlockRunner& runner = of_this_thread();
    runner.running_->arrive();
    acquire(&runner.launch_);
    do {
      runner.begin_thread();
      (*runner.body_)();
      runner.current_->done = true;
      --runner.left_;
    } while (!kFiberForEachThread && runner.begun_ < runner.count_);
    release(&runner.body_);
    runner.ended_ = true;
    runner.running_->leave(true);
    std::abort();  // an ended fiber is never resumed
  }

  void begin_thread() {
    const unsigned flat = order_->at(begun_++);
    const Index3& dim = launch_->block;
    current_ = &threads_[flat];
    current_->index = {flat % dim.x, flat / dim.x % dim.y, flat / (dim.x * dim.y)};
    current_->fiber = running_;
    threadIdx = current_->index;
  }

  // The fibers of threads that hang are not used again.
  [[noreturn]] void give_up(Index3 block, const char* kernel) {
    acquire(&left_);
    acquire(&body_);
    for (Thread& thread : threads_)
      if (!thread.done) delete thread.fiber;
    throw KernelHang(about(kernel, "hangs: " + std::to_string(left_) + " of " +
                                       std::to_string(count_) + " threads of block " +
                                       std::to_string(block.x) +
                                       " wait for others that ended or wait elsewhere"));
  }

  void give_fibers_back() {
    for (std::unique_ptr<Fiber>& fiber : idle_) FiberStore::instance().give_back(std::move(fiber));
    idle_.clear();
  }

  const Launch* launch_ = nullptr;
  const std::function<void()>* body_ = nullptr;
  const ThreadOrder* order_ = nullptr;
  unsigned count_ = 0;  // threads of a block
  unsigned begun_ = 0, left_ = 0;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  std::vector<Unit> shared_;
  std::vector<std::unique_ptr<Fiber>> idle_;
  Gate barrier_;
  unsigned arrived_ = 0;
  int votes_ = 0, result_ = 0;
  Thread* current_ = nullptr;
  Fiber* running_ = nullptr;
  bool ended_ = false;
};

}  // namespace

void* dynamic_shared_memory() { return BlockRunner::of_this_thread().shared(); }
BarrierVotes synchronize_block(bool vote) {
  return BlockRunner::of_this_thread().synchronize(vote);
}
const WarpValues& exchange_in_warp(std::uint64_t value) {
  return BlockRunner::of_this_thread().exchange(value);
}
unsigned lane_index() { return BlockRunner::of_this_thread().current_flat() % kWarp; }

const char* launch_problem(const Launch& launch) {
  const Index3 &grid = launch.grid, &block = launch.block;
  const std::uint64_t threads = std::uint64_t{block.x} * block.y * block.z;
  if (threads == 0 || threads > kMostThreads || block.z > 64)
    return "asks for blocks of a size that no GPU takes";
  if (grid.x == 0 || grid.x > 0x7fffffffu || grid.y == 0 || grid.y > 65535 || grid.z == 0 ||
      grid.z > 65535)
    return "asks for a grid that no GPU takes";
  if (launch.shared_bytes > kMostSharedBytes) return "asks for more than 227 KiB of shared memory";
  return nullptr;
}

void run_grid(const Launch& launch, const char* kernel, const std::function<void()>& body) {
  if (const char* problem = launch_problem(launch); problem != nullptr)
    throw std::runtime_error(about(kernel, problem));
  BlockRunner::of_this_thread().run(launch, kernel, body);
}

}  // namespace tessera::emulated
