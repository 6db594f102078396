#include <fmt/format.h>

#include "tessera/distributed/launch/rank_runner.h"
#include "tessera/tools/program/doctor/checks.h"

namespace tessera::tools::doctor {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

// Of a rank or a launcher: libraries, data, checkpoints; and connections with every rank.
constexpr std::int64_t kFilesOfRank = 64;
constexpr std::int64_t kFilesOfPair = 4;
// Beside those that compute: Gloo's, streams', watchdogs'.
constexpr std::int64_t kOtherThreads = 8;

void check_open_files(const LimitFacts& limits, const Plan& plan, std::vector<Finding>& findings) {
  Check check("open files", findings);
  const std::int64_t needed = kFilesOfRank + kFilesOfPair * plan.ranks;
  if (limits.open_files && *limits.open_files < needed)
    check.fail(fmt::format("a process may open {} files, and one of {} ranks needs about {}",
                           *limits.open_files, plan.ranks, needed),
               fmt::format("raise the limit: ulimit -n {}", 1024 + kFilesOfPair * plan.ranks));
  check.ok(limits.open_files ? fmt::format("{} of a process", *limits.open_files) : "unlimited");
}

void check_threads(const Facts& facts, const Plan& plan, std::vector<Finding>& findings) {
  Check check("threads", findings);
  const LimitFacts& limits = facts.limits;
  const std::int64_t needed =
      plan.ranks * (distributed::threads_of_cores(facts.cpu.usable, plan.ranks) + kOtherThreads);
  if (limits.threads && *limits.threads - limits.threads_now < needed)
    check.fail(fmt::format("this user may have {} threads and has {}; {} ranks need about {} more",
                           *limits.threads, limits.threads_now, plan.ranks, needed),
               "raise the limit (ulimit -u), end other programs, or start fewer ranks");
  if (limits.group_threads && *limits.group_threads - limits.group_threads_now < needed)
    check.fail(
        fmt::format("the control group may have {} threads and has {}; {} ranks need about {} more",
                    *limits.group_threads, limits.group_threads_now, plan.ranks, needed),
        "raise its limit (docker --pids-limit, systemd TasksMax=), or start fewer ranks");
  check.ok(fmt::format("{} ranks need about {}", plan.ranks, needed));
}

void check_sizes(const Facts& facts, std::vector<Finding>& findings) {
  constexpr std::int64_t kLockedForGpus = 64 * kMiB;
  Check check("sizes", findings);
  const LimitFacts& limits = facts.limits;
  if (limits.locked_memory && *limits.locked_memory < kLockedForGpus &&
      !facts.gpu.machine.devices.empty())
    check.warn(fmt::format("a process may lock {} of memory; NCCL over InfiniBand needs more",
                           bytes_text(*limits.locked_memory)),
               "raise the limit: ulimit -l unlimited, docker --ulimit memlock=-1");
  if (limits.address_space)
    check.warn(
        fmt::format("a process may have {} of address space; CUDA and mapped files take more "
                    "than their memory",
                    bytes_text(*limits.address_space)),
        "remove the limit: ulimit -v unlimited");
  if (limits.file_size)
    check.warn(
        fmt::format("a file may have {}; checkpoints may be larger", bytes_text(*limits.file_size)),
        "remove the limit: ulimit -f unlimited");
  check.ok(fmt::format("address space and files unlimited, {}",
                       limits.core_size == 0
                           ? "no core file after a crash (ulimit -c)"
                           : "a crash leaves a core file, if the system writes one"));
}

}  // namespace

void check_limits(const Facts& facts, const Plan& plan, std::vector<Finding>& findings) {
  check_open_files(facts.limits, plan, findings);
  check_threads(facts, plan, findings);
  check_sizes(facts, findings);
}

}  // namespace tessera::tools::doctor
