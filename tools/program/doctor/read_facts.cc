#include "tessera/tools/program/doctor/read_facts.h"

#include <errno.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <memory>
#include <sstream>

#include "tessera/distributed/launch/foreign_launcher.h"
#include "tessera/distributed/launch/launch_folder.h"
#include "tessera/distributed/launch/rank_runner.h"
#include "tessera/tensor/cores.h"
#include "tessera/tools/program/doctor/control_group.h"

namespace tessera::tools::doctor {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kKiB = 1024;

// "model name	: AMD EPYC"
std::string model_of(const std::string& cpu_info) {
  const std::size_t at = cpu_info.find("model name");
  if (at == cpu_info.npos) return {};
  const std::size_t colon = cpu_info.find(": ", at), end = cpu_info.find('\n', at);
  if (colon == cpu_info.npos || colon > end) return {};
  return cpu_info.substr(colon + 2, end - colon - 2);
}

std::optional<std::int64_t> soft_limit(int resource) {
  rlimit limit = {};
  if (getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0 ||
      limit.rlim_cur == RLIM_INFINITY)
    return std::nullopt;
  return static_cast<std::int64_t>(limit.rlim_cur);
}

// Threads of all processes of this user.
std::int64_t threads_of_user(const std::string& proc) {
  std::int64_t threads = 0;
  std::error_code error;
  for (fs::directory_iterator entry(proc, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.find_first_not_of("0123456789") != name.npos) continue;
    const std::string status = text_of(entry->path() / "status");
    if (number_behind(status, "Uid:") == static_cast<std::int64_t>(getuid()))
      threads += number_behind(status, "Threads:").value_or(0);
  }
  return threads;
}

std::string text_of_error() { return std::strerror(errno); }

}  // namespace

CpuFacts read_cpu(const Sources& sources) {
  const char* isa = std::getenv("TESSERA_CPU_ISA");
  CpuFacts cpu = {.model = model_of(text_of(sources.proc + "/cpuinfo")),
                  .flags = detect_cpu_flags(),
                  .requested_isa = isa == nullptr ? "" : isa,
                  .cores = static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN))),
                  .usable = static_cast<int>(usable_cores().size())};
  cpu.quota = read_control_group(sources.proc, sources.sys).cores;
  return cpu;
}

MemoryFacts read_memory(const Sources& sources) {
  const std::string info = text_of(sources.proc + "/meminfo");
  const ControlGroup group = read_control_group(sources.proc, sources.sys);
  MemoryFacts memory = {.total = number_behind(info, "MemTotal:").value_or(0) * kKiB,
                        .available = number_behind(info, "MemAvailable:").value_or(0) * kKiB};
  if (group.memory && *group.memory < memory.total) {
    memory.limit = *group.memory;
    memory.used = group.memory_used;
  }
  return memory;
}

LimitFacts read_limits(const Sources& sources) {
  const ControlGroup group = read_control_group(sources.proc, sources.sys);
  LimitFacts limits = {.open_files = soft_limit(RLIMIT_NOFILE),
                       .group_threads = group.threads,
                       .group_threads_now = group.threads_used,
                       .locked_memory = soft_limit(RLIMIT_MEMLOCK),
                       .address_space = soft_limit(RLIMIT_AS),
                       .file_size = soft_limit(RLIMIT_FSIZE),
                       .core_size = soft_limit(RLIMIT_CORE)};
  // The system does not count root's threads.
  if (geteuid() != 0) limits.threads = soft_limit(RLIMIT_NPROC);
  if (limits.threads) limits.threads_now = threads_of_user(sources.proc);
  return limits;
}

FolderFacts read_folder(const std::string& path) {
  FolderFacts folder = {.path = path};
  struct statvfs space = {};
  if (statvfs(path.c_str(), &space) != 0) {
    folder.problem = text_of_error();
    return folder;
  }
  const auto unit = static_cast<std::int64_t>(space.f_frsize);
  folder.free = static_cast<std::int64_t>(space.f_bavail) * unit;
  folder.size = static_cast<std::int64_t>(space.f_blocks) * unit;
  std::string file = path + "/tessera-doctor-XXXXXX";
  const int fd = mkstemp(file.data());
  if (fd < 0) {
    folder.problem = text_of_error();
    return folder;
  }
  if (::write(fd, "x", 1) != 1) folder.problem = text_of_error();
  close(fd);
  unlink(file.c_str());
  return folder;
}

int count_nvidia_devices(const Sources& sources) {
  int count = 0;
  std::error_code error;
  for (fs::directory_iterator entry(sources.sys + "/bus/pci/devices", error), end;
       !error && entry != end; entry.increment(error)) {
    const std::string kind = text_of(entry->path() / "class");  // 0x0300: VGA, 0x0302: 3D
    count += text_of(entry->path() / "vendor").starts_with("0x10de") && kind.starts_with("0x03");
  }
  return count;
}

Facts read_facts(const Sources& sources, const std::string& endpoint) {
  Facts facts = {.cpu = read_cpu(sources),
                 .memory = read_memory(sources),
                 .gpu = read_gpus(),
                 .shared_memory = read_folder(sources.shared_memory),
                 .temporary = read_folder(distributed::temporary_folder()),
                 .limits = read_limits(sources),
                 .network = read_network(sources, endpoint),
                 .clock = static_cast<std::int64_t>(std::time(nullptr)),
                 .environment = distributed::this_environment(),
                 .parent = getppid()};
  facts.gpu.pci = count_nvidia_devices(sources);
  const char* wanted = std::getenv("TMPDIR");
  std::error_code none;
  if (wanted != nullptr && *wanted != '\0' && !fs::is_directory(wanted, none))
    facts.temporary_variable = wanted;
  return facts;
}

}  // namespace tessera::tools::doctor
