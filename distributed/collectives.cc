#include "tessera/distributed/collectives.h"

#include <algorithm>
#include <utility>

#include "tessera/distributed/collective_checks.h"
#include "tessera/distributed/resolved_collective.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tensor/trace.h"

namespace tessera::distributed {
namespace {

constexpr const char* kAllToAll = "all_to_all";

CollectiveCounters& thread_counters() {
  thread_local CollectiveCounters counters;
  return counters;
}

CollectiveRecord make_record(const ProcessGroup& group, const Collective& call,
                             std::int64_t bytes) {
  CollectiveRecord record;
  record.op = collective_name(call);
  record.group = group.name();
  record.group_size = group.size();
  record.ranks = group.ranks();
  record.sequence = call.sequence;
  record.bytes_sent = bytes;
  record.stream = current_stream(collective_device(call)).id();
  record.label = call.label.text;
  if (is_reduction(call.kind)) record.reduction = call.reduce.name();
  if (const Tensor* first = first_tensor(call)) record.dtype = first->dtype();
  const std::vector<Tensor>& outputs = is_in_place(call.kind) ? call.inputs : call.outputs;
  const auto elements = [](const std::vector<Tensor>& tensors, std::size_t i) {
    return i < tensors.size() ? tensors[i].numel() : 0;
  };
  for (std::size_t i = 0; i < std::max(call.inputs.size(), outputs.size()); ++i)
    record.members.push_back({elements(call.inputs, i), elements(outputs, i)});
  return record;
}

Work issue(ProcessGroup& group, Collective call) {
  check_call(group, call);
  const std::int64_t bytes = bytes_sent(group, call);
  if (call.kind != CollectiveKind::kExchange) call.sequence = group.next_sequence();
  call.ticket = record_flight({.group = group.name(),
                               .op = collective_name(call),
                               .label = call.label.text,
                               .sequence = call.sequence,
                               .bytes_sent = bytes});
  // One rank alone communicates nothing.
  if (group.size() > 1) ++thread_counters().collectives;
  thread_counters().bytes_sent += bytes;
  if (ExecutionTrace* trace = active_trace()) trace->add(make_record(group, call, bytes));
  group.run(call);
  return {current_stream(collective_device(call)), site_of(group, call)};
}

std::vector<Tensor> listed(std::span<const Tensor> tensors) {
  return std::vector<Tensor>(tensors.begin(), tensors.end());
}

}  // namespace

Work all_gather(ProcessGroup& group, std::span<const Tensor> inputs,
                std::span<const Tensor> outputs, const Label& label) {
  check_pairs("all_gather", group.size(), {inputs, outputs, "input", "output"});
  return issue(group, {.kind = CollectiveKind::kAllGather,
                       .inputs = listed(inputs),
                       .outputs = listed(outputs),
                       .label = label});
}

Work reduce_scatter(ProcessGroup& group, std::span<const Tensor> inputs,
                    std::span<const Tensor> outputs, ReduceOp op, const Label& label) {
  check_pairs("reduce_scatter", group.size(), {outputs, inputs, "output", "input"});
  return issue(group, {.kind = CollectiveKind::kReduceScatter,
                       .reduce = op,
                       .inputs = listed(inputs),
                       .outputs = listed(outputs),
                       .label = label});
}

Work all_reduce(ProcessGroup& group, std::span<const Tensor> tensors, ReduceOp op,
                const Label& label) {
  return issue(group, {.kind = CollectiveKind::kAllReduce,
                       .reduce = op,
                       .inputs = listed(tensors),
                       .label = label});
}

Work all_to_all(ProcessGroup& group, std::span<const Tensor> inputs,
                std::span<const Tensor> outputs, const Label& label) {
  const std::int64_t size = group.size();
  check_pairs(kAllToAll, 1, {inputs, outputs, "input", "output"});
  std::vector<std::int64_t> elements;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const std::int64_t count = inputs[i].defined() ? inputs[i].numel() : 0;
    TESSERA_CHECK(count % size == 0, kAllToAll,
                  "input {} of shape {} cannot be cut in {} equal parts; pass counts of rows", i,
                  inputs[i].shape().str(), size);
    elements.push_back(count / size);
  }
  const std::vector<std::int64_t> ones(static_cast<std::size_t>(size), 1);
  return issue(group, {.kind = CollectiveKind::kAllToAll,
                       .inputs = listed(inputs),
                       .outputs = listed(outputs),
                       .rows_sent = ones,
                       .rows_received = ones,
                       .row_elements = std::move(elements),
                       .label = label});
}

