#include <fmt/format.h>

#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "tessera/distributed/device_groups.h"
#include "tessera/distributed/gpu_plan.h"
#include "tessera/distributed/launch_modes.h"
#include "tessera/distributed/memory_store.h"
#include "tessera/distributed/process_group_local.h"
#include "tessera/distributed/rank_runner.h"

namespace tessera::distributed {
namespace {

void join_all(std::vector<std::thread>& threads) {
  for (std::thread& thread : threads) thread.join();
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
  std::mutex mutex;
  std::vector<RankFailure> failures;
  const auto run_one = [&](const std::shared_ptr<ProcessGroup>& group) {
    const RankSetup setup{.device = devices[static_cast<std::size_t>(group->rank())],
                          .cpu_compute = options.cpu_compute,
                          .checked = options.checked};
    std::optional<RankFailure> failure = run_rank(setup, group, body);
    std::lock_guard lock(mutex);
    if (failure) failures.push_back(std::move(*failure));
  };
  std::vector<std::thread> threads;
  try {
    for (std::shared_ptr<ProcessGroup>& group : groups)
      threads.emplace_back([&run_one, mine = std::move(group)]() mutable {
        run_one(mine);
        mine.reset();
      });
  } catch (...) {
    groups.clear();  // the ranks that were started must not wait for those that were not
    join_all(threads);
    throw;
  }
  join_all(threads);
  const RankFailure* first = first_failure(failures);
  if (first == nullptr) return {};
  return {.exit_code = 1, .failure = fmt::format("rank {}: {}", first->rank, first->text)};
}

}  // namespace tessera::distributed
