#pragma once

/// Whether another launcher (torchrun, Slurm's srun, Open MPI's or Intel MPI's mpirun) has started
/// this program as one rank of a world, as its environment variables say.
///
///   1. torchrun: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT
///   2. Open MPI: OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE
///   3. Intel MPI and MPICH: PMI_RANK, PMI_SIZE, MPI_LOCALRANKID, MPI_LOCALNRANKS
///   4. Slurm, in a step of srun (SLURM_STEP_ID): SLURM_PROCID, SLURM_STEP_NUM_TASKS (or
///      SLURM_NTASKS), SLURM_LOCALID, SLURM_STEP_TASKS_PER_NODE (or SLURM_NTASKS_PER_NODE),
///      SLURM_STEP_NODELIST, SLURM_JOB_ID
///
/// Where several sets are present, the first of this list counts: launchers start one another in the
/// opposite order (srun starts the processes of mpirun and torchrun, which start the ranks). Where
/// srun sets PMI's variables too, with the same rank and size, it is Slurm. A set of a world of one
/// rank is passed over. An empty variable counts as missing.

#include <map>
#include <optional>
#include <string>

#include "tessera/distributed/store/endpoint.h"

namespace tessera::distributed {

struct ForeignWorld {
  std::string launcher{};   ///< "torchrun", "Slurm", "Open MPI", "PMI"
  std::string variables{};  ///< as they were read, for errors: "RANK=1, WORLD_SIZE=4, ..."
  int rank = 0;
  int size = 0;
  int local_rank = 0;  ///< among the ranks of this host
  int local_size = 0;
  /// What tells the run from others, equal on all of its ranks; empty if nothing does.
  std::string job{};
  std::string host{};   ///< where the ranks find each other; empty: the launcher names none
  int port = 0;         ///< at that host
  std::string place{};  ///< where host and port come from, for errors

  int hosts() const { return size / local_size; }
  int node_rank() const { return rank / local_size; }
};

/// The environment of a process: what decides. Made-up ones test it.
using Environment = std::map<std::string, std::string>;
Environment this_environment();

/// The world that the variables describe; nothing where they describe none, or one of one rank.
/// `parent` is the process that started this one: where all ranks are on one host it stands for a
/// missing number of the run. Throws InvalidArgument, with names and values, where variables of the
/// chosen launcher are missing, are no numbers, contradict each other, or describe a world whose
/// ranks on one host are not neighbours, or whose hosts have different numbers of ranks.
std::optional<ForeignWorld> foreign_world(const Environment& environment, int parent);
/// Of this process.
std::optional<ForeignWorld> foreign_world();

/// Where the ranks of `world` find each other: at `rdzv_endpoint` if that is not empty, else, where all
/// ranks are on one host, at its loopback address, else at MASTER_ADDR, else at the first host of
/// Slurm's list. The port is MASTER_PORT; one that nothing names is derived from the number of the
/// run. Throws InvalidArgument where there is no address.
Endpoint meeting_place(const ForeignWorld& world, const std::string& rdzv_endpoint);

/// What a user has asked for; nothing: not asked.
struct AskedWorld {
  std::optional<int> ranks{};      ///< of each host
  std::optional<int> nnodes{};     ///< hosts
  std::optional<int> node_rank{};  ///< number of this host
};
/// Throws InvalidArgument, with names and values, where `asked` contradicts `world`.
void check_asked(const ForeignWorld& world, const AskedWorld& asked);

}  // namespace tessera::distributed
