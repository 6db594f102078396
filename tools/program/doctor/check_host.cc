#include <fmt/format.h>

#include <algorithm>
#include <ctime>

#include "tessera/distributed/launch/launch_folder.h"
#include "tessera/distributed/launch/rank_runner.h"
#include "tessera/tensor/error.h"
#include "tessera/tensor/kernels/table.h"
#include "tessera/tools/program/doctor/checks.h"

namespace tessera::tools::doctor {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
constexpr std::int64_t kMemoryOfRank = 512 * kMiB;      // of the program and a small model
constexpr std::int64_t kSmallSharedMemory = 64 * kMiB;  // what containers have by default

void check_cpu(const CpuFacts& cpu, std::vector<Finding>& findings) {
  Check check("cpu", findings);
  try {
    const CpuIsa isa = choose_cpu_isa(cpu.flags, cpu.requested_isa);
    check.ok(fmt::format("{}, kernels for {}", cpu.model.empty() ? "x86-64" : cpu.model,
                         cpu_isa_name(isa)));
  } catch (const DeviceError& error) {
    const auto [text, remedy] = parted(error.what(), "; ");
    check.fail(text, cpu.requested_isa.empty()
                         ? "use a CPU with AVX2 and FMA; a virtual machine must pass them on"
                         : remedy);
  }
}

void check_cores(const CpuFacts& cpu, const Plan& plan, std::vector<Finding>& findings) {
  Check check("cores", findings);
  const std::string of = cpu.usable < cpu.cores ? fmt::format(" of {}", cpu.cores) : "";
  if (cpu.usable < plan.ranks)
    check.warn(fmt::format("{} ranks would share the {}{} cores that this process may use",
                           plan.ranks, cpu.usable, of),
               fmt::format("start at most {} ranks, or widen the affinity mask (taskset, srun "
                           "--cpus-per-task, docker --cpuset-cpus)",
                           cpu.usable));
  constexpr double kRounding = 0.5;
  if (cpu.quota > 0 && cpu.quota + kRounding < cpu.usable)
    check.warn(
        fmt::format("the control group allows the time of {:.3g} cores, for which the threads "
                    "of {} cores would compete",
                    cpu.quota, cpu.usable),
        "give the container whole cores (docker --cpuset-cpus), or a larger quota (docker "
        "--cpus)");
  check.ok(fmt::format("{}{}, {} threads for each of {} ranks", cpu.usable, of,
                       distributed::threads_of_cores(cpu.usable, plan.ranks), plan.ranks));
}

void check_memory(const MemoryFacts& memory, const Plan& plan, std::vector<Finding>& findings) {
  Check check("memory", findings);
  const std::int64_t needed = kMemoryOfRank * plan.ranks;
  const std::int64_t left = memory.limit - memory.used;
  if (memory.limit > 0 && left < needed)
    check.warn(fmt::format("the control group has {} left of its {}", bytes_text(left),
                           bytes_text(memory.limit)),
               "raise its limit (docker --memory, srun --mem), or start fewer ranks");
  if (memory.available < needed)
    check.warn(fmt::format("the machine has {} available of {}", bytes_text(memory.available),
                           bytes_text(memory.total)),
               "end other programs, or start fewer ranks");
  check.ok(fmt::format("{} available of {}{}", bytes_text(memory.available),
                       bytes_text(memory.total),
                       memory.limit > 0 ? fmt::format(", {} of the control group's {}",
                                                      bytes_text(left), bytes_text(memory.limit))
                                        : ""));
}

// NCCL's processes exchange data there.
void check_shared_memory(const FolderFacts& shm, const Plan& plan, std::vector<Finding>& findings) {
  Check check("shared memory", findings);
  const auto tell = [&](const std::string& text, const std::string& remedy) {
    plan.on_gpus&& plan.ranks > 1 ? check.fail(text, remedy) : check.warn(text, remedy);
  };
  const std::string why = "; rank processes on GPUs need it";
  if (!shm.problem.empty()) {
    tell(fmt::format("{} cannot be written: {}{}", shm.path, shm.problem, why),
         fmt::format("mount it: mount -t tmpfs -o mode=1777 tmpfs {}", shm.path));
  } else if (shm.size <= kSmallSharedMemory) {
    tell(fmt::format("{} has only {}{}", shm.path, bytes_text(shm.size), why),
         "give the container more: docker run --shm-size=8g, or --ipc=host");
  } else if (shm.free <= kSmallSharedMemory) {
    tell(fmt::format("{} is full: {} free of {}{}", shm.path, bytes_text(shm.free),
                     bytes_text(shm.size), why),
         fmt::format("remove files of programs that have ended from {}", shm.path));
  }
  check.ok(
      fmt::format("{} free of {} in {}", bytes_text(shm.free), bytes_text(shm.size), shm.path));
}

void check_temporary(const Facts& facts, const Plan& plan, std::vector<Finding>& findings) {
  Check check("temporary folder", findings);
  const FolderFacts& folder = facts.temporary;
  if (!facts.temporary_variable.empty())
    check.warn(fmt::format("TMPDIR is {}, which is no folder; {} is used", facts.temporary_variable,
                           folder.path),
               "set TMPDIR to a folder that exists, or unset it");
  const auto needed = static_cast<std::int64_t>(sizeof(distributed::RankPage)) * plan.ranks + kMiB;
  if (!folder.problem.empty())
    check.fail(fmt::format("{} cannot be written: {}; ranks find each other there", folder.path,
                           folder.problem),
               "set TMPDIR to a folder that you may write");
  else if (folder.free < needed)
    check.fail(fmt::format("{} has {} free, and {} ranks need {}", folder.path,
                           bytes_text(folder.free), plan.ranks, bytes_text(needed)),
               "make room there, or set TMPDIR to a folder of another disk");
  check.ok(fmt::format("{} free in {}", bytes_text(folder.free), folder.path));
}

void check_clock(std::int64_t now, std::vector<Finding>& findings) {
  constexpr std::int64_t kEarliest = 1735689600, kLatest = 4102444800;  // 2025 and 2100
  Check check("clock", findings);
  const auto seconds = static_cast<std::time_t>(now);
  std::tm date = {};
  gmtime_r(&seconds, &date);
  const std::string text = fmt::format("{:04}-{:02}-{:02} {:02}:{:02} UTC", date.tm_year + 1900,
                                       date.tm_mon + 1, date.tm_mday, date.tm_hour, date.tm_min);
  if (now < kEarliest || now >= kLatest)
    check.fail(
        fmt::format("the system clock says {}; times of files and runs would be wrong", text),
        "set it: timedatectl set-ntp true");
  check.ok(text);
}

}  // namespace

void check_host(const Facts& facts, const Plan& plan, std::vector<Finding>& findings) {
  check_cpu(facts.cpu, findings);
  check_cores(facts.cpu, plan, findings);
  check_memory(facts.memory, plan, findings);
  check_shared_memory(facts.shared_memory, plan, findings);
  check_temporary(facts, plan, findings);
  check_clock(facts.clock, findings);
}

}  // namespace tessera::tools::doctor
