#pragma once

/// Process groups that change the behaviour of another one, for tests and for debugging. Each
/// shares the group that it wraps, keeps its name, rank, size and transport, and may wrap another
/// decorator. Sub-groups of a decorated group are sub-groups of the wrapped group; only checked()
/// (checked.h) continues in them. All throw InvalidArgument for a null group. The messages of
/// checked() around a decorated group pass it unchanged.

#include <cstdint>
#include <functional>
#include <memory>

#include "tessera/distributed/process_group.h"

namespace tessera::distributed {

/// Passes everything on: the base of decorators.
class Decorator : public ProcessGroup {
 public:
  explicit Decorator(std::shared_ptr<ProcessGroup> group);
  std::string backend() const override { return group_->backend(); }
  bool carries(DeviceType type) const override { return group_->carries(type); }
  void run(const Collective& call) override { group_->run(call); }
  void abort(const std::string& reason) noexcept override { group_->abort(reason); }
  std::uint64_t next_sequence() override { return group_->next_sequence(); }
  std::uint64_t next_place(Channel channel, int peer, bool sending) override {
    return group_->next_place(channel, peer, sending);
  }
  std::uint64_t next_subgroup(const std::string& members_and_name) override {
    return group_->next_subgroup(members_and_name);
  }
  std::shared_ptr<ProcessGroup> make_subgroup(const SubgroupRequest& request) override {
    return group_->make_subgroup(request);
  }

 protected:
  ProcessGroup& inside() const { return *group_; }

 private:
  std::shared_ptr<ProcessGroup> group_;
};

/// User code around each collective, with its real tensors. Any may be null.
struct CallHooks {
  /// When it is issued, on the host. What it throws reaches the caller, and nothing is issued.
  std::function<void(const Collective&)> before = {};
  /// Called on the host instead of the collective. If it returns true, it has done the collective's
  /// work on the current stream; if false, the collective runs.
  std::function<bool(const Collective&)> instead = {};
  /// On the collective's stream, behind it: outputs are there. With tensors on a GPU the caller
  /// waits for them and calls it himself. Skipped where it failed or was replaced.
  std::function<void(const Collective&)> after = {};
};
std::shared_ptr<ProcessGroup> call(std::shared_ptr<ProcessGroup> group, CallHooks hooks);

/// The tensors that a collective writes on this rank, for hooks that look at them. Throws
/// InvalidArgument for one that writes none here: a barrier, a send, a gather to another rank.
const std::vector<Tensor>& outputs_of(const ProcessGroup& group, const Collective& call);

/// Sleeps `milliseconds` on the issuing stream ahead of each collective of `kind`.
std::shared_ptr<ProcessGroup> delay(std::shared_ptr<ProcessGroup> group, CollectiveKind kind,
                                    double milliseconds);

/// The n-th collective (from 1) throws CollectiveError on the issuing stream; the group is not
/// aborted by it.
std::shared_ptr<ProcessGroup> fail_at(std::shared_ptr<ProcessGroup> group, std::uint64_t n);

struct CorruptOptions {
  CollectiveKind kind = CollectiveKind::kAllGather;
  std::uint64_t call = 1;    ///< the n-th of its kind, from 1
  std::int64_t byte = 0;     ///< of its first output that has so many
  std::uint8_t mask = 0x40;  ///< bits that flip
};
/// Flips bits of one collective's result on this rank, on its stream, as a broken network or a race
/// would. Throws InvalidArgument at that collective if no output has the byte.
std::shared_ptr<ProcessGroup> corrupt(std::shared_ptr<ProcessGroup> group,
                                      const CorruptOptions& options);

}  // namespace tessera::distributed
