// `tessera doctor`: what it reads of a machine: made-up /proc and /sys, a resolver of the test's, a
// child with narrow limits; and the command itself.
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tessera/tests/program/run_program.h"
#include "tessera/tests/support/temporary_folder.h"
#include "tessera/tests/support/test_main.h"
#include "tessera/tools/program/doctor/checks.h"
#include "tessera/tools/program/doctor/control_group.h"
#include "tessera/tools/program/doctor/read_facts.h"

namespace tessera::tools::doctor {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::Contains;
using testing::run_program;

// A folder with a /proc and a /sys of its own, removed at the end.
class Machine {
 public:
  void write(const std::string& path, const std::string& text) const {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  Sources sources() const {
    return {.proc = (root_ / "proc").string(),
            .sys = (root_ / "sys").string(),
            .shared_memory = (root_ / "shm").string()};
  }
  std::string path(const std::string& name) const { return (root_ / name).string(); }

 private:
  testing::TemporaryFolder folder_;
  const fs::path root_ = folder_.path();
};

// The findings of a child process in which `prepare` has run, as lines.
template <class Prepare>
std::string findings_of_child(const Prepare& prepare) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    prepare();
    std::vector<Finding> findings;
    Facts facts;
    facts.limits = read_limits({});
    check_limits(facts, {}, findings);
    for (const Finding& each : findings) {
      const std::string line = each.text + "\n";
      if (::write(ends[1], line.data(), line.size()) < 0) _exit(1);
    }
    _exit(0);
  }
  close(ends[1]);
  std::string text;
  char piece[512];
  for (ssize_t got = 0; (got = read(ends[0], piece, sizeof(piece))) > 0;)
    text.append(piece, static_cast<std::size_t>(got));
  close(ends[0]);
  waitpid(child, nullptr, 0);
  return text;
}

void limit(int resource, rlim_t value) {
  const rlimit both = {.rlim_cur = value, .rlim_max = value};
  if (setrlimit(static_cast<__rlimit_resource>(resource), &both) != 0) _exit(2);
}

}  // namespace

TEST_CASE("doctor: limits of a control group of version 2, the narrowest of its folders") {
  const Machine machine;
  machine.write("proc/self/cgroup", "0::/outer/inner\n");
  machine.write("sys/fs/cgroup/outer/cpu.max", "150000 100000\n");
  machine.write("sys/fs/cgroup/outer/inner/cpu.max", "max 100000\n");
  machine.write("sys/fs/cgroup/outer/memory.max", "4294967296\n");
  machine.write("sys/fs/cgroup/outer/memory.current", "2000000000\n");
  machine.write("sys/fs/cgroup/outer/inner/memory.max", "1073741824\n");
  machine.write("sys/fs/cgroup/outer/inner/memory.current", "900000000\n");
  machine.write("sys/fs/cgroup/outer/inner/memory.stat", "anon 5\ninactive_file 100000000\n");
  machine.write("sys/fs/cgroup/outer/inner/pids.max", "max\n");
  machine.write("sys/fs/cgroup/pids.max", "64\n");
  machine.write("sys/fs/cgroup/pids.current", "40\n");
  machine.write("proc/meminfo", "MemTotal:       8388608 kB\nMemAvailable:    4194304 kB\n");
  machine.write("proc/cpuinfo", "processor\t: 0\nmodel name\t: A CPU\nmodel name\t: Other\n");
  const CpuFacts cpu = read_cpu(machine.sources());
  CHECK(cpu.quota == 1.5);
  CHECK(cpu.model == "A CPU");
  const MemoryFacts memory = read_memory(machine.sources());
  CHECK(memory.total == 8LL << 30);
  CHECK(memory.available == 4LL << 30);
  CHECK(memory.limit == 1LL << 30);
  CHECK(memory.used == 800000000);
  const LimitFacts limits = read_limits(machine.sources());
  CHECK(limits.group_threads == 64);
  CHECK(limits.group_threads_now == 40);
}

