#include "tessera/distributed/launch/rank_runner.h"

#include <algorithm>
#include <chrono>
#include <latch>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "tessera/distributed/checked.h"
#include "tessera/distributed/process_group.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/cores.h"
#include "tessera/tensor/device.h"
#include "tessera/tensor/io/failure_text.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tensor/scope_name.h"

namespace tessera::distributed {
namespace {

// Texts of errors name the rank that made them; the report of this failure names it too.
void leave_out_rank(std::string& text, int rank) {
  const std::string named = fmt::format("] rank {}: ", rank);
  for (std::size_t at = text.find(named); at != std::string::npos; at = text.find(named, at))
    text.replace(at, named.size(), "] ");
}

bool is_better(const RankFailure& a, const RankFailure& b) {
  return a.echo != b.echo ? !a.echo : a.time_ns < b.time_ns;
}

}  // namespace

std::int64_t monotonic_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

RankFailure describe_failure(int rank, const std::exception_ptr& error) {
  RankFailure failure{.rank = rank, .time_ns = monotonic_ns(), .error = error};
  try {
    std::rethrow_exception(error);
  } catch (const CollectiveAborted& aborted) {
    failure.echo = true;
    failure.text = failure_text(aborted);
  } catch (const std::exception& exception) {
    failure.text = failure_text(exception);
  } catch (...) {
    failure.text = "an exception of unknown type";
  }
  leave_out_rank(failure.text, rank);
  const std::string scope = failed_scope_path(error);
  if (!scope.empty()) failure.text += fmt::format("; in module \"{}\"", scope);
  return failure;
}

const RankFailure* first_failure(const std::vector<RankFailure>& failures) {
  const RankFailure* first = nullptr;
  for (const RankFailure& failure : failures) {
    if (first == nullptr || is_better(failure, *first)) first = &failure;
  }
  return first;
}

namespace {

// A kernel makes do with the threads that the system grants. Here a refusal is an error, before the work begins.
void check_threads_can_start(int count) {
  std::vector<std::thread> threads;
  std::latch all_started(1);  // Untimed: it opens below, whatever happens
  try {
    for (int i = 0; i < count; ++i) threads.emplace_back([&] { all_started.wait(); });
  } catch (const std::system_error& error) {
    all_started.count_down();
    for (std::thread& thread : threads) thread.join();  // Untimed: nothing else keeps them
    throw_error<Error>("launch",
                       "the system refuses a rank its thread {} of {}: {}; take fewer ranks, or "
                       "raise the limit of threads (ulimit -u) or of memory (ulimit -v)",
                       threads.size() + 2, count + 1, error.code().message());
  }
  all_started.count_down();
  for (std::thread& thread : threads) thread.join();  // Untimed: as above
}

void run_body(const RankSetup& setup, const std::shared_ptr<ProcessGroup>& group,
              const std::shared_ptr<RankContext>& context,
              const std::function<void(World&)>& body) {
  const DefaultDeviceScope device(setup.device);
  StreamGuard compute(DeviceStream::create(kCpu, setup.cpu_compute, "compute"));
  World world(setup.checked ? checked(group) : group, setup.device, context, setup.ranks_per_node,
              setup.stop);
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
  const int threads = setup.threads > 0
                          ? setup.threads
                          : threads_of_cores(static_cast<int>(usable_cores().size()), here);
  const auto context = std::make_shared<RankContext>(rank, group->size(), threads);
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
    check_threads_can_start(context->threads() - 1);
    run_body(setup, group, context, body);
  } catch (...) {
    fail(std::current_exception());
  }
  context->set_failure_handler(nullptr);
  return kept;
}

int threads_of_cores(int cores, int ranks) { return std::max(1, cores / std::max(1, ranks)); }

}  // namespace tessera::distributed