Work all_to_all(ProcessGroup& group, std::span<const Tensor> inputs,
                std::span<const Tensor> outputs, const RowCounts& rows, const Label& label) {
  TESSERA_CHECK(inputs.size() == outputs.size(), kAllToAll,
                "{} inputs but {} outputs; pass one for each", inputs.size(), outputs.size());
  check_counts("to", rows.sent, group.size());
  check_counts("from", rows.received, group.size());
  return issue(group, {.kind = CollectiveKind::kAllToAll,
                       .inputs = listed(inputs),
                       .outputs = listed(outputs),
                       .rows_sent = rows.sent,
                       .rows_received = rows.received,
                       .row_elements = check_row_members(inputs, outputs, rows.sent, rows.received),
                       .label = label});
}

Work broadcast(ProcessGroup& group, std::span<const Tensor> tensors, int root, const Label& label) {
  return issue(group, {.kind = CollectiveKind::kBroadcast,
                       .root = root,
                       .inputs = listed(tensors),
                       .label = label});
}

Work reduce(ProcessGroup& group, std::span<const Tensor> tensors, int root, ReduceOp op,
            const Label& label) {
  return issue(group, {.kind = CollectiveKind::kReduce,
                       .reduce = op,
                       .root = root,
                       .inputs = listed(tensors),
                       .label = label});
}

Work gather(ProcessGroup& group, std::span<const Tensor> inputs, std::span<const Tensor> outputs,
            int root, const Label& label) {
  check_only_at_root("gather", group, root, outputs, "output");
  if (group.rank() == root) {
    check_pairs("gather", group.size(), {inputs, outputs, "input", "output"});
  }
  return issue(group, {.kind = CollectiveKind::kGather,
                       .root = root,
                       .inputs = listed(inputs),
                       .outputs = listed(outputs),
                       .label = label});
}

Work scatter(ProcessGroup& group, std::span<const Tensor> inputs, std::span<const Tensor> outputs,
             int root, const Label& label) {
  check_only_at_root("scatter", group, root, inputs, "input");
  if (group.rank() == root) {
    check_pairs("scatter", group.size(), {outputs, inputs, "output", "input"});
  }
  return issue(group, {.kind = CollectiveKind::kScatter,
                       .root = root,
                       .inputs = listed(inputs),
                       .outputs = listed(outputs),
                       .label = label});
}

Work exchange(ProcessGroup& group, std::span<const PeerTensor> sends,
              std::span<const PeerTensor> receives, const Label& label) {
  Collective call{.kind = CollectiveKind::kExchange, .label = label};
  for (const PeerTensor& each : sends) {
    call.inputs.push_back(each.tensor);
    call.to.push_back({.peer = each.peer});
  }
  for (const PeerTensor& each : receives) {
    call.outputs.push_back(each.tensor);
    call.from.push_back({.peer = each.peer});
  }
  check_call(group, call);  // before anything is counted
  for (PeerMessage& message : call.to)
    message.place = group.next_place(call.channel, message.peer, true);
  for (PeerMessage& message : call.from)
    message.place = group.next_place(call.channel, message.peer, false);
  return issue(group, std::move(call));
}

namespace {

std::vector<PeerTensor> with_peer(std::span<const Tensor> tensors, int peer) {
  std::vector<PeerTensor> out;
  for (const Tensor& tensor : tensors) out.push_back({peer, tensor});
  return out;
}

}  // namespace

Work send(ProcessGroup& group, std::span<const Tensor> tensors, int to, const Label& label) {
  return exchange(group, with_peer(tensors, to), {}, label);
}

Work recv(ProcessGroup& group, std::span<const Tensor> tensors, int from, const Label& label) {
  return exchange(group, {}, with_peer(tensors, from), label);
}

std::shared_ptr<ProcessGroup> split(ProcessGroup& group, int color, int key,
                                    const std::string& name) {
  const Tensor mine = Tensor::from_vector<std::int64_t>({color, key}, {1, 2}, kCpu);
  const Tensor all = Tensor::empty({group.size(), 2}, {.dtype = DType::kI64, .device = kCpu});
  all_gather(group, std::span(&mine, 1), std::span(&all, 1), "split");
  const std::vector<std::int64_t> values = all.to_vector<std::int64_t>();
  if (color < 0) return nullptr;
  std::vector<std::pair<std::int64_t, int>> keyed;
  for (int rank = 0; rank < group.size(); ++rank) {
    const auto at = static_cast<std::size_t>(rank) * 2;
    if (values[at] == color) keyed.emplace_back(values[at + 1], rank);
  }
  std::sort(keyed.begin(), keyed.end());
  std::vector<int> members;
  for (const auto& [ignored, rank] : keyed) members.push_back(rank);
  return group.subgroup(members, name);
}

void barrier(ProcessGroup& group, const Label& label) {
  issue(group, {.kind = CollectiveKind::kBarrier, .label = label});
  current_stream(kCpu).synchronize();
}

CollectiveCounters collective_counters() { return thread_counters(); }

}  // namespace tessera::distributed
