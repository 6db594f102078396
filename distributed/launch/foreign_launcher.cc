#include "tessera/distributed/launch/foreign_launcher.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "tessera/distributed/launch/host_list.h"
#include "tessera/tensor/check.h"

namespace tessera::distributed {
namespace {

constexpr int kMostRanks = 1 << 20;
constexpr int kMostPort = 65535;
constexpr const char* kWayOut =
    "correct or unset them, or start ranks here with --launch processes";

// Ports for runs that none is named for: below those that systems give to outgoing connections.
int port_for(std::string_view job) {
  constexpr std::uint64_t kOffset = 14695981039346656037U, kPrime = 1099511628211U;  // FNV-1a
  constexpr int kFirst = 20000, kCount = 9000;
  std::uint64_t hash = kOffset;
  for (const char c : job) hash = (hash ^ static_cast<unsigned char>(c)) * kPrime;
  return kFirst + static_cast<int>(hash % kCount);
}

// The variables of one launcher. Remembers `names` and what else was read, for errors.
class Variables {
 public:
  Variables(const Environment& environment, std::string launcher,
            std::initializer_list<const char*> names)
      : environment_(environment), launcher_(std::move(launcher)) {
    for (const char* name : names) text(name);
  }

  std::string text(const std::string& name) {
    const auto found = environment_.find(name);
    if (found == environment_.end() || found->second.empty()) return {};
    const std::string entry = fmt::format("{}={}", name, found->second);
    if (std::find(read_.begin(), read_.end(), entry) == read_.end()) read_.push_back(entry);
    return found->second;
  }
  bool has(const std::string& name) const {
    const auto found = environment_.find(name);
    return found != environment_.end() && !found->second.empty();
  }
  int number(const std::string& name, int most = kMostRanks) {
    const std::string value = text(name);
    if (value.empty()) refuse(fmt::format("{} is missing", name));
    int number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || end != value.data() + value.size() || number < 0 || number > most)
      refuse(fmt::format("{} must be a number from 0 to {}", name, most));
    return number;
  }
  std::string read() const { return fmt::format("{}", fmt::join(read_, ", ")); }
  [[noreturn]] void refuse(const std::string& what) const {
    throw_error<InvalidArgument>("launch", "{} has set {}: {}; {}", launcher_, read(), what,
                                 kWayOut);
  }

