#pragma once

/// A random model, its sharding and its training, as plain data: random tests draw, print and
/// shrink it. RandomModel is the model itself.

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::testing {

/// x and every result are [rows, kRandomWidth].
inline constexpr std::int64_t kRandomWidth = 6;

enum class NodeKind : std::uint8_t {
  kGelu,
  kLinear,
  kMlp,        ///< down(gelu(up(x))), with `number` features inside
  kNorm,       ///< LayerNorm
  kTied,       ///< two linear layers with one weight, with a gelu in between
  kSequence,   ///< the children in sequence
  kResidual,   ///< x + the children
  kDetached,   ///< x + the children's detached result
  kReuse,      ///< calls another module of the model again
  kUnused,     ///< a linear layer that is never called
  kSometimes,  ///< x + a linear layer, in even steps
};

enum class Wrap : std::uint8_t { kNone, kShard, kReplicate };

struct NodePlan {
  NodeKind kind = NodeKind::kGelu;
  int number = 1;  ///< kMlp: hidden width; kReuse: which of the reusable modules
  bool frozen_weights = false;
  bool frozen_biases = false;
  Wrap wrap = Wrap::kNone;
  int reshard = 0;         ///< of kShard: 0 unset, 1 true, 2 false; n >= 3: the (n - 2)-th divisor
  bool list = false;       ///< the first two children are one group, made by a list
  bool recompute = false;  ///< only with children
  std::vector<NodePlan> children = {};
  int id = 0;       ///< set by settle()
  int target = -1;  ///< kReuse: the id of the other node; set by settle()
};

/// The number of forwards in a pass, and the order of their backwards.
enum class Forwards : std::uint8_t {
  kOne,
  kTwoSummed,    ///< two forwards, one backward of their sum
  kTwoReversed,  ///< two forwards, then a backward of each, the last first; only the second
                 ///< backward is the last one
};

/// One pass of forward and backward.
struct MicroPlan {
  bool sync = true;
  bool all_reduce = true;
  bool reshard_after_backward = true;
  Forwards forwards = Forwards::kOne;
  std::int64_t rows = 4;  ///< rows of the whole batch; ranks may have none
};
/// One step of the optimizer. Its last pass communicates.
struct StepPlan {
  std::vector<MicroPlan> micros = {{}};
  bool evaluate_before = false;  ///< a forward without gradients
  bool give_up_before = false;   ///< a pass whose gradients stay pending, then reset_iter_state()
  bool open_before = false;      ///< every second group is unsharded by hand
  bool clip = false;
};

enum class Precision : std::uint8_t { kStored, kF32Values, kF32ValuesF64Gradients };

struct Program {
  int world = 2;
  int replicas = 1;  ///< more than 1: HSDP
  bool over_replicas = false;
  bool queued = false;
  bool offload = false;
  bool cut_dim1 = false;  ///< weights whose second dim is divisible are sharded along it
  Precision precision = Precision::kStored;
  bool exempt_norms = false;
  int forward_prefetch = 1;
  bool backward_prefetch = true;
  int reduce_buffers = 1;
  bool reduce_unused = false;
  bool separate_reduces = false;
  bool in_backward = false;      ///< the optimizer steps in backward: one pass per step, and no
                                 ///< clipping
  bool optimizer_event = false;  ///< gathers wait only for the optimizer
  bool penalty = false;          ///< a penalty on local()
  int listed = 0;                ///< number of groups in each group's explicit lists; 0: no lists
  bool input_gradients = false;
  bool root_replicated = false;
  int root_reshard = 0;
  NodePlan body = {.kind = NodeKind::kSequence};
  std::vector<StepPlan> steps = {{}, {}};
};

/// Makes a drawn program legal: numbers the nodes, gives every reuse a target (which becomes a
/// group of its own, so that it can run anywhere), makes every step's last pass communicate, and on
/// a GPU removes features that do not work with offloaded shards.
void settle(Program& program);
/// One line for the model, one for everything else.
std::string describe(const Program& program);

/// Trains the program sharded on program.world threads, and unsharded beside it. Returns "" if all
/// values, gradients, norms and outputs agree and all memory was freed; otherwise the first
/// difference.
std::string train_and_compare(const Program& program);

}  // namespace tessera::testing
