#include "tessera/distributed/rank_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <thread>

#include "tessera/distributed/checked.h"
#include "tessera/tensor/device.h"
#include "tessera/tensor/rank_context.h"

namespace tessera::distributed {
namespace {

void run_body(const RankSetup& setup, const std::shared_ptr<ProcessGroup>& group,
              const std::shared_ptr<RankContext>& context,
              const std::function<void(World&)>& body) {
  const DefaultDeviceScope device(setup.device);
  StreamGuard compute(Stream::create(kCpu, setup.cpu_compute, "compute"));
  World world(setup.checked ? checked(group) : group, setup.device, context, setup.ranks_per_node);
  body(world);
  current_stream(kCpu).synchronize();
  if (setup.device.is_cuda()) current_stream(setup.device).synchronize();
}

}  // namespace

std::optional<RankFailure> run_rank(const RankSetup& setup,
                                    const std::shared_ptr<ProcessGroup>& group,
                                    const std::function<void(World&)>& body) {
  const int rank = group->rank();
  const int here = setup.ranks_per_node > 0 ? setup.ranks_per_node : group->size();
  const auto context = std::make_shared<RankContext>(rank, group->size(), threads_per_rank(here));
  RankScope scope(context);
  std::mutex mutex;
  std::optional<RankFailure> kept;
  const auto fail = [&](const std::exception_ptr& error) {
    const RankFailure failure = describe_failure(rank, error);
    {
      std::lock_guard lock(mutex);
      if (!kept || (kept->echo && !failure.echo)) {
        kept = failure;
        if (setup.on_failure) setup.on_failure(failure);
      }
    }
    group->abort(failure.text);
  };
  context->set_failure_handler(fail);
  try {
    run_body(setup, group, context, body);
  } catch (...) {
    fail(std::current_exception());
  }
  context->set_failure_handler(nullptr);
  return kept;
}

int threads_per_rank(int ranks) {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  return std::max(1, cores / std::max(1, ranks));
}

}  // namespace tessera::distributed
