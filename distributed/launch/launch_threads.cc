#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "tessera/distributed/device_groups.h"
#include "tessera/distributed/launch/gpu_plan.h"
#include "tessera/distributed/launch/launch_modes.h"
#include "tessera/distributed/launch/rank_runner.h"
#include "tessera/distributed/launch/signal_watch.h"
#include "tessera/distributed/launch/stop_signal.h"
#include "tessera/distributed/store/memory_store.h"
#include "tessera/distributed/transports/process_group_local.h"
#include "tessera/tensor/check.h"

namespace tessera::distributed {
namespace {

constexpr std::chrono::milliseconds kTick{10};

void join_all(std::vector<std::thread>& threads) {
  for (std::thread& thread : threads) thread.join();
}

// The ranks that have not ended, and their stop signals.
class RunningRanks {
 public:
  explicit RunningRanks(std::size_t count) : running_(count) {
    for (std::size_t rank = 0; rank < count; ++rank)
      stops_.push_back(std::make_shared<StopSignal>());
  }
  const std::shared_ptr<StopSignal>& stop_of(int rank) const {
    return stops_[static_cast<std::size_t>(rank)];
  }
  void ended(int rank) {
    const std::lock_guard lock(mutex_);
    ended_.push_back(rank);
    if (ended_.size() == running_) changed_.notify_all();
  }
  // Until all have ended. Signals are told to the ranks, or have their usual effect.
  void wait() {
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, kTick, [this] { return ended_.size() == running_; })) {
      lock.unlock();
      if (SignalWatch::received() != 0 && !hand_on_signal(working())) SignalWatch::take_effect();
      lock.lock();
    }
  }
  EarlyStop early_stop() const {
    std::vector<StopSignal*> all;
    for (const auto& stop : stops_) all.push_back(stop.get());
    return early_stop_of(all);
  }

 private:
  std::vector<StopSignal*> working() {
    const std::lock_guard lock(mutex_);
    std::vector<StopSignal*> stops;
    for (std::size_t rank = 0; rank < stops_.size(); ++rank)
      if (std::find(ended_.begin(), ended_.end(), static_cast<int>(rank)) == ended_.end())
        stops.push_back(stops_[rank].get());
    return stops;
  }

  std::vector<std::shared_ptr<StopSignal>> stops_;
  std::size_t running_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int> ended_;
};

// What was caught when the thread of `rank` was to be started.
[[noreturn]] void rethrow_no_thread(std::size_t rank) {
  try {
    throw;
  } catch (const std::system_error& error) {
    throw_error<Error>("launch",
                       "the system refuses rank {} its thread: {}; take fewer ranks, or raise the "
                       "limit of threads (ulimit -u) or of memory (ulimit -v)",
                       rank, error.code().message());
  }
}

// Each rank's GPU; groups that also carry CUDA tensors by NCCL where that is how.
void put_on_gpus(const LaunchOptions& options, std::vector<std::shared_ptr<ProcessGroup>>& groups,
                 std::vector<Device>& devices) {
  const GpuPlan plan = plan_gpus(options, facts_of_this_host(options));
  const auto store = std::make_shared<MemoryStore>();
  for (std::size_t rank = 0; rank < groups.size(); ++rank) {
    devices[rank] = {DeviceType::kCuda, plan.gpus[rank % plan.gpus.size()]};
    if (!plan.by_nccl) continue;
    auto nccl = make_nccl_group("world", {.rank = static_cast<int>(rank),
                                          .size = options.ranks,
                                          .store = store,
                                          .device = devices[rank].index,
                                          .timeout = options.timeout,
                                          .settings = options.nccl});
    groups[rank] = by_device({{DeviceType::kCpu, groups[rank]}, {DeviceType::kCuda, nccl}});
  }
}

}  // namespace

LaunchResult launch_threads(const LaunchOptions& options, const std::function<void(World&)>& body) {
  auto groups = make_local_groups("world", options.ranks, options.timeout);
  std::vector<Device> devices(groups.size(), options.device);
  if (options.device.is_cuda()) put_on_gpus(options, groups, devices);
  const SignalWatch signals;
  RunningRanks running(groups.size());
  std::mutex mutex;
  std::vector<RankFailure> failures;
  const auto run_one = [&](const std::shared_ptr<ProcessGroup>& group) {
    const RankSetup setup{.device = devices[static_cast<std::size_t>(group->rank())],
                          .cpu_compute = options.cpu_compute,
                          .stop = running.stop_of(group->rank()),
                          .checked = options.checked};
    std::optional<RankFailure> failure = run_rank(setup, group, body);
    std::lock_guard lock(mutex);
    if (failure) failures.push_back(std::move(*failure));
    running.ended(group->rank());
  };
  std::vector<std::thread> threads;
  try {
    for (std::shared_ptr<ProcessGroup>& group : groups)
      threads.emplace_back([&run_one, mine = std::move(group)]() mutable {
        run_one(mine);
        mine.reset();
      });
  } catch (...) {
    const std::size_t started = threads.size();
    groups.clear();  // the ranks that were started must not wait for those that were not
    join_all(threads);
    rethrow_no_thread(started);
  }
  running.wait();
  join_all(threads);
  const RankFailure* first = first_failure(failures);
  if (first == nullptr) return result_of(running.early_stop());
  return {.exit_code = 1, .failure = fmt::format("rank {}: {}", first->rank, first->text)};
}

}  // namespace tessera::distributed
