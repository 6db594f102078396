#pragma once

/// The reductions of a group: from gradient slots, over the ranks, into grad().
///
///     slots --(reduce-scatter over the shard axis, on the reduce stream)--> sums
///           --(all-reduce, or second reduce-scatter, among replicas, on the all-reduce stream)-->
///           --(hook, scale, cast, add)--> grad()
///
/// A step is skipped if the group has no such axis. A slot that already equals its sum over the
/// shard axis (one rank) is used directly and not scattered. Sums are formed in rank order (by NCCL
/// in its own order) and scaled by 1 / ranks once, at the end. Only f16 gradients are divided by a
/// part of the factor first, so that the sum does not overflow.

#include <map>
#include <set>
#include <string>
#include <vector>

#include "tessera/fsdp/runtime/comm_context.h"
#include "tessera/fsdp/runtime/group_layout.h"
#include "tessera/tensor/ops/elementwise.h"

namespace tessera::fsdp {

/// factor = pre * post, where pre is the smallest power of two p such that factor is not a multiple
/// of p, or p * p >= factor. Both are then close to the square root. 4: (2, 2), 6: (4, 1.5), 16:
/// (4, 4).
struct DivideFactors {
  double pre = 1;
  double post = 1;
};
DivideFactors split_divide_factor(double factor);

/// Parameters of one reduction (some with zeros), and the number of ranks that used each of them.
struct UseCount {
  std::vector<nn::Parameter> parameters;
  Tensor ranks;
};

/// What later reductions of a group depend on.
struct ReductionState {
  DeviceEvent done;                  ///< of the last reduction; not recorded before the first one
  DeviceStream written_on;           ///< where the last reduction wrote grad()
  std::vector<UseCount> use_counts;  ///< not read on the host yet
  /// Parameters, by id, that this rank used while their all-reduce was put off.
  std::set<const void*> used_before;

  /// A reduction counted the ranks that used the parameter, and the count was not read yet.
  bool is_use_unknown(const nn::Parameter& parameter) const;
};

/// One reduction: collect(), then run(). The arguments belong to the group and outlive this.
class Reduction {
 public:
  struct Group {
    GroupLayout& layout;
    const GroupSettings& settings;
    const std::string& name;
  };
  Reduction(Group group, ReductionState& state, CommContext& comm)
      : group_(group), state_(state), comm_(comm) {}

  /// Returns false if there is nothing to reduce.
  bool collect();
  void run();
  /// Parameters whose grad() was written.
  std::vector<nn::Parameter> reduced() const;

 private:
  struct Member {
    ShardedParameter* parameter = nullptr;
    bool fresh = false;  ///< has a slot to reduce; otherwise it has only a partial sum
    Tensor slot{};       ///< input of the reduce-scatter; undefined if the slot itself became `sum`
    Tensor sum{};        ///< this rank's rows, padded; front layout, slot dtype
    Tensor target{};     ///< becomes grad(); may be `sum` itself
  };
  void take_part_with_zeros();
  void count_users(distributed::ProcessGroup& group);
  void issue();
  void add_waiting_gradients();
  void make_room_for_results();
  void scatter();
  void all_reduce();
  void all_reduce_hook();
  void deliver();
  static bool moves_to_host(const Member& member);
  static void move_to_host(const Member& member, const Tensor& rows, const AxpbyOptions& factors);
  Tensor local_rows(const Member& member) const;
  bool waits_for_all_reduce() const;
  std::string label() const;
  void use(const DeviceStream& stream);

  Group group_;
  ReductionState& state_;
  CommContext& comm_;
  std::vector<Member> members_;
  std::vector<std::string> without_;  ///< trainable parameters without a gradient
  DeviceStream stream_;               ///< stream of the current step
  std::vector<MemoryBlock> until_done_;
  DivideFactors factors_;
  UseCount use_count_;
};

/// Parameters that no rank used take part with zeros: told by a setter, or by the tag "optional".
bool needs_zeros(const GroupLayout& layout, const GroupSettings& settings);
/// Gradients of parameters that no rank used become undefined. Returns the parameters that some rank
/// used. Reads the counts on the host, which waits for them.
std::vector<nn::Parameter> drop_unused_gradients(ReductionState& state);

}  // namespace tessera::fsdp
