// `tessera doctor`: what it says of machines that are made up.
#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "tessera/tools/program/doctor/checks.h"

namespace tessera::tools::doctor {
namespace {

using Catch::Matchers::Contains;

constexpr std::int64_t kGiB = std::int64_t{1} << 30;
constexpr std::int64_t kMiB = std::int64_t{1} << 20;

// A machine with two GPUs on which all is well.
Facts good() {
  Facts facts;
  facts.cpu = {.model = "A CPU", .cores = 16, .usable = 16};
  facts.cpu.flags = {.avx2 = true,
                     .fma = true,
                     .bmi1 = true,
                     .bmi2 = true,
                     .f16c = true,
                     .lzcnt = true,
                     .movbe = true};
  facts.memory = {.total = 64 * kGiB, .available = 60 * kGiB};
  facts.gpu.pci = 2;
  const cuda::DeviceFacts h100 = {.name = "H100", .major = 9, .minor = 0, .has_memory_pools = true};
  facts.gpu.machine = {
      .has_cuda = true, .driver_version = 13010, .runtime_version = 13000, .devices = {h100, h100}};
  facts.gpu.cudnn = 91900;
  facts.gpu.nccl = 22803;
  facts.shared_memory = {.path = "/dev/shm", .free = 30 * kGiB, .size = 32 * kGiB};
  facts.temporary = {.path = "/tmp", .free = 5 * kGiB, .size = 9 * kGiB};
  facts.limits.open_files = 4096;
  facts.network.interfaces = {
      {.name = "lo", .addresses = {"127.0.0.1"}, .is_up = true, .is_loopback = true},
      {.name = "eth0", .addresses = {"10.0.0.2"}, .is_up = true},
      {.name = "ib0", .addresses = {}, .is_up = true},
      {.name = "off0", .addresses = {"10.9.0.1"}, .is_up = false}};
  facts.network.host_name = "here";
  facts.network.host_addresses = {"10.0.0.2"};
  facts.network.route_address = "10.0.0.2";
  facts.clock = 1'790'000'000;
  return facts;
}

// Findings but for those that all is well.
std::vector<Finding> faults(const Facts& facts, const Plan& plan = {}) {
  std::vector<Finding> found = examine(facts, plan);
  std::erase_if(found, [](const Finding& each) { return each.level == Level::kOk; });
  return found;
}

struct Fault {
  std::string check;
  Level level = Level::kWarning;
  std::string text;  // what the finding contains
  std::function<void(Facts&)> break_it;
  Plan plan{};
};

constexpr Level kWarning = Level::kWarning, kProblem = Level::kProblem;

const std::vector<Fault>& host_faults() {
  static const std::vector<Fault> faults = {
      {"cpu", kProblem, "lacks avx2", [](Facts& f) { f.cpu.flags.avx2 = false; }},
      {"cpu", kProblem, "TESSERA_CPU_ISA is \"v4\"", [](Facts& f) { f.cpu.requested_isa = "v4"; }},
      {"cores", kWarning, "2 ranks would share the 1 of 16 cores",
       [](Facts& f) { f.cpu.usable = 1; }},
      {"cores", kWarning, "the time of 2 cores, for which the threads of 16 cores",
       [](Facts& f) { f.cpu.quota = 2; }},
      {"memory", kWarning, "the control group has 300.0 MiB left of its 1.0 GiB",
       [](Facts& f) { f.memory.limit = kGiB, f.memory.used = 724 * kMiB; }},
      {"memory", kWarning, "the machine has 200.0 MiB available of 64.0 GiB",
       [](Facts& f) { f.memory.available = 200 * kMiB; }},
      {"shared memory", kWarning, "/dev/shm has only 64.0 MiB",
       [](Facts& f) { f.shared_memory.size = f.shared_memory.free = 64 * kMiB; }},
      {"shared memory", kWarning, "/dev/shm is full: 1.0 MiB free of 32.0 GiB",
       [](Facts& f) { f.shared_memory.free = kMiB; }},
      {"shared memory", kWarning, "/dev/shm cannot be written: Permission denied",
       [](Facts& f) { f.shared_memory.problem = "Permission denied"; }},
      {"temporary folder", kProblem, "/tmp cannot be written: Read-only file system",
       [](Facts& f) { f.temporary.problem = "Read-only file system"; }},
      {"temporary folder", kProblem, "/tmp has 5 B free, and 2 ranks need ",
       [](Facts& f) { f.temporary.free = 5; }},
      {"temporary folder", kWarning, "TMPDIR is /nowhere, which is no folder; /tmp is used",
       [](Facts& f) { f.temporary_variable = "/nowhere"; }},
      {"clock", kProblem, "says 1970-01-01 00:01 UTC", [](Facts& f) { f.clock = 60; }},
  };
  return faults;
}

const std::vector<Fault>& gpu_faults() {
  const Plan on_gpus = {.ranks = 2, .on_gpus = true};
  static const std::vector<Fault> faults = {
      {"gpus", kProblem, "2 NVIDIA devices on the bus, but no NVIDIA driver was found",
       [](Facts& f) { f.gpu.machine = {.has_cuda = true, .runtime_version = 13000}; }, on_gpus},
      {"gpus", kWarning,
       "the NVIDIA driver is of CUDA 12.4, and this program needs one of CUDA 13.0",
       [](Facts& f) { f.gpu.machine.driver_version = 12040; }},
      {"gpus",
       kProblem,
       "there are 3 ranks and 2 GPUs",
       [](Facts&) {},
       {.ranks = 3, .on_gpus = true}},
      {"gpus", kWarning, "cuda:1", [](Facts& f) { f.gpu.machine.devices[1].major = 7; }},
      {"cudnn", kWarning, "older than 9.14", [](Facts& f) { f.gpu.cudnn = 91000; }},
      {"cudnn", kWarning, "built without cuDNN", [](Facts& f) { f.gpu.cudnn = 0; }},
      {"nccl", kWarning, "NCCL 2.26.5 is older than 2.27.0", [](Facts& f) { f.gpu.nccl = 22605; }},
      {"nccl", kWarning, "this build has no NCCL", [](Facts& f) { f.gpu.nccl = 0; }},
      {"peer access", kWarning, "each other's memory: 0-1, 1-0; data passes through the host",
       [](Facts& f) {
         f.gpu.without_peer_access = {{0, 1}, {1, 0}};
       }},
  };
  return faults;
}

const std::vector<Fault>& network_faults() {
  static const std::vector<Fault> faults = {
      {"network", kProblem, "no way leads to --rdzv-endpoint node0:1: Name or service not known",
       [](Facts& f) {
         f.network.endpoint = "node0:1";
         f.network.endpoint_problem = "Name or service not known";
       }},
      {"network", kWarning, "no default route, so runs of several hosts find their interface (eth0",
       [](Facts& f) { f.network.route_address = ""; }},
      {"host name", kWarning, "here does not resolve (no reply within a second)",
       [](Facts& f) {
         f.network.host_addresses.clear();
         f.network.host_problem = "no reply within a second";
       }},
      {"host name", kWarning, "here resolves to 127.0.1.1, which other hosts cannot reach",
       [](Facts& f) { f.network.host_addresses = {"127.0.1.1"}; }},
      {"host name", kWarning, "here resolves to 10.0.0.9, which is no address of this host",
       [](Facts& f) { f.network.host_addresses = {"10.0.0.9"}; }},
      {"loopback", kProblem, "127.0.0.1 cannot be connected to: Connection refused",
       [](Facts& f) { f.network.loopback_problem = "Connection refused"; }},
  };
  return faults;
}

const std::vector<Fault>& limit_faults() {
  static const std::vector<Fault> faults = {
      {"open files", kProblem, "a process may open 70 files, and one of 2 ranks needs about 72",
       [](Facts& f) { f.limits.open_files = 70; }},
      {"threads", kProblem, "this user may have 100 threads and has 99; 2 ranks need about 32 more",
       [](Facts& f) { f.limits.threads = 100, f.limits.threads_now = 99; }},
      {"threads", kProblem, "the control group may have 64 threads and has 40",
       [](Facts& f) { f.limits.group_threads = 64, f.limits.group_threads_now = 40; }},
      {"sizes", kWarning, "a process may lock 8.0 MiB of memory",
       [](Facts& f) { f.limits.locked_memory = 8 * kMiB; }},
      {"sizes", kWarning, "a process may have 4.0 GiB of address space",
       [](Facts& f) { f.limits.address_space = 4 * kGiB; }},
      {"sizes", kWarning, "a file may have 1.0 GiB", [](Facts& f) { f.limits.file_size = kGiB; }},
  };
  return faults;
}

const std::vector<Fault>& environment_faults() {
  static const std::vector<Fault> faults = {
      {"thread variables", kWarning, "GOMP_CPU_AFFINITY=0-3 binds the threads of all ranks",
       [](Facts& f) { f.environment["GOMP_CPU_AFFINITY"] = "0-3"; }},
      {"thread variables", kWarning, "OMP_PROC_BIND=close binds the threads of all ranks",
       [](Facts& f) { f.environment["OMP_PROC_BIND"] = "close"; }},
      {"launcher", kProblem, "torchrun has set WORLD_SIZE=4: RANK is missing",
       [](Facts& f) { f.environment["WORLD_SIZE"] = "4"; }},
  };
  return faults;
}

std::vector<Fault> all_faults() {
  std::vector<Fault> all;
  for (const auto* some :
       {&host_faults(), &gpu_faults(), &network_faults(), &limit_faults(), &environment_faults()})
    all.insert(all.end(), some->begin(), some->end());
  return all;
}

}  // namespace

TEST_CASE("doctor: nothing is wrong with a good machine, and each check says so") {
  CHECK(faults(good()).empty());
  CHECK(faults(good(), {.ranks = 2, .on_gpus = true}).empty());
  std::set<std::string> checks;
  for (const Finding& finding : examine(good(), {})) {
    CHECK(finding.remedy.empty());
    CHECK_FALSE(finding.text.empty());
    CHECK(checks.insert(finding.check).second);
  }
  CHECK(checks.size() == 18);
}

TEST_CASE("doctor: a machine without GPUs is good for the CPU") {
  Facts bare = good();
  bare.gpu = {};
  CHECK(faults(bare).empty());
  bare.gpu.machine = {.has_cuda = true, .runtime_version = 13000};
  CHECK(faults(bare).empty());
  const std::vector<Finding> found = faults(bare, {.ranks = 1, .on_gpus = true});
  REQUIRE(found.size() == 1);
  CHECK(found[0].level == Level::kProblem);
  CHECK(found[0].text == "no NVIDIA driver was found, and CUDA 13.0 needs one");
  CHECK(found[0].remedy == "install it, or use the cpu");
}

TEST_CASE("doctor: each fault has one message of its own, with its remedy") {
  std::set<std::string> texts, remedies;
  for (const Fault& fault : all_faults()) {
    CAPTURE(fault.text);
    Facts facts = good();
    fault.break_it(facts);
    const std::vector<Finding> found = faults(facts, fault.plan);
    REQUIRE(found.size() == 1);
    CHECK(found[0].check == fault.check);
    CHECK(found[0].level == fault.level);
    CHECK_THAT(found[0].text, Contains(fault.text));
    CHECK_FALSE(found[0].remedy.empty());
    CHECK(texts.insert(found[0].text).second);
    CHECK(remedies.insert(found[0].check + found[0].remedy).second);
  }
}

TEST_CASE("doctor: all faults at once are all told") {
  Facts facts = good();
  std::vector<std::string> expected;
  for (const Fault& fault : limit_faults()) {
    fault.break_it(facts);
    expected.push_back(fault.text);
  }
  const std::vector<Finding> found = faults(facts);
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) CHECK_THAT(found[i].text, Contains(expected[i]));
}

