#include "tessera/distributed/launch/launch.h"

#include <string.h>
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "tessera/distributed/device_groups.h"
#include "tessera/distributed/launch/core_shares.h"
#include "tessera/distributed/launch/foreign_launcher.h"
#include "tessera/distributed/launch/gpu_plan.h"
#include "tessera/distributed/launch/launch_folder.h"
#include "tessera/distributed/launch/launch_modes.h"
#include "tessera/distributed/launch/node_group.h"
#include "tessera/distributed/launch/rank_runner.h"
#include "tessera/distributed/launch/rank_supervisor.h"
#include "tessera/distributed/launch/signal_watch.h"
#include "tessera/distributed/launch/spawn.h"
#include "tessera/distributed/launch/stop_signal.h"
#include "tessera/distributed/store/store.h"
#include "tessera/distributed/transports/process_group_local.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/cores.h"
#include "tessera/tensor/io/standard_streams.h"

namespace tessera::distributed {
namespace {

void check_nodes(const LaunchOptions& options) {
  TESSERA_CHECK(options.nnodes >= 1, "launch", "nnodes must be at least 1, got {}", options.nnodes);
  TESSERA_CHECK(options.node_rank >= 0 && options.node_rank < options.nnodes, "launch",
                "node_rank must be from 0 to {} with {} nodes, got {}", options.nnodes - 1,
                options.nnodes, options.node_rank);
  if (options.nnodes == 1) return;
  TESSERA_CHECK(options.mode != LaunchMode::kThreads, "launch",
                "threads cannot be on {} nodes; launch processes", options.nnodes);
  TESSERA_CHECK(!options.rdzv_endpoint.empty(), "launch",
                "{} nodes need an rdzv_endpoint to meet at: host:port of node 0", options.nnodes);
}

// The options with the number of ranks, and where another launcher has started the ranks, with its
// hosts and the address where they meet.
LaunchOptions complete(const LaunchOptions& asked, const std::optional<ForeignWorld>& world) {
  constexpr int kDefaultRanks = 2;
  LaunchOptions options = asked;
  if (!world) {
    options.ranks = asked.ranks.value_or(kDefaultRanks);
    return options;
  }
  const bool names_nodes = asked.nnodes != 1 || asked.node_rank != 0;
  check_asked(*world, {.ranks = asked.ranks,
                       .nnodes = names_nodes ? std::optional(asked.nnodes) : std::nullopt,
                       .node_rank = names_nodes ? std::optional(asked.node_rank) : std::nullopt});
  options.ranks = world->local_size;
  options.nnodes = world->hosts();
  options.node_rank = world->node_rank();
  options.rdzv_endpoint = meeting_place(*world, asked.rdzv_endpoint).str();
  return options;
}

void check_options(const LaunchOptions& options, bool started_elsewhere) {
  TESSERA_CHECK(*options.ranks >= 1, "launch", "ranks must be at least 1, got {}", *options.ranks);
  TESSERA_CHECK(options.timeout.count() > 0, "launch", "timeout must be positive, got {} ms",
                options.timeout.count());
  TESSERA_CHECK(options.bind != RankBinding::kCores || options.mode != LaunchMode::kThreads,
                "launch", "threads are not bound to cores; launch processes");
  check_nodes(options);
  if (!options.device.is_cuda()) return;
  const GpuFacts facts = facts_of_this_host(options);
  const std::string shortage =
      gpu_shortage(started_elsewhere ? with_gpus_of_launcher(options, facts) : options, facts);
  TESSERA_CHECK_AS(DeviceError, shortage.empty(), "launch", "{}", shortage);
}

}  // namespace

LaunchResult launch(int argc, char** argv, const LaunchOptions& asked,
                    const std::function<void(World&)>& body) {
  static int process_calls = 0;
  const bool by_processes = asked.mode != LaunchMode::kThreads;
  if (by_processes) ++process_calls;
  const RankEnvironment* rank = rank_environment();
  const bool passes_over = by_processes && rank != nullptr && rank->call != process_calls;
  if (by_processes && rank != nullptr && !passes_over) run_rank_process(asked, body);
  // Also a rank throws what its parent threw, or it would not come to the call it belongs to.
  const std::optional<ForeignWorld> world =
      asked.mode == LaunchMode::kAuto ? foreign_world() : std::nullopt;
  const LaunchOptions options = complete(asked, world);
  check_options(options, world.has_value());
  if (passes_over) return {};
  reserve_standard_streams();  // the output of ranks is passed on to them
  return by_processes ? launch_processes(argc, argv, launcher_of(options, world), process_calls)
                      : launch_threads(options, body);
}

LaunchResult result_of(const EarlyStop& stop) {
  constexpr int kExitBySignal = 128;
  return {.exit_code = stop.signal == 0 ? 0 : kExitBySignal + stop.signal,
          .signal = stop.signal,
          .steps = stop.steps};
}

bool is_rank_process() { return rank_environment() != nullptr; }

namespace {

constexpr std::chrono::milliseconds kTick{10};

void join_all(std::vector<std::thread>& threads) {
  // Untimed: all have ended, or end because their groups have.
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
                                          .size = *options.ranks,
                                          .store = store,
                                          .device = devices[rank].index,
                                          .timeout = options.timeout,
                                          .settings = options.nccl});
    groups[rank] = by_device({{DeviceType::kCpu, groups[rank]}, {DeviceType::kCuda, nccl}});
  }
}

}  // namespace

LaunchResult launch_threads(const LaunchOptions& options, const std::function<void(World&)>& body) {
  auto groups = make_local_groups("world", *options.ranks, options.timeout);
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

namespace {

std::vector<std::vector<int>> shares_of_cores(int ranks) {
  std::vector<CorePlace> places;
  for (const int core : usable_cores()) places.push_back(place_of_core(core));
  return divide_cores(in_order(std::move(places)), ranks);
}

}  // namespace

LaunchResult launch_processes(int argc, char** argv, const Launcher& launcher, int call) {
  NodeGroup nodes(launcher, call);
  SignalWatch signals;  // outlives the folder: its destructor may end the process
  LaunchFolder folder;
  RankSupervisor supervisor(nodes.environment(), launcher.ranks, folder);
  std::vector<std::string> arguments(argv, argv + argc);
  if (arguments.empty()) arguments.emplace_back("tessera");
  supervisor.start(arguments, launcher.bind_to_cores ? shares_of_cores(launcher.ranks)
                                                     : std::vector<std::vector<int>>());
  supervisor.wait(launcher.timeout, [&nodes] { return nodes.failed_elsewhere(); });
  std::optional<RankFailure> failure = first_failure_of(supervisor.children());
  if (const int signal = SignalWatch::received(); signal != 0 && !failure)
    failure = {.text = fmt::format("stopped by signal {} ({})", signal, strsignal(signal))};
  if (const std::string lost = supervisor.output_failure(); !lost.empty() && !failure)
    failure = {.text = lost};
  const std::string text = nodes.finish(failure);
  if (!text.empty()) {
    const bool is_of_ours = failure && failure->text == text;
    return {.exit_code = 1,
            .failure = text,
            .last_lines = is_of_ours ? supervisor.last_lines(failure->rank) : ""};
  }
  return result_of(supervisor.early_stop());
}

}  // namespace tessera::distributed