TEST_CASE("doctor: limits of control groups of version 1, also of a container's") {
  const Machine machine;
  machine.write("proc/self/cgroup", "5:cpu,cpuacct:/docker/1\n4:memory:/docker/1\n3:pids:/\n");
  machine.write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000\n");
  machine.write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  machine.write("sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes", "2147483648\n");
  machine.write("sys/fs/cgroup/memory/docker/1/memory.usage_in_bytes", "1000\n");
  machine.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  machine.write("sys/fs/cgroup/pids/pids.max", "100\n");
  const ControlGroup group = read_control_group(machine.sources().proc, machine.sources().sys);
  CHECK(group.cores == 0.5);
  CHECK(group.memory == 2LL << 30);
  CHECK(group.memory_used == 1000);
  CHECK(group.threads == 100);
}

TEST_CASE("doctor: version 1 writes a number above all memory where there is no limit") {
  const Machine machine;
  machine.write("proc/self/cgroup", "4:memory:/\n");
  machine.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  CHECK_FALSE(read_control_group(machine.sources().proc, machine.sources().sys).memory);
}

TEST_CASE("doctor: without control groups, and with files that are none, there are no limits") {
  const Machine machine;
  CHECK(read_control_group(machine.sources().proc, machine.sources().sys).cores == 0);
  machine.write("proc/self/cgroup", "nonsense\n0:\n0::/x\n");
  machine.write("sys/fs/cgroup/x/cpu.max", "much\n");
  machine.write("sys/fs/cgroup/x/memory.max", "-3\n");
  const ControlGroup group = read_control_group(machine.sources().proc, machine.sources().sys);
  CHECK(group.cores == 0);
  CHECK_FALSE(group.memory);
  CHECK_FALSE(group.threads);
  CHECK(read_memory(machine.sources()).total == 0);
  CHECK(count_nvidia_devices(machine.sources()) == 0);
}

TEST_CASE("doctor: NVIDIA's devices on the bus") {
  const Machine machine;
  const auto add = [&](const char* slot, const char* vendor, const char* kind) {
    const std::string folder = std::string("sys/bus/pci/devices/") + slot + "/";
    machine.write(folder + "vendor", vendor);
    machine.write(folder + "class", kind);
  };
  add("0000:01:00.0", "0x10de\n", "0x030200\n");
  add("0000:01:00.1", "0x10de\n", "0x040300\n");  // its sound
  add("0000:02:00.0", "0x10de\n", "0x030000\n");
  add("0000:03:00.0", "0x1002\n", "0x030000\n");
  CHECK(count_nvidia_devices(machine.sources()) == 2);
}

TEST_CASE("doctor: limits of a process are those that were set") {
  CHECK_THAT(findings_of_child([] { limit(RLIMIT_NOFILE, 50); }),
             Contains("a process may open 50 files"));
  CHECK_THAT(findings_of_child([] { limit(RLIMIT_FSIZE, 1 << 20); }),
             Contains("a file may have 1.0 MiB"));
  CHECK_THAT(findings_of_child([] { limit(RLIMIT_AS, rlim_t{3} << 30); }),
             Contains("a process may have 3.0 GiB of address space"));
  CHECK_THAT(findings_of_child([] { limit(RLIMIT_CORE, 0); }), Contains("no core file"));
}

TEST_CASE("doctor: threads are counted for all users but root") {
  const std::string text = findings_of_child([] {
    if (geteuid() == 0 && setuid(65534) != 0) _exit(2);
    limit(RLIMIT_NPROC, 1);
  });
  if (text.empty()) return testing::skip("needs another user than root");
  CHECK_THAT(text, Contains("this user may have 1 threads and has "));
}

TEST_CASE("doctor: folders that can be written, and others") {
  const Machine machine;
  fs::create_directory(machine.path("there"));
  const FolderFacts there = read_folder(machine.path("there"));
  CHECK(there.problem.empty());
  CHECK(there.size > 0);
  CHECK(fs::is_empty(machine.path("there")));
  CHECK(read_folder(machine.path("missing")).problem == "No such file or directory");
  CHECK_FALSE(read_folder("/proc").problem.empty());
}

