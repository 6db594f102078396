#include "tessera/distributed/collectives.h"

#include <utility>

#include "tessera/distributed/resolved_collective.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tensor/trace.h"

namespace tessera::distributed {
namespace {

CollectiveCounters& thread_counters() {
  thread_local CollectiveCounters counters;
  return counters;
}

std::int64_t bytes_of(const std::vector<Tensor>& tensors) {
  std::int64_t bytes = 0;
  for (const Tensor& tensor : tensors)
    bytes += tensor.numel() * static_cast<std::int64_t>(dtype_size(tensor.dtype()));
  return bytes;
}

std::int64_t bytes_sent(const ProcessGroup& group, const Collective& call) {
  const std::int64_t bytes = bytes_of(call.inputs);
  const std::int64_t peers = group.size() - 1;
  switch (call.kind) {
    case CollectiveKind::kAllGather:
    case CollectiveKind::kAllReduce:
      return peers * bytes;
    case CollectiveKind::kReduceScatter:
      return bytes / group.size() * peers;
    case CollectiveKind::kBroadcast:
      return group.rank() == call.root ? peers * bytes : 0;
    case CollectiveKind::kBarrier:
      return 0;
  }
  return 0;
}

// All tensors of one list, compared with the first of the call.
void check_members(const char* op, const std::vector<Tensor>& tensors, const Tensor& first,
                   const char* role) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& tensor = tensors[i];
    TESSERA_CHECK(tensor.defined(), op, "{} {} is an undefined tensor", role, i);
    TESSERA_CHECK(tensor.dtype() == first.dtype(), op,
                  "{} {} is {}, input 0 is {}; one call takes one dtype", role, i,
                  dtype_name(tensor.dtype()), dtype_name(first.dtype()));
    TESSERA_CHECK(tensor.device() == first.device(), op,
                  "{} {} is on {}, input 0 on {}; one call takes one device", role, i,
                  tensor.device().str(), first.device().str());
    TESSERA_CHECK(tensor.is_contiguous(), op,
                  "{} {} of shape {} is not contiguous; pass a contiguous copy", role, i,
                  tensor.shape().str());
  }
}

void check_call(const ProcessGroup& group, const Collective& call) {
  const char* op = collective_name(call.kind);
  if (call.inputs.empty()) return;
  TESSERA_CHECK(call.inputs.front().defined(), op, "input 0 is an undefined tensor");
  check_members(op, call.inputs, call.inputs.front(), "input");
  check_members(op, call.outputs, call.inputs.front(), "output");
  const bool reduces =
      call.kind == CollectiveKind::kReduceScatter || call.kind == CollectiveKind::kAllReduce;
  TESSERA_CHECK(!reduces || call.inputs.front().dtype() != DType::kU8, op,
                "u8 tensors cannot be reduced; convert them to i64 first");
  TESSERA_CHECK(call.root >= 0 && call.root < group.size(), op,
                "root {} is not a rank of group \"{}\" of {}", call.root, group.name(),
                group.size());
}

// outputs[i] is `factor` times as large as inputs[i].
void check_pairs(const char* op, int size, std::span<const Tensor> small,
                 std::span<const Tensor> large, const char* small_role, const char* large_role) {
  TESSERA_CHECK(small.size() == large.size(), op, "{} {}s but {} {}s; pass one for each",
                small.size(), small_role, large.size(), large_role);
  for (std::size_t i = 0; i < small.size(); ++i) {
    if (!small[i].defined() || !large[i].defined()) continue;  // reported by check_members
    TESSERA_CHECK(small[i].numel() * size == large[i].numel(), op,
                  "{} {} of shape {} must have {} times the elements of {} {} of shape {}",
                  large_role, i, large[i].shape().str(), size, small_role, i,
                  small[i].shape().str());
  }
}

CollectiveRecord make_record(const ProcessGroup& group, const Collective& call,
                             std::int64_t bytes) {
  CollectiveRecord record;
  record.op = collective_name(call.kind);
  record.group = group.name();
  record.group_size = group.size();
  record.sequence = call.sequence;
  record.bytes_sent = bytes;
  record.stream = current_stream(collective_device(call)).id();
  record.label = call.label;
  if (call.kind == CollectiveKind::kReduceScatter || call.kind == CollectiveKind::kAllReduce)
    record.reduction = reduce_op_name(call.reduce);
  if (!call.inputs.empty()) record.dtype = call.inputs.front().dtype();
  const std::vector<Tensor>& outputs = call.outputs.empty() ? call.inputs : call.outputs;
  for (std::size_t i = 0; i < call.inputs.size(); ++i)
    record.members.push_back({call.inputs[i].numel(), outputs[i].numel()});
  return record;
}

void issue(ProcessGroup& group, Collective call) {
  check_call(group, call);
  const std::int64_t bytes = bytes_sent(group, call);
  call.sequence = group.next_sequence();
  call.ticket = record_flight({.group = group.name(),
                               .op = collective_name(call.kind),
                               .label = call.label,
                               .sequence = call.sequence,
                               .bytes_sent = bytes});
  ++thread_counters().collectives;
  thread_counters().bytes_sent += bytes;
  if (Trace* trace = active_trace()) trace->add(make_record(group, call, bytes));
  group.run(call);
}

std::vector<Tensor> listed(std::span<const Tensor> tensors) {
  return std::vector<Tensor>(tensors.begin(), tensors.end());
}

}  // namespace

void all_gather(ProcessGroup& group, std::span<const Tensor> inputs,
                std::span<const Tensor> outputs, const std::string& label) {
  check_pairs("all_gather", group.size(), inputs, outputs, "input", "output");
  issue(group, {.kind = CollectiveKind::kAllGather,
                .inputs = listed(inputs),
                .outputs = listed(outputs),
                .label = label});
}

void reduce_scatter(ProcessGroup& group, std::span<const Tensor> inputs,
                    std::span<const Tensor> outputs, ReduceOp op, const std::string& label) {
  check_pairs("reduce_scatter", group.size(), outputs, inputs, "output", "input");
  issue(group, {.kind = CollectiveKind::kReduceScatter,
                .reduce = op,
                .inputs = listed(inputs),
                .outputs = listed(outputs),
                .label = label});
}

void all_reduce(ProcessGroup& group, std::span<const Tensor> tensors, ReduceOp op,
                const std::string& label) {
  issue(group, {.kind = CollectiveKind::kAllReduce,
                .reduce = op,
                .inputs = listed(tensors),
                .label = label});
}

void broadcast(ProcessGroup& group, std::span<const Tensor> tensors, int root,
               const std::string& label) {
  issue(group, {.kind = CollectiveKind::kBroadcast,
                .root = root,
                .inputs = listed(tensors),
                .label = label});
}

void barrier(ProcessGroup& group, const std::string& label) {
  issue(group, {.kind = CollectiveKind::kBarrier, .label = label});
  current_stream(kCpu).synchronize();
}

CollectiveCounters collective_counters() { return thread_counters(); }

}  // namespace tessera::distributed
