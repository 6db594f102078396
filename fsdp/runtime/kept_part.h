#pragma once

/// The 1/n of each gathered value that a rank keeps between forward and backward, if
/// reshard_after_forward is a number n of ranks. The all-gather of backward then runs among these n
/// neighbours only.

#include <memory>
#include <string>
#include <vector>

#include "tessera/fsdp/runtime/comm_context.h"
#include "tessera/fsdp/runtime/group_layout.h"

namespace tessera::fsdp {

/// Between keep() and drop() there is a tensor for each parameter that is gathered.
class KeptPart {
 public:
  /// Throws InvalidArgument if the number does not divide the ranks of the shard axis.
  KeptPart(const GroupLayout& layout, const ReshardAfterForward& reshard, const std::string& group);

  /// False: no part is ever kept. Also for n = 1 (the full value stays) and n = all ranks (nothing
  /// stays).
  bool is_configured() const { return group_ != nullptr; }
  /// True from keep() to drop().
  bool is_kept() const { return !parts_.empty(); }
  /// Copies this rank's part out of the gathered values, on the compute stream.
  void keep(const GroupLayout& layout, CommContext& comm);
  void drop() { parts_.clear(); }
  const std::vector<Tensor>& parts() const { return parts_; }
  /// The copy is complete.
  const DeviceEvent& done() const { return done_; }
  distributed::ProcessGroup& group() const { return *group_; }

 private:
  std::shared_ptr<distributed::ProcessGroup> group_;  // n neighbours; null: not configured
  std::vector<Tensor> parts_;
  DeviceEvent done_;
};

}  // namespace tessera::fsdp
