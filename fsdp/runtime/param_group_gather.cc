// How a group's values are gathered: from the shards, or from the 1/n that forward kept; with
// casts, offload, sharding along other dims, sharding over both axes, and extensions.

#include <algorithm>
#include <utility>

#include "tessera/distributed/collectives.h"
#include "tessera/distributed/mesh/placement.h"
#include "tessera/fsdp/runtime/annotations.h"
#include "tessera/fsdp/runtime/param_group.h"
#include "tessera/tensor/memory/transfer.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/trace.h"

namespace tessera::fsdp {
namespace {

/// The bytes of a contiguous tensor as u8: parameters of different dtypes are sent in one gather.
Tensor as_bytes(const Tensor& x) {
  const auto size = static_cast<std::int64_t>(dtype_size(x.dtype()));
  return Tensor::over(x.storage(), {x.numel() * size}, {1}, x.offset() * size, DType::kU8);
}

}  // namespace

void ParamGroup::unshard(CommContext& comm, const GatherRoom& room) {
  check_not_shown_whole();
  if (state_ != GroupState::kSharded && state_ != GroupState::kPostForward) return;
  keep_up_with_conversions();
  annotate(kAnnotationDomain, name_, kUnshardPhase);
  comm.make_room(room);
  if (state_ == GroupState::kPostForward) {
    comm.gather().wait(kept_done_);
  } else {
    bool writes = false;
    for (ShardedParameter& parameter : parameters_) writes |= parameter.has_new_writes();
    if (writes) comm.gather().wait(comm.compute().record("shards written"));
  }
  try {
    issue_gather(comm);
  } catch (...) {  // the state stays sharded, so nothing would release this memory later
    const StreamGuard on_gather(comm.gather());
    gathered_.release();
    chunks_.clear();
    throw;
  }
  state_ = GroupState::kGathering;
}

void ParamGroup::issue_gather(CommContext& comm) {
  const StreamGuard on_gather(comm.gather());
  gathered_.materialize();
  if (!kept_.empty()) {
    std::vector<Tensor> outputs;
    for (const ShardedParameter& parameter : parameters_) {
      if (!parameter.aliases()) outputs.push_back(parameter.gathered());
    }
    gathered_.begin_fill();
    all_gather(kept_, std::move(outputs), *kept_group_);
  } else {
    if (cut_twice_) gather_among_replicas(comm);
    std::vector<Tensor> inputs;
    std::vector<Tensor> outputs;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      ShardedParameter& parameter = parameters_[i];
      parameter.note_gather();
      if (parameter.aliases()) continue;
      if (parameter.choice().extension) {
        gather_payload(comm, i);
        continue;
      }
      inputs.push_back(what_travels(comm, i));
      outputs.push_back(parameter.gathered());
    }
    gathered_.begin_fill();
    if (shard_group_) all_gather(std::move(inputs), std::move(outputs), *shard_group_);
  }
  gather_done_ = comm.gather().record("gathered");
}

// The tensor that this rank sends for a parameter. If local() cannot be sent directly, it is copied
// to its place in the gathered memory and sent from there.
Tensor ParamGroup::what_travels(CommContext& comm, std::size_t index) {
  const ShardedParameter& parameter = parameters_[index];
  const ParameterLayout& layout = parameter.layout();
  if (parameter.travels_as_it_is()) return parameter.padded_local();
  if (cut_twice_) return chunks_[index].slice(0, 0, layout.chunk_rows());
  const Tensor own = parameter.gathered_chunks(layout.rank(), 1);
  parameter.copy_local_to(own, comm.copies);
  return own;
}

void ParamGroup::all_gather(std::vector<Tensor> inputs, std::vector<Tensor> outputs,
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
    settings_.all_gather(group, inputs, outputs, name_);
  } else {
    distributed::all_gather(group, inputs, outputs, name_);
  }
}

// For groups sharded over both axes: gathers the chunk that the replicas share, in the compute
// dtype (for an extension, in the stored dtype). Once per step, and whenever shards were written
// since.
void ParamGroup::gather_among_replicas(CommContext& comm) {
  if (!chunks_.empty() && !is_stale()) return;
  chunks_.clear();
  std::vector<Tensor> inputs;
  std::vector<Tensor> outputs;
  for (const ShardedParameter& parameter : parameters_) {
    const ParameterLayout& layout = parameter.layout();
    const std::int64_t part = layout.padded_local_rows();
    const std::int64_t together = part * layout.replicas();
    const DType dtype =
        parameter.choice().extension ? parameter.parameter().dtype() : parameter.compute_dtype();
    const Tensor chunk = Tensor::empty_named(
        layout.front(layout.roomy_chunk_rows()), {.dtype = dtype, .device = mesh_.device()},
        MemoryCategory::kGathered, parameter.parameter().name() + ".chunk");
    if (together < chunk.dim(0)) fill_(chunk.slice(0, together, chunk.dim(0)), 0);
    const Tensor own = chunk.slice(0, part * layout.replica(), part * (layout.replica() + 1));
    parameter.copy_local_to(own, comm.copies);
    inputs.push_back(own);
    outputs.push_back(chunk.slice(0, 0, together));
    chunks_.push_back(chunk);
  }
  all_gather(std::move(inputs), std::move(outputs), *replica_group_);
}

// Sends the extension's own tensors, and builds all ranks' rows from the gathered ones. In a group
// that is sharded over both axes, the extension gets the chunk that the replicas share.
void ParamGroup::gather_payload(CommContext& comm, std::size_t index) {
  const ShardedParameter& parameter = parameters_[index];
  const ParameterLayout& layout = parameter.layout();
  GatherExtension& extension = *parameter.choice().extension;
  const MemoryCategoryScope category(MemoryCategory::kCommunication);
  const auto chunk = distributed::chunk_of(layout.rows(), layout.ranks(), layout.rank());
  const GatherExtension::GatherShard shard{
      .rows = cut_twice_ ? chunks_[index].slice(0, 0, chunk.padded_rows)
                         : layout.to_front(to_device(parameter.padded_local(), mesh_.device())),
      .ranks = layout.ranks(),
      .rank = layout.rank(),
      .real_rows = chunk.rows()};
  const std::vector<Tensor> payload = extension.pack(shard);
  std::vector<Tensor> gathered;
  for (const Tensor& part : payload) {
    gathered.push_back(Tensor::empty(part.shape().inserted(0, layout.ranks()), part.options()));
    comm.copies.extension += part.numel() * static_cast<std::int64_t>(dtype_size(part.dtype()));
  }
  if (shard_group_) {
    all_gather(payload, gathered, *shard_group_);
  } else {
    for (std::size_t i = 0; i < payload.size(); ++i) copy_(gathered[i].select(0, 0), payload[i]);
  }
  const Tensor rows = parameter.gathered_chunks(0, layout.ranks());
  extension.unpack(shard, gathered, rows);
  comm.copies.extension += rows.numel() * static_cast<std::int64_t>(dtype_size(rows.dtype()));
}

}  // namespace tessera::fsdp
