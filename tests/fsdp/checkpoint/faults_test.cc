// A save in which any one system call fails, or before which the process is killed: afterwards there is
// a complete checkpoint, the old one or the new one.

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "tessera/distributed/collectives.h"
#include "tessera/distributed/launch/launch.h"
#include "tessera/fsdp/checkpoint/checkpoint.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tests/fsdp/checkpoint/io_faults.h"
#include "tessera/tests/fsdp/state/state_model.h"
#include "tessera/tests/tensor/io/safetensors_support.h"

namespace tessera::testing {
namespace {

constexpr int kRanks = 4;

// Saves a model that is filled with the step's number. Returns the error, empty if there is none.
std::string save_step(const std::string& parent, int step, IoFault fault, int call) {
  const auto body = [&](distributed::World& world) {
    StateNet net;
    fsdp::fully_shard(net, {.mesh = world.mesh()});
    nn::initialize(net, {.seed = 1});
    for (const nn::Parameter& parameter : net.parameters()) fill_(parameter.local().tensor(), step);
    nn::StateDict values;
    values.set("step", std::int64_t{step});
    distributed::barrier(*world.group());
    if (world.rank() == 0) arm_io_fault(fault, call);
    distributed::barrier(*world.group());
    checkpoint::save(checkpoint::step_folder(parent, step),
                     {.group = world.group(), .model = &net, .values = &values});
  };
  return distributed::launch(0, nullptr,
                             {.ranks = kRanks, .mode = distributed::LaunchMode::kThreads}, body)
      .failure;
}

// What a save in another process came to.
struct Outcome {
  bool killed = false;
  int calls = 0;
  std::string error;
};

Outcome save_elsewhere(const std::string& parent, int step, IoFault fault, int call) {
  struct Shared {
    int calls;
    char error[4096];
  };
  auto* shared = static_cast<Shared*>(
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  const pid_t child = ::fork();
  if (child == 0) {
    const std::string error = save_step(parent, step, fault, call);
    shared->calls = io_calls();
    std::strncpy(shared->error, error.c_str(), sizeof(shared->error) - 1);
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  Outcome outcome{.killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL,
                  .calls = shared->calls,
                  .error = shared->error};
  CHECK((outcome.killed || WIFEXITED(status)));
  ::munmap(shared, sizeof(Shared));
  return outcome;
}

// The step that a new process finds, checked to be complete.
std::int64_t loaded_step(const std::string& parent) {
  StateNet net;
  nn::StateDict values;
  if (!checkpoint::load_newest(parent, {.model = &net, .values = &values})) return 0;
  const std::int64_t step = values.integer("step");
  for (const auto& [name, parameter] : net.named_parameters()) {
    for (const double element : parameter.local().tensor().to_vector<double>())
      CHECK(element == static_cast<double>(step));
  }
  return step;
}

bool has_folder(const std::string& parent, const std::string& name) {
  return std::filesystem::exists(parent + "/" + name);
}

// Folders of saves that did not end.
std::vector<std::string> unfinished(const std::string& parent) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(parent)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".unfinished")) names.push_back(name);
  }
  return names;
}

// The position of the last call that is `call`, up to `end`; -1 if there is none.
std::ptrdiff_t last_of(const std::vector<std::string>& log, const std::string& call,
                       std::ptrdiff_t end) {
  while (--end >= 0 && log[static_cast<std::size_t>(end)] != call) {
  }
  return end;
}

TEST_CASE("what a rename publishes is on the disk before it, and the rename after it") {
  const std::string base = temporary_path("checkpoint_order", "runs"), parent = base + "/new/run";
  std::filesystem::create_directories(base);
  REQUIRE(save_step(parent, 1, IoFault::kNone, 1) == "");
  const std::vector<std::string> log = io_log();
  const auto end = std::ssize(log);
  arm_io_fault(IoFault::kNone, 0);
  int files = 0;
  std::ptrdiff_t last_file = -1, publication = -1;
  std::string unfinished_folder;
  for (std::ptrdiff_t i = 0; i < end; ++i) {
    const std::string& call = log[static_cast<std::size_t>(i)];
    if (!call.starts_with("rename ")) continue;
    const std::string from = call.substr(7, call.find(' ', 7) - 7);
    if (call.ends_with(" " + parent + "/step-1")) {
      publication = i;
      unfinished_folder = from;
      continue;
    }
    INFO(call);
    ++files;
    last_file = i;
    const std::ptrdiff_t synced = last_of(log, "fsync " + from, i);
    CHECK(synced > last_of(log, "write " + from, i));
    CHECK(last_of(log, "write " + from, i) >= 0);
  }
  CHECK(files == kRanks + 1);
  REQUIRE(publication > last_file);
  CHECK(last_of(log, "fsync " + unfinished_folder, publication) > last_file);
  CHECK(last_of(log, "fsync " + parent, end) > publication);
  // The folders above, which are new: each is on the disk in its own folder.
  CHECK(last_of(log, "fsync " + base, publication) > last_of(log, "mkdir " + base + "/new", end));
  CHECK(last_of(log, "fsync " + base + "/new", publication) > last_of(log, "mkdir " + parent, end));
}

TEST_CASE("a complete checkpoint is there whichever system call of a save fails") {
  const std::string parent = temporary_path("checkpoint_faults", "run");
  REQUIRE(save_elsewhere(parent, 1, IoFault::kNone, 1).error == "");
  const Outcome whole = save_elsewhere(parent, 2, IoFault::kNone, 1);
  REQUIRE(whole.calls > 6 * kRanks);  // create, write, sync and rename a file, sync its folder
  REQUIRE(loaded_step(parent) == 2);
  int old_ones = 0, new_ones = 0;
  for (const IoFault fault :
       {IoFault::kKill, IoFault::kNoSpace, IoFault::kIoError, IoFault::kShort}) {
    for (int call = 1; call <= whole.calls; ++call) {
      INFO(io_fault_name(fault) << " at call " << call << " of " << whole.calls);
      std::filesystem::remove_all(parent + "/step-2");
      const Outcome outcome = save_elsewhere(parent, 2, fault, call);
      CHECK(outcome.killed == (fault == IoFault::kKill));
      const std::int64_t found = loaded_step(parent);
      CHECK((found == 1 || found == 2));
      CHECK(has_folder(parent, "step-2") == (found == 2));
      (found == 1 ? old_ones : new_ones)++;
      const std::vector<std::string> left = unfinished(parent);
      if (outcome.killed) {
        for (const std::string& name : left) std::filesystem::remove_all(parent + "/" + name);
        continue;
      }
      CHECK(left.empty());
      if (outcome.error.empty()) {
        CHECK(found == 2);
      } else {
        CHECK(fault != IoFault::kShort);
        CHECK(outcome.error.find("rank ") != std::string::npos);
        CHECK(outcome.error.find("\"" + parent) != std::string::npos);
      }
    }
  }
  CHECK(old_ones > 3 * whole.calls / 2);
  CHECK(new_ones >= whole.calls);
}

}  // namespace
}  // namespace tessera::testing
