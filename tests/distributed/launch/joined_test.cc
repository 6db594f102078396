// Runs of launch_program whose ranks another launcher starts: one process for each rank, with the
// variables that torchrun, srun or mpirun sets.
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tessera/distributed/launch/rank_runner.h"
#include "tessera/distributed/store/tcp_store.h"
#include "tessera/tensor/cores.h"
#include "tessera/tests/distributed/launch/program.h"
#include "tessera/tests/support/test_main.h"

namespace tessera::distributed {
namespace {

using Catch::Matchers::Contains;
using Clock = std::chrono::steady_clock;
using Programs = std::vector<std::unique_ptr<Program>>;

int free_port() { return TcpStoreServer({.at = {.host = "127.0.0.1"}}).endpoint().port; }

// One rank of a world, on `hosts` hosts that are all this one.
struct Place {
  int rank = 0;
  int size = 1;
  int hosts = 1;
  int port = 0;  // that is not in use
  int local_size() const { return size / hosts; }
  int local_rank() const { return rank % local_size(); }
};

struct Launcher {
  const char* name;
  std::string (*variables)(const Place&);
};

std::string torchrun(const Place& at) {
  return fmt::format(
      "RANK={} WORLD_SIZE={} LOCAL_RANK={} LOCAL_WORLD_SIZE={} MASTER_ADDR=localhost "
      "MASTER_PORT={} TORCHELASTIC_RUN_ID=none TORCHELASTIC_RESTART_COUNT=0",
      at.rank, at.size, at.local_rank(), at.local_size(), at.port);
}
// With torchrun's own store at MASTER_PORT.
std::string torchrun_with_store(const Place& at) {
  return torchrun(at) + " TORCHELASTIC_USE_AGENT_STORE=True";
}
// Jobs of different tests, and of two tests at a time, have different numbers.
std::string slurm(const Place& at) {
  return fmt::format(
      "SLURM_PROCID={} SLURM_NTASKS={} SLURM_STEP_NUM_TASKS={} SLURM_LOCALID={} "
      "SLURM_STEP_TASKS_PER_NODE={}(x{}) SLURM_STEP_NODELIST=localhost SLURM_JOB_ID={} "
      "SLURM_STEP_ID={}",
      at.rank, at.size, at.size, at.local_rank(), at.local_size(), at.hosts, getpid(), at.port);
}
std::string open_mpi(const Place& at) {
  return fmt::format(
      "OMPI_COMM_WORLD_RANK={} OMPI_COMM_WORLD_SIZE={} OMPI_COMM_WORLD_LOCAL_RANK={} "
      "OMPI_COMM_WORLD_LOCAL_SIZE={} PMIX_NAMESPACE=prterun-{}-{}@1{}",
      at.rank, at.size, at.local_rank(), at.local_size(), getpid(), at.port,
      at.hosts > 1 ? fmt::format(" MASTER_ADDR=127.0.0.1 MASTER_PORT={}", at.port) : "");
}
std::string intel_mpi(const Place& at) {
  return fmt::format(
      "PMI_RANK={} PMI_SIZE={} MPI_LOCALRANKID={} MPI_LOCALNRANKS={}{}", at.rank, at.size,
      at.local_rank(), at.local_size(),
      at.hosts > 1 ? fmt::format(" MASTER_ADDR=127.0.0.1 MASTER_PORT={}", at.port) : "");
}

const std::vector<Launcher> kLaunchers = {{"torchrun", torchrun},
                                          {"torchrun with its store", torchrun_with_store},
                                          {"Slurm", slurm},
                                          {"Open MPI", open_mpi},
                                          {"Intel MPI", intel_mpi}};

std::unique_ptr<Program> start_rank(const Launcher& launcher, const Place& at,
                                    const std::string& arguments) {
  return std::make_unique<Program>(arguments, "env " + launcher.variables(at));
}

Programs start_all(const Launcher& launcher, int size, const std::string& arguments,
                   int hosts = 1) {
  const int port = free_port();
  Programs programs;
  for (int rank = 0; rank < size; ++rank)
    programs.push_back(start_rank(
        launcher, {.rank = rank, .size = size, .hosts = hosts, .port = port}, arguments));
  return programs;
}

void check_failure(Program& program, const std::string& text) {
  CHECK(program.exit_code() == 1);
  CHECK_THAT(program.output(), Contains("error: " + text));
  CHECK(count_of(program.output(), "error: ") == 1);
  program.check_nothing_left();
}

}  // namespace

TEST_CASE("ranks of each launcher compute what an ordinary launch computes", "[joined]") {
  for (const int size : {2, 3, 4, 5}) {
    Program ordinary(fmt::format("bits --ranks {}", size));
    CHECK(ordinary.exit_code() == 0);
    CHECK_THAT(ordinary.output(), Contains("hash"));
    for (const Launcher& launcher : kLaunchers) {
      CAPTURE(launcher.name, size);
      const Programs ranks = start_all(launcher, size, "bits");
      for (const auto& rank : ranks) {
        CHECK(rank->exit_code() == 0);
        rank->check_nothing_left();
      }
      CHECK(ranks[0]->output() == ordinary.output());
      CHECK(ranks[1]->output() == "hello\nlaunch returned 0\n");
    }
  }
}

TEST_CASE("ranks of each launcher know their hosts and their places", "[joined]") {
  for (const Launcher& launcher : kLaunchers) {
    CAPTURE(launcher.name);
    const Programs ranks = start_all(launcher, 4, "layout", 2);
    for (int rank = 0; rank < 4; ++rank) {
      Program& program = *ranks[static_cast<std::size_t>(rank)];
      CHECK(program.exit_code() == 0);
      CHECK_THAT(program.output(), Contains(fmt::format("rank {} of 4: {} of 2 on node {} of 2\n",
                                                        rank, rank % 2, rank / 2)));
      CHECK(count_of(program.output(), "rank ") == 1);
    }
  }
}

TEST_CASE("a world of one rank changes nothing", "[joined]") {
  for (const Launcher& launcher : kLaunchers) {
    CAPTURE(launcher.name);
    const Place alone = {.port = free_port()};
    const auto program = start_rank(launcher, alone, "layout --ranks 3");
    CHECK(program->exit_code() == 0);
    CHECK_THAT(program->output(), Contains("rank 2 of 3: 2 of 3 on node 0 of 1\n"));
    const auto by_default = start_rank(launcher, alone, "layout");
    CHECK(by_default->exit_code() == 0);
    CHECK_THAT(by_default->output(), Contains("rank 1 of 2: 1 of 2 on node 0 of 1\n"));
  }
}

TEST_CASE("--launch processes and threads start ranks in spite of a launcher", "[joined]") {
  const std::string mode = GENERATE("processes", "threads");
  for (const Launcher& launcher : kLaunchers) {
    CAPTURE(launcher.name, mode);
    const auto program = start_rank(launcher, {.rank = 1, .size = 4, .port = free_port()},
                                    fmt::format("layout --ranks 3 --launch {}", mode));
    CHECK(program->exit_code() == 0);
    CHECK_THAT(program->output(), Contains("rank 2 of 3: 2 of 3 on node 0 of 1\n"));
  }
}

TEST_CASE("ranks share the cores that they may use alike, and keep those of their own",
          "[joined]") {
  const std::vector<int> cores = usable_cores();
  const auto count = static_cast<int>(cores.size());
  if (count < 2) return testing::skip("needs two cores");
  const Place zero = {.rank = 0, .size = 2, .port = free_port()};
  Place one = zero;
  one.rank = 1;
  const auto alike = start_all(kLaunchers[2], 2, "threads");
  for (const int rank : {0, 1}) {
    Program& program = *alike[static_cast<std::size_t>(rank)];
    CHECK(program.exit_code() == 0);
    CHECK_THAT(program.output(),
               Contains(fmt::format("rank {} has {} threads\n", rank, count / 2)));
  }
  const auto whole = start_rank(kLaunchers[2], zero, "threads");
  Program bound("threads",
                fmt::format("taskset -c {} env {}", cores.back(), kLaunchers[2].variables(one)));
  CHECK(whole->exit_code() == 0);
  CHECK(bound.exit_code() == 0);
  CHECK_THAT(whole->output(), Contains(fmt::format("rank 0 has {} threads\n", count)));
  CHECK_THAT(bound.output(), Contains("rank 1 has 1 threads\n"));
}

TEST_CASE("a program may launch several times in a launcher's world", "[joined]") {
  const Launcher& launcher = kLaunchers[GENERATE(0, 2, 4)];
  const Programs ranks = start_all(launcher, 3, "twice");
  for (const auto& rank : ranks) CHECK(rank->exit_code() == 0);
  CHECK(ranks[0]->output() == "first launch\nsecond launch\n");
}

TEST_CASE("every rank tells a failure, its own and another's", "[joined]") {
  const Launcher& launcher = kLaunchers[GENERATE(0, 2, 3)];
  const Programs ranks = start_all(launcher, 3, "throws");
  check_failure(*ranks[1], "rank 1: the data ran out\n");
  for (const int other : {0, 2})
    check_failure(*ranks[static_cast<std::size_t>(other)],
                  "on 127.0.0.1: rank 1: the data ran out\n");
  for (const auto& rank : ranks) CHECK(rank->seconds() < 8);
}

TEST_CASE("a rank that is killed is named by all", "[joined]") {
  const Programs ranks = start_all(kLaunchers[2], 3, "kills_itself");
  const std::string what = "rank 2 was killed by signal 9 (Killed) ";
  check_failure(*ranks[2], what);
  for (const std::size_t other : {0, 1}) check_failure(*ranks[other], "on 127.0.0.1: " + what);
}

TEST_CASE("a process that the launcher kills takes its rank with it, and the others end",
          "[joined]") {
  const Programs ranks = start_all(kLaunchers[0], 3, "runs_on");
  for (int rank = 0; rank < 3; ++rank) ranks[static_cast<std::size_t>(rank)]->pid_of_rank(rank);
  const auto start = Clock::now();
  kill(ranks[1]->pid(), SIGKILL);
  for (const std::size_t other : {0, 2})
    check_failure(*ranks[other],
                  "the launcher of rank 1 (127.0.0.1) is gone: it ended or cannot be "
                  "reached any more\n");
  CHECK(seconds_since(start) < 6);
  ranks[1]->wait();
  CHECK(ranks[1]->processes() == 0);
}

TEST_CASE("SIGTERM from the launcher ends ranks in order", "[joined]") {
  const Programs ranks = start_all(kLaunchers[0], 3, "stops");
  for (int rank = 0; rank < 3; ++rank) ranks[static_cast<std::size_t>(rank)]->pid_of_rank(rank);
  for (const auto& rank : ranks) kill(rank->pid(), SIGTERM);
  for (const auto& rank : ranks) {
    CHECK(rank->exit_code() == 128 + SIGTERM);
    CHECK(count_of(rank->output(), " stops for 15 after ") == 1);
    CHECK(count_of(rank->output(), "error: ") == 0);
  }
}

TEST_CASE("a rank that the launcher does not start is named at the deadline", "[joined]") {
  const Place at = {.rank = 0, .size = 2, .port = free_port()};
  const auto zero = start_rank(kLaunchers[0], at, "ok --timeout 0.5");
  CHECK(zero->exit_code() == 2);
  CHECK_THAT(zero->output(), Contains(fmt::format("error: [launch] the launcher of rank 1 of 2 did "
                                                  "not come to 127.0.0.1:{} within 0.5 s",
                                                  at.port)));
}

TEST_CASE("runs of a launcher do not mix at one address", "[joined]") {
  const Place at = {.rank = 1, .size = 2, .port = free_port()};
  const std::string elsewhere = fmt::format("--rdzv-endpoint 127.0.0.1:{} --timeout 20", at.port);
  const auto zero = start_rank(kLaunchers[2], {.rank = 0, .size = 2, .port = 1}, "ok " + elsewhere);
  const auto other =
      start_rank(kLaunchers[2], {.rank = 1, .size = 2, .port = 2}, "ok " + elsewhere);
  CHECK(other->exit_code() == 2);
  CHECK_THAT(other->output(), Contains("the secret or the job id is another there"));
  const auto one = start_rank(kLaunchers[2], {.rank = 1, .size = 2, .port = 1}, "ok " + elsewhere);
  CHECK(one->exit_code() == 0);
  CHECK(zero->exit_code() == 0);
}

TEST_CASE("a derived port that is taken is told with its origin", "[joined]") {
  const Place at = {.rank = 0, .size = 2, .port = free_port()};
  const auto zero = start_rank(kLaunchers[2], at, "ok --timeout 20");
  const std::string job = fmt::format("Slurm's job {}, step {}", getpid(), at.port);
  // The same job once more, while the first one waits for its other rank.
  zero->wait_for("hello");
  std::string output;
  for (int i = 0; i < 20 && output.find("derived") == std::string::npos; ++i) {
    const auto again = start_rank(kLaunchers[2], at, "ok --timeout 0.5");
    CHECK(again->exit_code() == 2);
    output = again->output();
  }
  CHECK_THAT(output, Contains("its port is derived from " + job +
                              ": name another with --rdzv-endpoint HOST:PORT"));
  kill(zero->pid(), SIGKILL);
  zero->wait();
}

TEST_CASE("a launcher's wrong variables are one line and exit code 2", "[joined]") {
  const auto refused = [](const std::string& variables, const std::string& arguments,
                          const std::string& what) {
    Program program(arguments, "env " + variables);
    CHECK(program.exit_code() == 2);
    CHECK_THAT(program.output(), Contains("error: [launch] ") && Contains(what));
    CHECK(count_of(program.output(), "\n") == 3);  // "hello", the error, "launch returned 2"
    program.check_nothing_left();
  };
  const Place at = {.rank = 3, .size = 8, .port = 1};
  refused(torchrun(at), "ok --ranks 4",
          "--ranks 4 contradicts torchrun, which has started 8 ranks on this host (RANK=3, "
          "WORLD_SIZE=8");
  refused(slurm(at), "ok --nnodes 2 --node-rank 1 --rdzv-endpoint a:1",
          "--nnodes 2 contradicts Slurm, which has started 1 hosts");
  refused("WORLD_SIZE=4", "ok", "torchrun has set WORLD_SIZE=4: RANK is missing");
  refused(torchrun({.rank = 8, .size = 8, .port = 1}), "ok", "rank 8 is not below the 8 ranks");
  refused("PMI_RANK=1 PMI_SIZE=4 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2", "ok",
          "PMI has started 4 ranks on 2 hosts");
}

}  // namespace tessera::distributed
