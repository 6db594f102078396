#pragma once

/// The gathered values of a group: their memory, and the all-gathers that fill it.
///
/// An all-gather runs on the gather stream. It reads the shards, or the part that each rank kept
/// after forward. A shard that cannot be sent as it lies (a cast, an offloaded shard, Shard(d > 0))
/// is first copied into this rank's own rows of the gathered memory and sent from there. So the copy
/// costs no memory, and it cannot start before that memory is free. One launch copies all shards of
/// the group. One rank's own rows are all rows, so its all-gather copies nothing, and the memory can
/// stay between steps: an optimizer that writes shards then writes the values too.

#include <string>
#include <vector>

#include "tessera/fsdp/runtime/comm_context.h"
#include "tessera/fsdp/runtime/group_layout.h"
#include "tessera/fsdp/runtime/kept_part.h"

namespace tessera::fsdp {

class Gather {
 public:
  /// The arguments belong to the group and outlive this.
  Gather(GroupLayout& layout, const GroupSettings& settings, const std::string& group)
      : layout_(layout), settings_(settings), group_(group) {}

  /// The memory that all-gathers fill, released.
  void set_storage(TensorStorage storage) { storage_ = std::move(storage); }
  /// Bytes of the memory, alignment and padding rows included.
  std::int64_t bytes() const { return static_cast<std::int64_t>(storage_.bytes()); }

  /// Allocates the memory and issues the all-gather: from `kept` if a part is kept, else from the
  /// shards. If that throws, the memory is released again.
  void issue(const KeptPart& kept, CommContext& comm);
  /// The last all-gather is complete. Not recorded before the first one.
  const DeviceEvent& done() const { return done_; }
  /// Values may be read from now on. The compute stream has waited for done().
  void open() { storage_.end_fill(); }
  /// There is memory: an all-gather was issued since it was last taken away.
  bool holds_memory() const;
  /// Takes the memory away; the values are released.
  MemoryBlock detach();
  /// The values are not in use until the next issue(), which casts only the shards that were written
  /// meanwhile without their cast copy (nn::Parameter). For values that are casts of local().
  void lend_memory();
  /// The compute stream waits until no rank reads the shards any more.
  void wait_for_readers(CommContext& comm) const;
  /// Drops what is kept between the all-gathers of one step.
  void end_step(CommContext& comm);
  /// Reading a value is an error with this text from now on.
  void retire(const std::string& text);

 private:
  void take_back_memory();
  void fill(const KeptPart& kept, CommContext& comm);
  void fill_from_kept(const KeptPart& kept);
  void fill_from_shards(CommContext& comm);
  void gather_among_replicas(CommContext& comm);
  void gather_payload(std::size_t index, CommContext& comm);
  Tensor sent_rows(std::size_t index, std::vector<AxpbySegment>& copies, CommContext& comm) const;
  void all_gather(std::vector<Tensor> inputs, std::vector<Tensor> outputs,
                  distributed::ProcessGroup& group) const;

  GroupLayout& layout_;
  const GroupSettings& settings_;
  const std::string& group_;
  TensorStorage storage_;
  std::vector<Tensor> chunks_;  // if shards are sharded over replicas: what the replicas gathered
  DeviceEvent done_;
};

}  // namespace tessera::fsdp
