// What environment variables of other launchers say, and which of them win; lists of Slurm's.
#include "tessera/distributed/launch/foreign_launcher.h"

#include <catch2/catch.hpp>

#include "tessera/distributed/launch/host_list.h"
#include "tessera/tensor/error.h"

namespace tessera::distributed {
namespace {

using Catch::Matchers::Contains;
using Hosts = std::vector<std::string>;

constexpr int kParent = 4711;

Environment torchrun() {
  return {{"RANK", "5"},
          {"WORLD_SIZE", "6"},
          {"LOCAL_RANK", "2"},
          {"LOCAL_WORLD_SIZE", "3"},
          {"MASTER_ADDR", "node0"},
          {"MASTER_PORT", "29501"}};
}
Environment open_mpi() {
  return {{"OMPI_COMM_WORLD_RANK", "3"},
          {"OMPI_COMM_WORLD_SIZE", "5"},
          {"OMPI_COMM_WORLD_LOCAL_RANK", "3"},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", "5"},
          {"PMIX_NAMESPACE", "prterun-a-77@1"}};
}
Environment intel_mpi() {
  return {{"PMI_RANK", "2"}, {"PMI_SIZE", "3"}, {"MPI_LOCALRANKID", "2"}, {"MPI_LOCALNRANKS", "3"}};
}
Environment slurm() {
  return {{"SLURM_PROCID", "3"},
          {"SLURM_STEP_NUM_TASKS", "4"},
          {"SLURM_NTASKS", "8"},
          {"SLURM_LOCALID", "1"},
          {"SLURM_STEP_TASKS_PER_NODE", "2(x2)"},
          {"SLURM_STEP_NODELIST", "gpu[07-08]"},
          {"SLURM_JOB_ID", "1234"},
          {"SLURM_STEP_ID", "0"}};
}

Environment with(Environment environment, const Environment& changes) {
  for (const auto& [name, value] : changes) environment[name] = value;
  return environment;
}
Environment without(Environment environment, const std::string& name) {
  environment.erase(name);
  return environment;
}

ForeignWorld world_of(const Environment& environment) {
  const std::optional<ForeignWorld> world = foreign_world(environment, kParent);
  REQUIRE(world);
  return *world;
}

std::string refusal(const Environment& environment) {
  try {
    foreign_world(environment, kParent);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("hosts of a list", "[launch]") {
  const auto hosts = [](const char* list) { return expand_hosts("NODES", list); };
  CHECK(hosts("a") == Hosts{"a"});
  CHECK(hosts("host[01-03,7],b") == Hosts{"host01", "host02", "host03", "host7", "b"});
  CHECK(hosts("n[9-11]-ib") == Hosts{"n9-ib", "n10-ib", "n11-ib"});
  CHECK(hosts("n[098-101]") == Hosts{"n098", "n099", "n100", "n101"});
  CHECK(hosts("r[1-2]n[3,05]") == Hosts{"r1n3", "r1n05", "r2n3", "r2n05"});
  CHECK(hosts("x,y[0],z") == Hosts{"x", "y0", "z"});
  CHECK(hosts("n[0-65535]").size() == 65536);
}

TEST_CASE("lists that are none", "[launch]") {
  const auto refused = [](const char* list, const std::string& why) {
    CHECK_THROWS_WITH(expand_hosts("NODES", list),
                      std::string("[launch] NODES=") + list + " is no list of Slurm's: " + why);
  };
  refused("", "a name is empty");
  refused("a,", "a name is empty");
  refused("a[1", "its brackets do not match");
  refused("a1]", "its brackets do not match");
  refused("a]1[", "its brackets do not match");
  refused("a[]", "\"\" is no range of numbers");
  refused("a[3-1]", "\"3-1\" is no range of numbers");
  refused("a[1-]", "\"1-\" is no range of numbers");
  refused("a[x]", "\"x\" is no range of numbers");
  refused("a[-1]", "\"-1\" is no range of numbers");
  refused("a[[1-2]]", "its brackets do not match");
  refused("a[1,[2]", "\"[2\" is no range of numbers");
  refused("a[1-99999]", "it names more than 65536 hosts");
  refused("a[1-300]b[1-300]", "it names more than 65536 hosts");
  refused("a[1-12345678901]", "\"1-12345678901\" is no range of numbers");
}

TEST_CASE("numbers of tasks", "[launch]") {
  using Counts = std::vector<int>;
  const auto counts = [](const char* list) { return expand_counts("TASKS", list); };
  CHECK(counts("4") == Counts{4});
  CHECK(counts("2(x3),1") == Counts{2, 2, 2, 1});
  for (const char* wrong : {"", "2(x3", "x", "2(3)", "2,,2", "2(x)", "-1"})
    CHECK_THROWS_WITH(counts(wrong),
                      Contains(std::string("TASKS=") + wrong) && Contains("is no number of tasks"));
}

TEST_CASE("the world of each launcher", "[launch]") {
  const ForeignWorld torch = world_of(torchrun());
  CHECK(torch.launcher == "torchrun");
  CHECK(torch.rank == 5);
  CHECK(torch.size == 6);
  CHECK(torch.local_rank == 2);
  CHECK(torch.local_size == 3);
  CHECK(torch.hosts() == 2);
  CHECK(torch.node_rank() == 1);
  CHECK(meeting_place(torch, "").str() == "node0:29501");

  const ForeignWorld open = world_of(open_mpi());
  CHECK(open.launcher == "Open MPI");
  CHECK(open.rank == 3);
  CHECK(open.size == 5);
  CHECK(open.job == "PMIX_NAMESPACE=prterun-a-77@1");
  CHECK(meeting_place(open, "").host == "127.0.0.1");

  const ForeignWorld intel = world_of(intel_mpi());
  CHECK(intel.launcher == "PMI");
  CHECK(intel.rank == 2);
  CHECK(intel.size == 3);
  CHECK(intel.job == "process 4711, which started the ranks");

  const ForeignWorld of_slurm = world_of(slurm());
  CHECK(of_slurm.launcher == "Slurm");
  CHECK(of_slurm.rank == 3);
  CHECK(of_slurm.size == 4);
  CHECK(of_slurm.local_rank == 1);
  CHECK(of_slurm.local_size == 2);
  CHECK(meeting_place(of_slurm, "").host == "gpu07");
}

TEST_CASE("Slurm's older names", "[launch]") {
  Environment old = slurm();
  for (const char* name :
       {"SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE", "SLURM_STEP_ID", "SLURM_JOB_ID"})
    old.erase(name);
  old = with(old, {{"SLURM_NTASKS", "4"},
                   {"SLURM_NTASKS_PER_NODE", "2"},
                   {"SLURM_STEPID", "0"},
                   {"SLURM_JOBID", "1234"}});
  const ForeignWorld world = world_of(old);
  CHECK(world.size == 4);
  CHECK(world.local_size == 2);
  CHECK(world.port == world_of(slurm()).port);
}

TEST_CASE("without a world of several ranks there is none", "[launch]") {
  CHECK_FALSE(foreign_world({}, kParent));
  CHECK_FALSE(foreign_world({{"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}}, kParent));
  CHECK_FALSE(foreign_world({{"RANK", ""}, {"WORLD_SIZE", ""}}, kParent));
  CHECK_FALSE(foreign_world({{"WORLD_SIZE", "1"}}, kParent));
  CHECK_FALSE(
      foreign_world({{"OMPI_COMM_WORLD_SIZE", "1"}, {"OMPI_COMM_WORLD_RANK", "0"}}, kParent));
  CHECK_FALSE(foreign_world({{"PMI_SIZE", "1"}, {"PMI_RANK", "0"}}, kParent));
  CHECK_FALSE(foreign_world(with(slurm(), {{"SLURM_STEP_NUM_TASKS", "1"}}), kParent));
  // A batch script: the variables of the job, and no step.
  CHECK_FALSE(foreign_world(
      {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_LOCALID", "0"}, {"SLURM_JOB_ID", "1"}},
      kParent));
}

TEST_CASE("the launcher nearest to the process wins", "[launch]") {
  Environment all = slurm();
  const auto add = [&all](const Environment& more) { all = with(all, more); };
  add(intel_mpi());
  CHECK(world_of(all).launcher == "PMI");
  add(open_mpi());
  CHECK(world_of(all).launcher == "Open MPI");
  add(torchrun());
  CHECK(world_of(all).launcher == "torchrun");
  add({{"WORLD_SIZE", "1"}});
  CHECK(world_of(all).launcher == "Open MPI");
}

TEST_CASE("srun that speaks PMI is Slurm", "[launch]") {
  const Environment pmi = {{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}};
  CHECK(world_of(with(slurm(), pmi)).launcher == "Slurm");
  CHECK_THAT(refusal(with(slurm(), {{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}})),
             Contains("MPI_LOCALRANKID is missing"));
}

TEST_CASE("where ranks meet", "[launch]") {
  const auto place = [](const Environment& environment, const std::string& endpoint = "") {
    return meeting_place(world_of(environment), endpoint).str();
  };
  CHECK(place(torchrun(), "other:7") == "other:7");
  CHECK(place(torchrun(), "other") == "other:29501");
  CHECK(place(with(slurm(), {{"MASTER_ADDR", "m"}, {"MASTER_PORT", "8"}})) == "m:8");
  // Ranks of one host meet there, whatever its name.
  CHECK(place(with(open_mpi(), {{"MASTER_ADDR", "m"}, {"MASTER_PORT", "8"}})) == "127.0.0.1:8");
  const Environment one_host =
      with(slurm(), {{"SLURM_LOCALID", "3"}, {"SLURM_STEP_TASKS_PER_NODE", "4"}});
  CHECK(world_of(one_host).host == "127.0.0.1");
  // A port of the run's own, equal on all ranks and another for another run.
  const int port = world_of(slurm()).port;
  CHECK(port >= 20000);
  CHECK(port < 29000);
  CHECK(world_of(with(slurm(), {{"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}})).port == port);
  CHECK(world_of(with(slurm(), {{"SLURM_STEP_ID", "1"}})).port != port);
  CHECK(world_of(with(slurm(), {{"SLURM_JOB_ID", "1235"}})).port != port);
  CHECK_THAT(world_of(slurm()).place, Contains("derived from Slurm's job 1234, step 0"));
  CHECK(foreign_world(intel_mpi(), 1)->port != foreign_world(intel_mpi(), 2)->port);
  // torchrun's own store is at MASTER_PORT.
  const ForeignWorld shared =
      world_of(with(torchrun(), {{"TORCHELASTIC_USE_AGENT_STORE", "True"}}));
  CHECK(shared.host == "node0");
  CHECK(shared.port != 29501);
}

TEST_CASE("ranks on several hosts need an address", "[launch]") {
  const Environment two_hosts = {
      {"PMI_RANK", "2"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "2"}};
  CHECK_THROWS_WITH(
      meeting_place(world_of(two_hosts), ""),
      "[launch] PMI has started 4 ranks on 2 hosts (PMI_RANK=2, PMI_SIZE=4, MPI_LOCALRANKID=0, "
      "MPI_LOCALNRANKS=2) and names no address where they can find each other; set MASTER_ADDR to "
      "the host of rank 0, or give --rdzv-endpoint HOST:PORT");
  CHECK(meeting_place(world_of(two_hosts), "a").str() == "a:29400");
  CHECK(meeting_place(world_of(with(two_hosts, {{"MASTER_ADDR", "m"}})), "").str() == "m:29400");
}

TEST_CASE("missing variables are named", "[launch]") {
  for (const Environment& all : {torchrun(), open_mpi(), intel_mpi(), slurm()})
    for (const auto& [name, value] : all) {
      if (name == "PMIX_NAMESPACE" || name == "SLURM_NTASKS" || name == "SLURM_PROCID" ||
          name == "SLURM_STEP_ID")
        continue;
      Environment lacking = without(all, name);
      if (name.starts_with("SLURM_STEP_NUM")) lacking.erase("SLURM_NTASKS");
      CAPTURE(name);
      CHECK_THAT(refusal(lacking),
                 Contains(" is missing; correct or unset them, or start ranks here "
                          "with --launch processes"));
    }
  CHECK(
      refusal(without(torchrun(), "WORLD_SIZE")) ==
      "[launch] torchrun has set RANK=5, LOCAL_RANK=2, LOCAL_WORLD_SIZE=3: WORLD_SIZE is missing; "
      "correct or unset them, or start ranks here with --launch processes");
}

TEST_CASE("variables that contradict each other are named with their values", "[launch]") {
  const auto refused = [](const Environment& environment, const std::string& text) {
    CHECK_THAT(refusal(environment), Contains(text) && Contains("--launch processes"));
  };
  refused(with(torchrun(), {{"RANK", "x"}}), "RANK must be a number from 0 to 1048576");
  refused(with(torchrun(), {{"RANK", "-1"}}), "RANK must be a number");
  refused(with(torchrun(), {{"WORLD_SIZE", "99999999999"}}), "WORLD_SIZE must be a number");
  refused(with(torchrun(), {{"RANK", "6"}}), "rank 6 is not below the 6 ranks of the world");
  refused(with(torchrun(), {{"WORLD_SIZE", "0"}}), "rank 5 is not below the 0 ranks");
  refused(with(torchrun(), {{"LOCAL_WORLD_SIZE", "7"}}), "7 ranks on this host are not from 1 to");
  refused(with(torchrun(), {{"LOCAL_WORLD_SIZE", "0"}}), "0 ranks on this host are not from 1 to");
  refused(with(torchrun(), {{"LOCAL_RANK", "3"}}), "local rank 3 is not below the 3 ranks of this");
  refused(with(torchrun(), {{"LOCAL_WORLD_SIZE", "4"}}), "6 ranks are no multiple of the 4");
  refused(with(torchrun(), {{"LOCAL_RANK", "1"}}), "rank 5 has local rank 1 of 3");
  refused(with(torchrun(), {{"MASTER_PORT", "70000"}}),
          "MASTER_PORT must be a number from 0 to 65535");
  refused(with(torchrun(), {{"MASTER_PORT", "0"}}), "port 0 is none");
  refused(with(slurm(), {{"SLURM_STEP_TASKS_PER_NODE", "3,1"}}), "different numbers of ranks");
  CHECK_THAT(refusal(with(slurm(), {{"SLURM_STEP_TASKS_PER_NODE", "2(y2)"}})),
             Contains("SLURM_STEP_TASKS_PER_NODE=2(y2) is no list of Slurm's"));
}

TEST_CASE("options that contradict the world are named with it", "[launch]") {
  const ForeignWorld world = world_of(torchrun());
  CHECK_NOTHROW(check_asked(world, {}));
  CHECK_NOTHROW(check_asked(world, {.ranks = 3, .nnodes = 2, .node_rank = 1}));
  CHECK_THROWS_WITH(
      check_asked(world, {.ranks = 4}),
      Contains(
          "--ranks 4 contradicts torchrun, which has started 3 ranks on this host (RANK=5, "
          "WORLD_SIZE=6, LOCAL_RANK=2, LOCAL_WORLD_SIZE=3, MASTER_ADDR=node0, MASTER_PORT=29501") &&
          Contains("; leave --ranks out, or start ranks here with --launch processes"));
  CHECK_THROWS_WITH(check_asked(world, {.nnodes = 3}),
                    Contains("--nnodes 3 contradicts torchrun, which has started 2 hosts"));
  CHECK_THROWS_WITH(check_asked(world, {.node_rank = 0}),
                    Contains("--node-rank 0 contradicts torchrun, whose rank 5 is on host 1"));
}

}  // namespace tessera::distributed
