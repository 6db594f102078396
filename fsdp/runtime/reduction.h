#pragma once

/// One reduction of a group: from slots, over the ranks, into grad(). Private to this folder.
///
///     slots --(reduce-scatter over the shard axis, on the reduce stream)--> reduced
///           --(all-reduce, or second reduce-scatter, among replicas, on the all-reduce stream)-->
///           --(hook, scale, cast, add)--> grad()
///
/// Every step is left out where the group has no such axis. A slot that is its own sum over the
/// shard axis (one rank there) is handed over as it is, and not scattered. Sums are formed in rank
/// order; the scaling by 1 / ranks comes once, last, but for f16, which is divided by part of it
/// before so that the sum does not overflow.

#include <vector>

#include "tessera/fsdp/runtime/param_group.h"

namespace tessera::fsdp {

/// F = pre * post, pre the smallest power of two p for which F is not a multiple of p, or p * p >=
/// F; so that neither factor is far from the root. 4: (2, 2), 6: (4, 1.5), 16: (4, 4).
struct DivideFactors {
  double pre = 1;
  double post = 1;
};
DivideFactors split_divide_factor(double factor);

class Reduction {
 public:
  Reduction(ParamGroup& group, CommContext& comm) : group_(group), comm_(comm) {}

  /// False when there is nothing to reduce.
  bool collect();
  void run();
  /// Parameters whose grad() is new.
  std::vector<nn::Parameter> reduced() const;

 private:
  struct Member {
    ShardedParameter* parameter = nullptr;
    bool fresh = false;  ///< has a slot to be reduced; else only a partial sum
    Tensor slot{};       ///< to be scattered; undefined where it became the sum as it was
    Tensor sum{};        ///< of this rank's rows, padded; front layout, slot dtype
    Tensor target{};     ///< becomes grad(); may be `sum` itself
  };
  void take_part_with_zeros();
  void count_users(distributed::ProcessGroup& group);
  void issue();
  void make_room_for_results();
  void scatter();
  void all_reduce();
  void all_reduce_hook();
  void deliver();
  void scale(const Tensor& x, double factor);
  Tensor local_rows(const Member& member) const;
  bool waits_for_all_reduce() const;
  std::string label() const;
  void use(const Stream& stream);

  ParamGroup& group_;
  CommContext& comm_;
  std::vector<Member> members_;
  std::vector<std::string> without_;  ///< trainable parameters that take no part
  Stream stream_;                     ///< of the step under way
  std::vector<Block> until_done_;
  DivideFactors factors_;
  UseCount use_count_;
};

}  // namespace tessera::fsdp
