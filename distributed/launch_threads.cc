#include <fmt/format.h>

#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "tessera/distributed/launch_modes.h"
#include "tessera/distributed/process_group_local.h"
#include "tessera/distributed/rank_runner.h"

namespace tessera::distributed {
namespace {

void join_all(std::vector<std::thread>& threads) {
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

LaunchResult launch_threads(const LaunchOptions& options, const std::function<void(World&)>& body) {
  auto groups = make_local_groups("world", options.ranks, options.timeout);
  const RankSetup setup{
      .device = options.device, .cpu_compute = options.cpu_compute, .checked = options.checked};
  std::mutex mutex;
  std::vector<RankFailure> failures;
  const auto run_one = [&](const std::shared_ptr<ProcessGroup>& group) {
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
