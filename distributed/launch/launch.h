#pragma once

/// Starts the ranks of a run from one program: as threads of this process or as processes of the
/// same binary, on one host or on several.
///
///     int main(int argc, char** argv) {
///       return distributed::launch(argc, argv, [](distributed::World& world) { train(world); });
///     }
///
/// Processes are started by exec of the running binary with the same arguments, which reaches the
/// same launch() call again and there becomes a rank; so everything before launch() runs once more
/// in each. They find each other through a temporary folder and ports that the system picks, and
/// die with the parent; the folder of a parent that was killed is removed by the next start. When
/// one rank fails (exception, exit, signal) the others are stopped within seconds, and the failure
/// reported is the first one, not its echoes.
///
/// On several hosts (nodes) start the same program on each, with the same options but for
/// `node_rank`. Nodes find each other at `rdzv_endpoint`, an address of node 0, and then are one
/// run: node k has the ranks from k * ranks on, all of them end together, and launch() returns on
/// every node when all have ended. A failure stops all nodes; where it happened it reads as with
/// one node, elsewhere the node is named in front. So does a node whose launcher or host is gone,
/// after about five seconds. Processes prove to each other that they know a secret of the run, which
/// an endpoint that other hosts can reach needs. Data between ranks is neither encrypted nor
/// authenticated.
///
/// If another launcher has started this program as one of several ranks (torchrun, Slurm's srun, Open
/// MPI's or Intel MPI's mpirun), launch() starts no world of its own: each process then starts and
/// watches the one rank that its environment variables describe, and all of them are one run. The
/// variables, and which of them win, are in foreign_launcher.h. Ranks meet at `rdzv_endpoint`, or
/// where the launcher says. Failures are told as between nodes, by each process. Explicitly asking
/// for processes or threads (LaunchMode, --launch) starts ranks here in spite of the variables.
///
/// The standard output of rank processes is line-buffered, also through a pipe; std::cout is not
/// after std::ios::sync_with_stdio(false). What they print goes through the launcher, which keeps
/// each one's last lines (LaunchResult::last_lines).
///
/// Call it from the main thread. SIGINT and SIGTERM to the parent end the ranks first and then have
/// their usual effect; a body may ask to be told instead, and end in order
/// (World::heed_stop_signals). As the first process of a container, which signals do not end, the
/// parent exits with 128 + signal.
///
/// Several calls in one program. With processes, each rank process runs the call that it belongs to
/// and passes over the earlier ones with processes, which have run elsewhere: they return at once,
/// or throw again if their options were refused.
/// Earlier calls with threads are run again in every rank process, as everything before its call
/// is: what they computed may be needed there. Where only their effects outside count (a file, a
/// line of output), leave them out in ranks:
///
///     if (!is_rank_process()) launch(argc, argv, {.mode = LaunchMode::kThreads}, prepare);
///     launch(argc, argv, {}, train);

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "tessera/distributed/launch/world.h"
#include "tessera/distributed/nccl/process_group_nccl.h"
#include "tessera/distributed/process_group.h"
#include "tessera/tensor/streams/stream.h"

namespace tessera::distributed {

enum class LaunchMode : std::uint8_t {
  kAuto,       ///< processes: the one of another launcher's rank if one has started this program
  kThreads,    ///< of this process
  kProcesses,  ///< started here, also under another launcher
};

/// What carries CUDA tensors. CPU tensors go between threads directly, between processes by Gloo.
enum class GpuTransport : std::uint8_t {
  kAuto,   ///< NCCL between processes, and between threads that have a GPU each
  kLocal,  ///< rank threads read each other's memory; they may share GPUs
  kNccl,
};

/// Which of the launcher's cores a rank process may use.
enum class RankBinding : std::uint8_t {
  kAuto,  ///< kCores if ranks compute on the CPU; else kNone: a share may be far from the rank's GPU
  kNone,   ///< all of them
  kCores,  ///< a share that no other rank has; all of them if there are fewer cores than ranks
};

struct LaunchOptions {
  /// Of this host's processes or threads; the same on every node. Nothing: 2, or as many as another
  /// launcher has started on this host.
  std::optional<int> ranks{};
  LaunchMode mode = LaunchMode::kAuto;
  /// What World::device() is of, and where `body` makes tensors when it names no device: the CPU,
  /// or with any cuda device the GPUs of `gpus`.
  Device device = kCpu;
  /// Indices of GPUs, for the ranks of this host in turn; more ranks than GPUs share them where
  /// they are threads. Empty: all that this process can use.
  std::vector<int> gpus{};
  GpuTransport gpu_transport = GpuTransport::kAuto;
  NcclSettings nccl{};
  StreamKind cpu_compute = StreamKind::kInline;  ///< the stream that each rank's operations use
  std::chrono::milliseconds timeout = kDefaultTimeout;  ///< of every wait for a peer or a node
  bool checked = false;  ///< ranks compare each collective before its data moves: checked.h
  RankBinding bind = RankBinding::kAuto;  ///< of processes that are started here

