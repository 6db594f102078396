#include "tessera/tools/program/doctor/control_group.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <vector>

namespace tessera::tools::doctor {
namespace {

namespace fs = std::filesystem;

// Version 1 has no word for "no limit", but numbers above all memory.
constexpr std::int64_t kNoLimit = std::int64_t{1} << 60;

// The group's folder and those above it, up to the root of the hierarchy. In a container the path may be
// the host's, which is not there: then the root is the container's own group.
std::vector<fs::path> folders(const fs::path& root, const std::string& path) {
  std::vector<fs::path> all;
  const fs::path inner = fs::path(path).relative_path();
  for (fs::path at = inner; !at.empty(); at = at.parent_path()) all.push_back(root / at);
  all.push_back(root);
  std::erase_if(all, [](const fs::path& folder) {
    std::error_code none;
    return !fs::is_directory(folder, none);
  });
  return all;
}

void narrow(std::optional<std::int64_t>& limit, std::int64_t& used, std::int64_t more,
            std::int64_t used_there) {
  if (more < 0 || more >= kNoLimit || (limit && *limit <= more)) return;
  limit = more;
  used = used_there;
}

void narrow_cores(double& cores, double quota, double period) {
  if (quota <= 0 || period <= 0) return;
  cores = cores == 0 ? quota / period : std::min(cores, quota / period);
}

// Pages of files count as used and are dropped when memory is short.
std::int64_t used_memory(const fs::path& folder, const char* name, const char* files) {
  const std::int64_t all = number_in(folder / name).value_or(0);
  const std::int64_t droppable = number_behind(text_of(folder / "memory.stat"), files).value_or(0);
  return std::max<std::int64_t>(0, all - droppable);
}

void read_version_2(const fs::path& folder, ControlGroup& group) {
  std::istringstream cpu(text_of(folder / "cpu.max"));
  double quota = 0, period = 0;
  if (cpu >> quota >> period) narrow_cores(group.cores, quota, period);  // not for "max 100000"
  if (const auto memory = number_in(folder / "memory.max"))
    narrow(group.memory, group.memory_used, *memory,
           used_memory(folder, "memory.current", "inactive_file"));
  if (const auto threads = number_in(folder / "pids.max"))
    narrow(group.threads, group.threads_used, *threads,
           number_in(folder / "pids.current").value_or(0));
}

void read_version_1(const std::string& controller, const fs::path& folder, ControlGroup& group) {
  if (controller == "cpu") {
    narrow_cores(group.cores,
                 static_cast<double>(number_in(folder / "cpu.cfs_quota_us").value_or(0)),
                 static_cast<double>(number_in(folder / "cpu.cfs_period_us").value_or(0)));
  } else if (controller == "memory") {
    if (const auto memory = number_in(folder / "memory.limit_in_bytes"))
      narrow(group.memory, group.memory_used, *memory,
             used_memory(folder, "memory.usage_in_bytes", "total_inactive_file"));
  } else if (controller == "pids") {
    if (const auto threads = number_in(folder / "pids.max"))
      narrow(group.threads, group.threads_used, *threads,
             number_in(folder / "pids.current").value_or(0));
  }
}

}  // namespace

std::string text_of(const std::string& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return in ? text.str() : "";
}

std::optional<std::int64_t> number_in(const std::string& path) {
  std::ifstream in(path);
  std::int64_t number = 0;
  if (in >> number) return number;
  return std::nullopt;
}

std::optional<std::int64_t> number_behind(const std::string& text, const std::string& key) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(key)) continue;
    std::istringstream rest(line.substr(key.size()));
    std::int64_t number = 0;
    if (rest >> number) return number;
  }
  return std::nullopt;
}

// Lines of /proc/self/cgroup: "0::/path" of version 2, "4:cpu,cpuacct:/path" of version 1.
ControlGroup read_control_group(const std::string& proc, const std::string& sys) {
  ControlGroup group;
  const fs::path root = fs::path(sys) / "fs" / "cgroup";
  std::istringstream lines(text_of(proc + "/self/cgroup"));
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos) continue;
    const std::string names = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (names.empty())
      for (const fs::path& folder : folders(root, path)) read_version_2(folder, group);
    std::istringstream controllers(names);
    for (std::string name; std::getline(controllers, name, ',');)
      for (const fs::path& folder : folders(root / name, path)) read_version_1(name, folder, group);
  }
  return group;
}

}  // namespace tessera::tools::doctor
