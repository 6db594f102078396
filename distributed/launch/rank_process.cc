#include <errno.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "tessera/distributed/device_groups.h"
#include "tessera/distributed/launch/gpu_plan.h"
#include "tessera/distributed/launch/launch_folder.h"
#include "tessera/distributed/launch/launch_modes.h"
#include "tessera/distributed/launch/node_group.h"
#include "tessera/distributed/launch/rank_runner.h"
#include "tessera/distributed/launch/signal_watch.h"
#include "tessera/distributed/launch/spawn.h"
#include "tessera/distributed/store/store.h"
#include "tessera/distributed/transports/process_group_gloo.h"
#include "tessera/distributed/transports/process_group_local.h"
#include "tessera/tensor/cores.h"

namespace tessera::distributed {
namespace {

StopSignal* own_stop = nullptr;

// A terminal sends Ctrl-C to the ranks too, a service manager SIGTERM: the rank hears of it as the
// parent does. A signal of the parent's is its last word.
void on_signal(int signal, siginfo_t* info, void*) {
  const bool is_from_parent = info->si_code <= 0 && info->si_pid == getppid();
  if (is_from_parent || !own_stop->heeded) end_by_signal(signal);
  own_stop->ask(signal);
}

void watch_signals(StopSignal& stop) {
  own_stop = &stop;
  for (const int signal : {SIGINT, SIGTERM}) {
    struct sigaction now = {}, action = {};
    action.sa_sigaction = &on_signal;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    sigaction(signal, nullptr, &now);
    if (now.sa_handler == SIG_DFL) sigaction(signal, &action, nullptr);
  }
}

std::shared_ptr<Store> store_of(const RankEnvironment& environment,
                                std::chrono::milliseconds timeout) {
  if (environment.endpoint.empty()) return std::make_shared<FolderStore>(environment.folder);
  return std::make_shared<TcpStore>(
      TcpStore::Options{.at = parse_endpoint("endpoint", environment.endpoint, 0),
                        .run = run_name(environment),
                        .name = rank_name(environment.rank),
                        .credentials = environment.credentials,
                        .timeout = timeout});
}

int local_rank(const RankEnvironment& environment) {
  return environment.rank % environment.ranks_per_node;
}

std::string cores_key(int rank) { return fmt::format("cores-{}", rank); }
std::string cores_text() { return fmt::format("{}", fmt::join(usable_cores(), ",")); }

// An equal share of this rank's cores, among the ranks of its host that may use the same. Launchers
// such as srun give each rank cores of its own. All ranks have connected, so all have told theirs.
int share_of_cores(const RankEnvironment& environment, Store& store) {
  const std::string mine = cores_text();
  const int first = environment.rank - local_rank(environment);
  int sharers = 0;
  for (int rank = first; rank < first + environment.ranks_per_node; ++rank)
    sharers += store.get(cores_key(rank)).value_or(mine) == mine;
  return threads_of_cores(static_cast<int>(usable_cores().size()), sharers);
}

// The group of this process's rank, its threads, and on GPUs which one is its own.
std::shared_ptr<ProcessGroup> connect(const RankEnvironment& environment,
                                      const LaunchOptions& options, Device& device, int& threads) {
  const std::shared_ptr<Store> store = store_of(environment, options.timeout);
  store->set(cores_key(environment.rank), cores_text());
  auto gloo = make_gloo_group("world", {.rank = environment.rank,
                                        .size = environment.size,
                                        .store = store,
                                        .address = environment.address,
                                        .node = environment.folder,
                                        .credentials = environment.credentials,
                                        .log = &warn_on_standard_error,
                                        .timeout = options.timeout});
  threads = share_of_cores(environment, *store);
  if (!device.is_cuda()) return gloo;
  LaunchOptions of_run = options;  // a rank's own options may not say how many there are
  of_run.ranks = environment.ranks_per_node;
  of_run.nnodes = environment.size / environment.ranks_per_node;
  const GpuFacts facts = facts_of_this_host(of_run);
  const GpuPlan plan = plan_gpus(with_gpus_of_launcher(of_run, facts), facts);
  device.index = plan.gpus[static_cast<std::size_t>(local_rank(environment)) % plan.gpus.size()];
  if (!plan.by_nccl) {  // a rank alone
    return by_device({{DeviceType::kCpu, gloo},
                      {DeviceType::kCuda, make_local_groups("world", 1, options.timeout).front()}});
  }
  auto nccl = make_nccl_group("world", {.rank = environment.rank,
                                        .size = environment.size,
                                        .store = store,
                                        .device = device.index,
                                        .timeout = options.timeout,
                                        .settings = options.nccl});
  return by_device({{DeviceType::kCpu, gloo}, {DeviceType::kCuda, nccl}});
}

// True when all went well.
bool run(const RankEnvironment& environment, const LaunchOptions& options,
         const std::function<void(World&)>& body, const std::shared_ptr<RankPage>& shared) {
  RankPage& page = *shared;
  std::shared_ptr<ProcessGroup> group;
  Device device = options.device;
  int threads = 0;
  try {
    group = connect(environment, options, device, threads);
  } catch (...) {
    page.set_failure(describe_failure(environment.rank, std::current_exception()));
    return false;
  }
  page.connected = !device.is_cuda();  // NCCL goes on using the store
  const RankSetup setup{
      .ranks_per_node = environment.ranks_per_node,
      .device = device,
      .threads = threads,
      .cpu_compute = options.cpu_compute,
      .stop = std::shared_ptr<StopSignal>(shared, &page.stop),
      .checked = options.checked,
      .on_failure = [&page](const RankFailure& failure) { page.set_failure(failure); }};
  return !run_rank(setup, group, body);
}

}  // namespace

void run_rank_process(const LaunchOptions& options, const std::function<void(World&)>& body) {
  // The process was started from /proc/self/exe, and ps would call it "exe".
  prctl(PR_SET_NAME, program_invocation_short_name);
  // Through a pipe a line would wait for a full buffer, and be lost with a rank that is killed.
  setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  const RankEnvironment& environment = *rank_environment();
  const std::shared_ptr<RankPage> page = RankPage::open(environment.folder, environment.rank);
  set_flight_log(std::shared_ptr<FlightLog>(page, &page->log));
  watch_signals(page->stop);
  if (!run(environment, options, body, page)) {
    // Not exit(): threads of the failed run may still stand in code that static destructors would
    // pull away.
    std::fflush(nullptr);
    _exit(1);
  }
  page->done = true;
  std::exit(0);
}

}  // namespace tessera::distributed