TEST_CASE("doctor: small shared memory is a problem where processes use it") {
  Facts facts = good();
  facts.shared_memory.size = facts.shared_memory.free = kMiB;
  CHECK(faults(facts, {.ranks = 2, .on_gpus = true})[0].level == Level::kProblem);
  CHECK(faults(facts, {.ranks = 1, .on_gpus = true})[0].level == Level::kWarning);
}

TEST_CASE("doctor: more ranks need more") {
  Facts facts = good();
  facts.limits.open_files = 1024;
  CHECK(faults(facts).empty());
  const std::vector<Finding> found = faults(facts, {.ranks = 300});
  CHECK(std::any_of(found.begin(), found.end(), [](const Finding& each) {
    return each.text == "a process may open 1024 files, and one of 300 ranks needs about 1264";
  }));
}

TEST_CASE("doctor: what has no effect and who has started it is told, too") {
  Facts facts = good();
  facts.environment = {{"OMP_NUM_THREADS", "1"}, {"OMP_DYNAMIC", "true"}, {"RANK", "1"},
                       {"WORLD_SIZE", "2"},      {"LOCAL_RANK", "1"},     {"LOCAL_WORLD_SIZE", "2"},
                       {"MASTER_ADDR", "a"},     {"MASTER_PORT", "1"}};
  CHECK(faults(facts).empty());
  const std::vector<Finding> all = examine(facts, {});
  CHECK(all[all.size() - 2].text ==
        "OMP_NUM_THREADS=1, OMP_DYNAMIC=true without effect: each rank has 8 threads");
  CHECK_THAT(all.back().text, Contains("torchrun has started this process as rank 1 of 2"));
}

TEST_CASE("doctor: a loopback address of its name does on a host without a network") {
  Facts facts = good();
  facts.network.interfaces.resize(1);
  facts.network.route_address = "";
  facts.network.host_addresses = {"127.0.1.1"};
  CHECK(faults(facts).empty());
}

TEST_CASE("doctor: sizes are readable") {
  CHECK(bytes_text(0) == "0 B");
  CHECK(bytes_text(1023) == "1023 B");
  CHECK(bytes_text(1536) == "1.5 KiB");
  CHECK(bytes_text(64 * kGiB) == "64.0 GiB");
  CHECK(bytes_text(5000 * kGiB) == "4.9 TiB");
}

}  // namespace tessera::tools::doctor
