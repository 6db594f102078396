#include "tessera/fsdp/runtime/gather.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "tessera/distributed/collectives.h"
#include "tessera/distributed/mesh/placement.h"
#include "tessera/tensor/memory/transfer.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"

namespace tessera::fsdp {
namespace {

/// The bytes of a contiguous tensor as u8, to send parameters of different dtypes in one all-gather.
Tensor as_bytes(const Tensor& x) {
  const auto size = static_cast<std::int64_t>(dtype_size(x.dtype()));
  return Tensor::over(x.storage(), {x.numel() * size}, {1}, x.offset() * size, DType::kU8);
}

}  // namespace

void Gather::issue(const KeptPart& kept, CommContext& comm) {
  const bool was_held = holds_memory();
  try {
    fill(kept, comm);
  } catch (...) {  // no reshard would release this memory
    const StreamGuard on_gather(comm.gather());
    // Compute may still read memory from before.
    if (was_held) comm.wait_for_compute_quietly();
    take_back_memory();
    storage_.release();
    chunks_.clear();
    throw;
  }
}

void Gather::fill(const KeptPart& kept, CommContext& comm) {
  const StreamGuard on_gather(comm.gather());
  storage_.materialize();
  if (kept.is_kept()) {
    fill_from_kept(kept);
  } else {
    fill_from_shards(comm);
  }
  take_back_memory();
  done_ = comm.gather().record("gathered");
}

bool Gather::holds_memory() const {
  return storage_.defined() && storage_.state() != StorageState::kReleased;
}

MemoryBlock Gather::detach() {
  take_back_memory();
  return storage_.detach();
}

void Gather::lend_memory() {
  for (ShardedParameter& parameter : layout_.parameters) parameter.lend_cast_copy();
}

void Gather::take_back_memory() {
  for (ShardedParameter& parameter : layout_.parameters) parameter.take_back_cast_copy();
}

void Gather::fill_from_kept(const KeptPart& kept) {
  std::vector<Tensor> outputs;
  for (const ShardedParameter& parameter : layout_.parameters) {
    if (!parameter.aliases()) outputs.push_back(parameter.gathered());
  }
  storage_.begin_fill();
  all_gather(kept.parts(), std::move(outputs), kept.group());
}

void Gather::fill_from_shards(CommContext& comm) {
  if (layout_.cut_twice) gather_among_replicas(comm);
  std::vector<Tensor> inputs;
  std::vector<Tensor> outputs;
  std::vector<AxpbySegment> copies;
  for (std::size_t i = 0; i < layout_.parameters.size(); ++i) {
    ShardedParameter& parameter = layout_.parameters[i];
    parameter.note_gather();
    if (parameter.aliases()) continue;
    if (parameter.choice().extension) {
      gather_payload(i, comm);
      continue;
    }
    inputs.push_back(sent_rows(i, copies, comm));
    outputs.push_back(parameter.gathered());
  }
  axpby_(copies);
  storage_.begin_fill();
  if (layout_.shard_group) all_gather(std::move(inputs), std::move(outputs), *layout_.shard_group);
}

// What this rank sends of a parameter, once `copies` are issued.
Tensor Gather::sent_rows(std::size_t index, std::vector<AxpbySegment>& copies,
                         CommContext& comm) const {
  const ShardedParameter& parameter = layout_.parameters[index];
  if (parameter.travels_as_it_is()) return parameter.padded_local();
  if (layout_.cut_twice) return chunks_[index].slice(0, 0, parameter.layout().chunk_rows());
  const Tensor own = parameter.gathered_chunks(parameter.layout().rank(), 1);
  if (!parameter.parameter().has_current_cast_copy())
    parameter.copy_local_to(own, copies, comm.copies);
  return own;
}

void Gather::all_gather(std::vector<Tensor> inputs, std::vector<Tensor> outputs,
                        distributed::ProcessGroup& group) const {
  if (outputs.empty()) return;
  const bool mixed = std::any_of(outputs.begin(), outputs.end(), [&](const Tensor& t) {
    return t.dtype() != outputs.front().dtype();
  });
  if (mixed) {
    std::transform(inputs.begin(), inputs.end(), inputs.begin(), as_bytes);
    std::transform(outputs.begin(), outputs.end(), outputs.begin(), as_bytes);
  }
  if (settings_.all_gather) {
    settings_.all_gather(group, inputs, outputs, group_);
  } else {
    distributed::all_gather(group, inputs, outputs, group_);
  }
}

// If shards are sharded again over the replicas: gathers the chunk that the replicas share, in the
// compute dtype (for an extension, in the stored one). Once per step, and again if shards were
// written since.
void Gather::gather_among_replicas(CommContext& comm) {
  if (!chunks_.empty() && !layout_.is_stale()) return;
  chunks_.clear();
  std::vector<Tensor> inputs;
  std::vector<Tensor> outputs;
  std::vector<AxpbySegment> copies;
  for (const ShardedParameter& parameter : layout_.parameters) {
    const ParameterLayout& layout = parameter.layout();
    const std::int64_t part = layout.padded_local_rows();
    const std::int64_t together = part * layout.replicas();
    const DType dtype =
        parameter.choice().extension ? parameter.parameter().dtype() : parameter.compute_dtype();
    const Tensor chunk = Tensor::empty_named(
        layout.front(layout.roomy_chunk_rows()), {.dtype = dtype, .device = layout_.mesh.device()},
        MemoryCategory::kGathered, parameter.parameter().name() + ".chunk");
    if (together < chunk.dim(0)) fill_(chunk.slice(0, together, chunk.dim(0)), 0);
    const Tensor own = chunk.slice(0, part * layout.replica(), part * (layout.replica() + 1));
    parameter.copy_local_to(own, copies, comm.copies);
    inputs.push_back(own);
    outputs.push_back(chunk.slice(0, 0, together));
    chunks_.push_back(chunk);
  }
  axpby_(copies);
  all_gather(std::move(inputs), std::move(outputs), *layout_.replica_group);
}

// Sends the tensors that an extension packs, and lets it unpack all ranks' rows here. If shards are
// sharded again over the replicas, it packs the chunk that the replicas share.
void Gather::gather_payload(std::size_t index, CommContext& comm) {
  const ShardedParameter& parameter = layout_.parameters[index];
  const ParameterLayout& layout = parameter.layout();
  GatherExtension& extension = *parameter.choice().extension;
  const MemoryCategoryScope category(MemoryCategory::kCommunication);
  const auto chunk = distributed::chunk_of(layout.rows(), layout.ranks(), layout.rank());
  const GatherExtension::GatherShard shard{
      .rows = layout_.cut_twice
                  ? chunks_[index].slice(0, 0, chunk.padded_rows)
                  : layout.to_front(to_device(parameter.padded_local(), layout_.mesh.device())),
      .ranks = layout.ranks(),
      .rank = layout.rank(),
      .real_rows = chunk.rows()};
  const std::vector<Tensor> payload = extension.pack(shard);
  std::vector<Tensor> gathered;
  for (const Tensor& part : payload) {
    gathered.push_back(Tensor::empty(part.shape().inserted(0, layout.ranks()), part.options()));
    comm.copies.extension += part.numel() * static_cast<std::int64_t>(dtype_size(part.dtype()));
  }
  if (layout_.shard_group) {
    all_gather(payload, gathered, *layout_.shard_group);
  } else {
    for (std::size_t i = 0; i < payload.size(); ++i) copy_(gathered[i].select(0, 0), payload[i]);
  }
  const Tensor rows = parameter.gathered_chunks(0, layout.ranks());
  extension.unpack(shard, gathered, rows);
  comm.copies.extension += rows.numel() * static_cast<std::int64_t>(dtype_size(rows.dtype()));
}

void Gather::wait_for_readers(CommContext& comm) const {
  if (done_.is_recorded()) comm.finish_quietly(done_);
}

void Gather::end_step(CommContext& comm) {
  if (chunks_.empty()) return;
  const StreamGuard on_gather(comm.gather());
  chunks_.clear();
}

void Gather::retire(const std::string& text) {
  if (storage_.defined()) storage_.retire(text);
}

}  // namespace tessera::fsdp