  int nnodes = 1;     ///< hosts that run together; more than one only with processes
  int node_rank = 0;  ///< number of this host, from 0
  /// The address at which several nodes find each other: "host:port" of node 0, port 29400 if left
  /// out.
  /// The port is open until all have come.
  std::string rdzv_endpoint{};
  /// Tells apart runs that have one secret; the same on every node.
  std::string rdzv_id{};
  /// A file with the secret by which the processes of the run know each other, the same on every
  /// node; only its owner and group may be able to read it. Empty: the environment variable
  /// TESSERA_SECRET. Without either, rdzv_endpoint must be a loopback address.
  std::string rdzv_secret_file{};
  /// What the ranks of this host listen on for those of the others: an interface, a name or an
  /// address. Empty: the address that leads to rdzv_endpoint.
  std::string local_addr{};
};

struct LaunchResult {
  int exit_code = 0;  ///< 0; 1 when a rank failed; 128 + signal when the body ended for one
  /// The first failure: rank, what, and for a rank that died the collective it was in.
  std::string failure{};
  /// The last 20 lines that the rank of `failure` printed, on both streams, indented, under a
  /// heading; to be shown before it. Empty if it printed nothing, was a thread or belongs to
  /// another launcher.
  std::string last_lines{};
  int signal = 0;          ///< for which the body ended early (World::stopped_early), or 0
  std::int64_t steps = 0;  ///< after so many steps
};

/// Runs `body` on every rank and waits for all. In a child process it runs its rank and does not
/// return. Throws InvalidArgument for fewer than 1 rank, for options of nodes that do not fit
/// together, where a run needs a secret, and for another launcher's variables that are wrong or
/// contradict the options, DeviceError where GPUs cannot be used or are too few for the ranks, Error
/// when the
/// operating system refuses a process or the nodes' endpoint cannot be used, TimeoutError naming
/// the nodes that did not come.
LaunchResult launch(int argc, char** argv, const LaunchOptions& options,
                    const std::function<void(World&)>& body);

/// An option of the program itself, beside those of launch(). With `value`, launch() reads it there,
/// on every rank, before `body` runs; what the variable holds before is the default, which --help
/// prints:
///
///     int steps = 100;
///     std::string data;
///     return distributed::launch(argc, argv, body,
///                                {{"--steps", "N  training steps", &steps},
///                                 {"--data", "FILE  of text", &data}});
///
/// A bool is a flag: the option takes no value and sets true. The variable outlives the call.
struct ProgramOption {
  using Value = std::variant<std::monostate, bool*, int*, std::int64_t*, double*, std::string*>;

  std::string name;  ///< as it is written: "--steps"
  std::string help =
      {};            ///< for --help; begins with the value if it takes one: "N  training steps"
  Value value = {};  ///< nothing: the program reads its command line itself
};

/// For small programs: reads --ranks N, --launch auto|threads|processes, --device cpu|cuda, --timeout
/// SECONDS, --checked, --bind auto|none|cores, --nnodes N, --node-rank K, --rdzv-endpoint HOST:PORT,
/// --rdzv-id NAME, --rdzv-secret-file FILE and --local-addr NAME from the command line, as
/// `--ranks N` or `--ranks=N`, and the program's own options that have a value.
/// Other options in `own_options` and arguments that do not begin with "--" are the program's own
/// business, as is all after "--". Any other option is refused, with the nearest valid name.
/// --help and -h print all options.
///
/// Prints a failure to standard error and returns the exit code: 2 when nothing was started (a
/// wrong option, a GPU that is missing, or a node that did not come), 0 after --help.
int launch(int argc, char** argv, const std::function<void(World&)>& body,
           const std::vector<ProgramOption>& own_options = {});

/// True in a process that launch() started as a rank: a program prints its greeting, and does what
/// must happen once, only where this is false. That is so once on each node, and once for each rank
/// that another launcher has started.
bool is_rank_process();

}  // namespace tessera::distributed