 private:
  const Environment& environment_;
  std::string launcher_;
  std::vector<std::string> read_;
};

// Ranks of one host are neighbours, and all hosts have as many: what World promises.
void check_layout(const ForeignWorld& world, const Variables& variables) {
  if (world.rank >= world.size)
    variables.refuse(
        fmt::format("rank {} is not below the {} ranks of the world", world.rank, world.size));
  if (world.local_size < 1 || world.local_size > world.size)
    variables.refuse(fmt::format("{} ranks on this host are not from 1 to the {} of the world",
                                 world.local_size, world.size));
  if (world.local_rank >= world.local_size)
    variables.refuse(fmt::format("local rank {} is not below the {} ranks of this host",
                                 world.local_rank, world.local_size));
  if (world.size % world.local_size != 0)
    variables.refuse(
        fmt::format("{} ranks are no multiple of the {} on this host, and each host needs as many",
                    world.size, world.local_size));
  if (world.rank % world.local_size != world.local_rank)
    variables.refuse(
        fmt::format("ranks of one host must be neighbours, but rank {} has local rank {} of {}; "
                    "start them host "
                    "by host (srun --distribution=block, mpirun --map-by slot)",
                    world.rank, world.local_rank, world.local_size));
}

// MASTER_ADDR and MASTER_PORT, which users set for any launcher.
void take_master(ForeignWorld& world, Variables& variables) {
  world.host = variables.text("MASTER_ADDR");
  if (variables.has("MASTER_PORT")) {
    world.port = variables.number("MASTER_PORT", kMostPort);
    if (world.port == 0) variables.refuse("port 0 is none");
  }
}

// Where all ranks are on one host they meet at its loopback address, which needs no secret. And a port.
void complete_place(ForeignWorld& world) {
  if (world.hosts() == 1) world.host = "127.0.0.1";
  if (world.port != 0 || world.job.empty()) return;
  world.port = port_for(world.job);
  world.place = fmt::format("its port is derived from {}", world.job);
}

std::optional<ForeignWorld> of_torchrun(const Environment& environment) {
  Variables variables(environment, "torchrun",
                      {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"});
  if (!variables.has("RANK") && !variables.has("WORLD_SIZE")) return std::nullopt;
  ForeignWorld world{.launcher = "torchrun"};
  world.size = variables.number("WORLD_SIZE");
  if (world.size == 1) return std::nullopt;
  world.rank = variables.number("RANK");
  world.local_rank = variables.number("LOCAL_RANK");
  world.local_size = variables.number("LOCAL_WORLD_SIZE");
  take_master(world, variables);
  check_layout(world, variables);
  for (const char* name : {"MASTER_ADDR", "MASTER_PORT"})
    if (!variables.has(name)) variables.refuse(fmt::format("{} is missing", name));
  world.job =
      fmt::format("torchrun's run {} at {}:{}, start {}", variables.text("TORCHELASTIC_RUN_ID"),
                  world.host, world.port, variables.text("TORCHELASTIC_RESTART_COUNT"));
  // torchrun itself serves a store of another kind at that port.
  if (variables.text("TORCHELASTIC_USE_AGENT_STORE") == "True") world.port = 0;
  world.variables = variables.read();
  return world;
}

// The number of an MPI run, or of the process that started all its ranks on this host.
std::string mpi_job(Variables& variables, const ForeignWorld& world, int parent) {
  for (const char* name : {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"})
    if (variables.has(name)) return fmt::format("{}={}", name, variables.text(name));
  if (world.local_size != world.size) return {};
  return fmt::format("process {}, which started the ranks", parent);
}

struct MpiNames {
  const char* launcher;
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
};
constexpr MpiNames kOpenMpi = {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                               "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr MpiNames kPmi = {"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};

std::optional<ForeignWorld> of_mpi(const Environment& environment, const MpiNames& names,
                                   int parent) {
  Variables variables(environment, names.launcher,
                      {names.rank, names.size, names.local_rank, names.local_size});
  if (!variables.has(names.rank) && !variables.has(names.size)) return std::nullopt;
  ForeignWorld world{.launcher = names.launcher};
  world.size = variables.number(names.size);
  if (world.size == 1) return std::nullopt;
  world.rank = variables.number(names.rank);
  world.local_rank = variables.number(names.local_rank);
  world.local_size = variables.number(names.local_size);
  check_layout(world, variables);
  take_master(world, variables);
  world.job = mpi_job(variables, world, parent);
  world.variables = variables.read();
  return world;
}

bool is_slurm_step(const Variables& variables) {
  return variables.has("SLURM_PROCID") &&
         (variables.has("SLURM_STEP_ID") || variables.has("SLURM_STEPID"));
}

// Batch scripts have SLURM_PROCID and SLURM_NTASKS too, interactive steps SLURM_NTASKS of the job:
// only the step's own number says how many processes srun has started.
int slurm_size(Variables& variables) {
  return variables.number(variables.has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS"
                                                                : "SLURM_NTASKS");
}

int slurm_local_size(Variables& variables) {
  if (!variables.has("SLURM_STEP_TASKS_PER_NODE")) return variables.number("SLURM_NTASKS_PER_NODE");
  const std::string list = variables.text("SLURM_STEP_TASKS_PER_NODE");
  const std::vector<int> counts = expand_counts("SLURM_STEP_TASKS_PER_NODE", list);
  if (std::adjacent_find(counts.begin(), counts.end(), std::not_equal_to<>()) != counts.end())
    variables.refuse("the hosts have different numbers of ranks; start as many on each");
  return counts.front();
}

std::optional<ForeignWorld> of_slurm(const Environment& environment) {
  Variables variables(environment, "Slurm", {"SLURM_PROCID", "SLURM_LOCALID"});
  if (!is_slurm_step(variables)) return std::nullopt;
  ForeignWorld world{.launcher = "Slurm"};
  world.size = slurm_size(variables);
  if (world.size == 1) return std::nullopt;
  world.rank = variables.number("SLURM_PROCID");
  world.local_rank = variables.number("SLURM_LOCALID");
  world.local_size = slurm_local_size(variables);
  check_layout(world, variables);
  take_master(world, variables);
  const std::string step =
      variables.text(variables.has("SLURM_STEP_ID") ? "SLURM_STEP_ID" : "SLURM_STEPID");
  const std::string job =
      variables.text(variables.has("SLURM_JOB_ID") ? "SLURM_JOB_ID" : "SLURM_JOBID");
  if (job.empty()) variables.refuse("SLURM_JOB_ID is missing");
  world.job = fmt::format("Slurm's job {}, step {}", job, step);
  if (world.host.empty() && world.local_size != world.size) {
    const std::string hosts = variables.text("SLURM_STEP_NODELIST");
    if (hosts.empty()) variables.refuse("SLURM_STEP_NODELIST is missing");
    world.host = expand_hosts("SLURM_STEP_NODELIST", hosts).front();
  }
  world.variables = variables.read();
  return world;
}

// srun --mpi=pmi2 sets PMI_RANK and PMI_SIZE beside its own.
bool is_slurm_as_pmi(const Environment& environment) {
  const auto same = [&](const char* a, const char* b) {
    const auto first = environment.find(a), second = environment.find(b);
    return first != environment.end() && second != environment.end() &&
           first->second == second->second;
  };
  return is_slurm_step(Variables(environment, "Slurm", {})) && same("PMI_RANK", "SLURM_PROCID") &&
         (same("PMI_SIZE", "SLURM_STEP_NUM_TASKS") || same("PMI_SIZE", "SLURM_NTASKS"));
}

}  // namespace

Environment this_environment() {
  Environment environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (const std::size_t at = text.find('='); at != text.npos)
      environment.emplace(text.substr(0, at), text.substr(at + 1));
  }
  return environment;
}

std::optional<ForeignWorld> foreign_world(const Environment& environment, int parent) {
  std::optional<ForeignWorld> world = of_torchrun(environment);
  if (!world) world = of_mpi(environment, kOpenMpi, parent);
  if (!world && !is_slurm_as_pmi(environment)) world = of_mpi(environment, kPmi, parent);
  if (!world) world = of_slurm(environment);
  if (world) complete_place(*world);
  return world;
}

std::optional<ForeignWorld> foreign_world() { return foreign_world(this_environment(), getppid()); }

Endpoint meeting_place(const ForeignWorld& world, const std::string& rdzv_endpoint) {
  constexpr int kDefaultPort = 29400;
  const int port = world.port != 0 ? world.port : kDefaultPort;
  if (!rdzv_endpoint.empty()) return parse_endpoint("--rdzv-endpoint", rdzv_endpoint, port);
  TESSERA_CHECK(!world.host.empty(), "launch",
                "{} has started {} ranks on {} hosts ({}) and names no address where they can find "
                "each other; set MASTER_ADDR to the host of rank 0, or give --rdzv-endpoint "
                "HOST:PORT",
                world.launcher, world.size, world.hosts(), world.variables);
  return {.host = world.host, .port = port};
}

void check_asked(const ForeignWorld& world, const AskedWorld& asked) {
  const auto check = [&](const char* option, const std::optional<int>& value, int theirs,
                         const char* what) {
    TESSERA_CHECK(
        !value || *value == theirs, "launch",
        "{} {} contradicts {}, which has started {} {} ({}); leave {} out, or start ranks "
        "here with --launch processes",
        option, *value, world.launcher, theirs, what, world.variables, option);
  };
  check("--ranks", asked.ranks, world.local_size, "ranks on this host");
  check("--nnodes", asked.nnodes, world.hosts(), "hosts");
  TESSERA_CHECK(!asked.node_rank || *asked.node_rank == world.node_rank(), "launch",
                "--node-rank {} contradicts {}, whose rank {} is on host {} ({}); leave it out",
                *asked.node_rank, world.launcher, world.rank, world.node_rank(), world.variables);
}

}  // namespace tessera::distributed
