#pragma once

/// A made-up model, the way it is sharded and the way it is trained, as plain data: what the random
/// tests draw, print and shrink. The model itself is RandomModel.

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::testing {

/// x and every result are [rows, kRandomWidth].
inline constexpr std::int64_t kRandomWidth = 6;

enum class NodeKind : std::uint8_t {
  kGelu,
  kLinear,
  kMlp,        ///< down(gelu(up(x))), `number` wide inside
  kNorm,       ///< LayerNorm
  kTied,       ///< two linear layers of one weight, a gelu between
  kSequence,   ///< the children one after another
  kResidual,   ///< x + the children
  kDetached,   ///< x + the children's result without a gradient
  kReuse,      ///< calls another module of the model once more
  kUnused,     ///< a linear layer that nobody calls
  kSometimes,  ///< x + a linear layer, in even steps
};

enum class Wrap : std::uint8_t { kNone, kShard, kReplicate };

struct NodePlan {
  NodeKind kind = NodeKind::kGelu;
  int number = 1;  ///< kMlp: hidden width; kReuse: which of those that can be used again
  bool frozen_weights = false;
  bool frozen_biases = false;
  Wrap wrap = Wrap::kNone;
  int reshard = 0;    ///< of kShard: 0 unset, 1 true, 2 false, from 3 on the (n - 2)-th divisor
  bool list = false;  ///< the first two children are one group, made by a list
  bool recompute = false;  ///< with children
  std::vector<NodePlan> children = {};
  int id = 0;       ///< set by settle()
  int target = -1;  ///< kReuse: the other's id; set by settle()
};

/// How many forwards a pass has, and how its backwards follow.
enum class Forwards : std::uint8_t {
  kOne,
  kTwoSummed,    ///< one backward of the sum of two
  kTwoReversed,  ///< two, then a backward of each, the last first; the first is not told the last
};

/// One pass of forward and backward.
struct MicroPlan {
  bool sync = true;
  bool all_reduce = true;
  bool reshard_after_backward = true;
  Forwards forwards = Forwards::kOne;
  std::int64_t rows = 4;  ///< of the whole batch; ranks may have none
};
/// One step of the optimizer. Its last pass communicates.
struct StepPlan {
  std::vector<MicroPlan> micros = {{}};
  bool evaluate_before = false;  ///< a forward without gradients
  bool give_up_before = false;   ///< a pass whose gradients wait, then reset_iter_state()
  bool open_before = false;      ///< every second group is opened by hand
  bool clip = false;
};

enum class Precision : std::uint8_t { kStored, kF32Values, kF32ValuesF64Gradients };

struct Program {
  int world = 2;
  int replicas = 1;  ///< more than 1: HSDP
  bool over_replicas = false;
  bool queued = false;
  bool offload = false;
  bool cut_dim1 = false;  ///< weights whose second dim divides are cut along it
  Precision precision = Precision::kStored;
  bool exempt_norms = false;
  int forward_prefetch = 1;
  bool backward_prefetch = true;
  int reduce_buffers = 1;
  bool reduce_unused = false;
  bool separate_reduces = false;
  bool in_backward = false;      ///< the optimizer steps there: one pass a step, and no clipping
  bool optimizer_event = false;  ///< gathers wait for the optimizer alone
  bool penalty = false;          ///< a term over local()
  int listed = 0;                ///< groups that each group's explicit lists hold; 0: no lists
  bool input_gradients = false;
  bool root_replicated = false;
  int root_reshard = 0;
  NodePlan body = {.kind = NodeKind::kSequence};
  std::vector<StepPlan> steps = {{}, {}};
};

/// Makes a drawn program legal: numbers the nodes, gives every reuse a target (which becomes a
/// group of its own, so that it can run anywhere), lets every step's last pass communicate, and on
/// a GPU leaves out what offloaded shards cannot be part of.
void settle(Program& program);
/// One line for the model, one for all else.
std::string describe(const Program& program);

/// Trains the program sharded on program.world threads and unsharded beside it. "" when all values,
/// gradients, norms and outputs agree and all memory went back; else what differs first.
std::string train_and_compare(const Program& program);

}  // namespace tessera::testing