TEST_CASE("doctor: a small file system is a small shared memory") {
  const Machine machine;
  fs::create_directory(machine.path("shm"));
  if (mount("tmpfs", machine.path("shm").c_str(), "tmpfs", 0, "size=1m") != 0)
    return testing::skip("needs the right to mount");
  const FolderFacts small = read_folder(machine.path("shm"));
  CHECK(small.size == 1 << 20);
  std::ofstream(machine.path("shm/file")) << std::string(2 << 20, 'x');
  CHECK(read_folder(machine.path("shm")).problem == "No space left on device");
  umount(machine.path("shm").c_str());
}

TEST_CASE("doctor: the host name is resolved by the given function") {
  const Machine machine;
  Sources sources = machine.sources();
  std::string asked;
  sources.resolve = [&](const std::string& name) -> Resolved {
    asked = name;
    return {.problem = "Name or service not known"};
  };
  const NetworkFacts lost = read_network(sources, "");
  CHECK(lost.host_name == asked);
  CHECK(lost.host_problem == "Name or service not known");
  CHECK(lost.loopback_problem.empty());
  CHECK(std::any_of(lost.interfaces.begin(), lost.interfaces.end(),
                    [](const NetworkInterface& each) { return each.is_loopback; }));
  const NetworkFacts endpoint = read_network(sources, "other.host:1234");
  CHECK(asked == "other.host");
  CHECK(endpoint.endpoint_problem == "Name or service not known");
  CHECK_THAT(read_network(sources, ":99999").endpoint_problem, Contains("--rdzv-endpoint"));
  sources.resolve = [](const std::string&) -> Resolved { return {.addresses = {"127.0.0.1"}}; };
  const NetworkFacts local = read_network(sources, "here:1");
  CHECK(local.host_addresses == std::vector<std::string>{"127.0.0.1"});
  CHECK(local.route_address == "127.0.0.1");
  CHECK(local.endpoint_problem.empty());
}

TEST_CASE("doctor: the command prints a line for each check, within two seconds") {
  const auto start = std::chrono::steady_clock::now();
  const testing::ProgramResult result = run_program({"doctor"});
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(2));
  CHECK(result.err.empty());
  for (const std::string& line : testing::lines_of(result.out))
    CHECK((line.starts_with("ok       ") || line.starts_with("warning  ") ||
           line.starts_with("problem  ") || line.find(" problem") != line.npos));
  for (const char* check :
       {"cpu", "cores", "memory", "shared memory", "temporary folder", "clock", "gpus", "cudnn",
        "nccl", "peer access", "network", "host name", "loopback", "open files", "threads", "sizes",
        "thread variables", "launcher"})
    CHECK_THAT(result.out, Contains(std::string(" ") + check + ": "));
}

TEST_CASE("doctor: a problem is exit code 1, also in JSON") {
  const testing::ProgramOptions broken = {
      .environment = {{"WORLD_SIZE", "4"}, {"OMP_DYNAMIC", "true"}, {"TMPDIR", "/nowhere"}}};
  const testing::ProgramResult lines = run_program({"doctor"}, broken);
  CHECK(lines.exit_code == 1);
  CHECK_THAT(lines.out,
             Contains("problem  launcher: torchrun has set WORLD_SIZE=4: RANK is missing; "
                      "correct or unset them"));
  CHECK_THAT(lines.out, Contains("warning  temporary folder: TMPDIR is /nowhere"));
  const testing::ProgramResult result = run_program({"doctor", "--json"}, broken);
  CHECK(result.exit_code == 1);
  const nlohmann::json json = nlohmann::json::parse(result.out);
  CHECK(json.at("problems").get<int>() >= 1);
  CHECK(json.at("warnings").get<int>() >= 2);
  const auto& checks = json.at("checks");
  CHECK(std::any_of(checks.begin(), checks.end(), [](const nlohmann::json& each) {
    return each.at("check") == "launcher" && each.at("status") == "problem" &&
           !each.at("remedy").get<std::string>().empty();
  }));
}

TEST_CASE("doctor: options that are none are refused") {
  CHECK(run_program({"doctor", "--ranks", "0"}).exit_code == 2);
  CHECK(run_program({"doctor", "--rank", "2"}).exit_code == 2);
}

}  // namespace tessera::tools::doctor
