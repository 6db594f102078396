#pragma once

/// One reduction of a group: from the slots, over the ranks, into grad(). Private to this folder.
///
///     slots --(reduce-scatter over the shard axis, on the reduce stream)--> reduced
///           --(all-reduce, or second reduce-scatter, among replicas, on the all-reduce stream)-->
///           --(hook, scale, cast, add)--> grad()
///
/// A step is skipped if the group has no such axis. A slot that already equals its sum over the
/// shard axis (one rank) is used directly and not scattered. Sums are formed in rank order (by NCCL
/// in its own order) and scaled by 1 / ranks once, at the end. Only f16 gradients are divided by a
/// part of the factor first, so that the sum does not overflow.

#include <vector>

#include "tessera/fsdp/runtime/param_group.h"

namespace tessera::fsdp {

/// factor = pre * post, where pre is the smallest power of two p such that factor is not a multiple
/// of p, or p * p >= factor. Both are then close to the square root. 4: (2, 2), 6: (4, 1.5), 16:
/// (4, 4).
struct DivideFactors {
  double pre = 1;
  double post = 1;
};
DivideFactors split_divide_factor(double factor);

class Reduction {
 public:
  Reduction(ParamGroup& group, CommContext& comm) : group_(group), comm_(comm) {}

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
  std::vector<std::string> without_;  ///< trainable parameters without a gradient
  Stream stream_;                     ///< stream of the current step
  std::vector<Block> until_done_;
  DivideFactors factors_;
  UseCount use_count_;
};

}  // namespace tessera::fsdp
