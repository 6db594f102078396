#include "tessera/fsdp/runtime/kept_part.h"

#include <optional>

#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/lists.h"

namespace tessera::fsdp {

KeptPart::KeptPart(const GroupLayout& layout, const ReshardAfterForward& reshard,
                   const std::string& group) {
  const std::optional<int>& kept = reshard.ranks();
  if (!kept || !layout.shard_group) return;
  distributed::ProcessGroup& all = *layout.shard_group;
  TESSERA_CHECK(*kept >= 1 && all.size() % *kept == 0, "fsdp.fully_shard",
                "reshard_after_forward = {} of {} must be at least 1 and divide the {} ranks of "
                "axis \"{}\"",
                *kept, group, all.size(), *layout.shard_axis);
  if (*kept == 1 || *kept == all.size()) return;
  std::vector<int> neighbours;
  for (int i = 0; i < *kept; ++i) neighbours.push_back(all.rank() / *kept * *kept + i);
  group_ = all.subgroup(neighbours);
}

void KeptPart::keep(const GroupLayout& layout, CommContext& comm) {
  const MemoryCategoryScope category(MemoryCategory::kGathered);
  const int chunks = layout.shard_group->size() / group_->size();
  std::vector<AxpbySegment> copies;
  for (const ShardedParameter& parameter : layout.parameters) {
    if (parameter.aliases()) continue;
    const Tensor part = parameter.gathered_chunks(group_->rank() * chunks, chunks);
    parts_.push_back(Tensor::empty(part.shape(), part.options()));
    copies.push_back({.out = parts_.back(), .x = part});
    comm.copies.kept_part += part.numel() * static_cast<std::int64_t>(dtype_size(part.dtype()));
  }
  axpby_(copies);
  done_ = comm.compute().record("part kept");
}

}  // namespace tessera::fsdp
