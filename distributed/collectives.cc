#include "tessera/distributed/collectives.h"

#include <numeric>
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

std::int64_t sum_of(const std::vector<std::int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

// Of an all_to_all.
std::int64_t bytes_to_others(const ProcessGroup& group, const Collective& call) {
  if (call.inputs.empty()) return 0;
  const std::int64_t rows =
      sum_of(call.rows_sent) - call.rows_sent[static_cast<std::size_t>(group.rank())];
  return rows * sum_of(call.row_elements) *
         static_cast<std::int64_t>(dtype_size(call.inputs.front().dtype()));
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
    case CollectiveKind::kAllToAll:
      return bytes_to_others(group, call);
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

constexpr const char* kAllToAll = "all_to_all";

void check_counts(const char* role, const std::vector<std::int64_t>& counts, int size) {
  TESSERA_CHECK(static_cast<int>(counts.size()) == size, kAllToAll,
                "{} counts of rows {}; pass one for each of {} ranks", counts.size(), role, size);
  for (std::size_t r = 0; r < counts.size(); ++r) {
    TESSERA_CHECK(counts[r] >= 0, kAllToAll, "{} rows {} rank {}; a count is at least 0", counts[r],
                  role, r);
  }
}

void check_rows(const char* role, const Tensor& tensor, std::size_t i, std::int64_t rows) {
  TESSERA_CHECK(tensor.ndim() >= 1, kAllToAll, "{} {} is a 0-d tensor; view it as [1]", role, i);
  TESSERA_CHECK(tensor.dim(0) == rows, kAllToAll,
                "{} {} of shape {} must have {} rows, the sum of the counts", role, i,
                tensor.shape().str(), rows);
}

// Elements of a row of each member.
std::vector<std::int64_t> check_row_members(std::span<const Tensor> inputs,
                                            std::span<const Tensor> outputs,
                                            const RowCounts& rows) {
  std::vector<std::int64_t> elements;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    elements.push_back(0);
    if (!inputs[i].defined() || !outputs[i].defined()) continue;  // reported by check_members
    check_rows("input", inputs[i], i, sum_of(rows.sent));
    check_rows("output", outputs[i], i, sum_of(rows.received));
    const Shape row = inputs[i].shape().with(0, 1);
    TESSERA_CHECK(row == outputs[i].shape().with(0, 1), kAllToAll,
                  "input {} of shape {} and output {} of shape {} must agree in all dims but the "
                  "first",
                  i, inputs[i].shape().str(), i, outputs[i].shape().str());
    elements.back() = row.numel();
  }
  return elements;
}

bool share_memory(const Tensor& a, const Tensor& b) {
  if (!a.defined() || !b.defined() || a.dtype() != b.dtype()) return false;
  return a.storage() == b.storage() && a.offset() < b.offset() + b.numel() &&
         b.offset() < a.offset() + a.numel();
}

// A part is read by its receiver while this rank's output is written.
void check_apart(std::span<const Tensor> inputs, std::span<const Tensor> outputs) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    for (std::size_t j = 0; j < outputs.size(); ++j) {
      TESSERA_CHECK(!share_memory(inputs[i], outputs[j]), kAllToAll,
                    "input {} and output {} share memory; pass another output", i, j);
    }
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

void all_to_all(ProcessGroup& group, std::span<const Tensor> inputs,
                std::span<const Tensor> outputs, const std::string& label) {
  const std::int64_t size = group.size();
  check_pairs(kAllToAll, 1, inputs, outputs, "input", "output");
  check_apart(inputs, outputs);
  std::vector<std::int64_t> elements;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const std::int64_t count = inputs[i].defined() ? inputs[i].numel() : 0;
    TESSERA_CHECK(count % size == 0, kAllToAll,
                  "input {} of shape {} cannot be cut in {} equal parts; pass counts of rows", i,
                  inputs[i].shape().str(), size);
    elements.push_back(count / size);
  }
  const std::vector<std::int64_t> ones(static_cast<std::size_t>(size), 1);
  issue(group, {.kind = CollectiveKind::kAllToAll,
                .inputs = listed(inputs),
                .outputs = listed(outputs),
                .rows_sent = ones,
                .rows_received = ones,
                .row_elements = std::move(elements),
                .label = label});
}

void all_to_all(ProcessGroup& group, std::span<const Tensor> inputs,
                std::span<const Tensor> outputs, const RowCounts& rows, const std::string& label) {
  TESSERA_CHECK(inputs.size() == outputs.size(), kAllToAll,
                "{} inputs but {} outputs; pass one for each", inputs.size(), outputs.size());
  check_counts("to", rows.sent, group.size());
  check_counts("from", rows.received, group.size());
  check_apart(inputs, outputs);
  issue(group, {.kind = CollectiveKind::kAllToAll,
                .inputs = listed(inputs),
                .outputs = listed(outputs),
                .rows_sent = rows.sent,
                .rows_received = rows.received,
                .row_elements = check_row_members(inputs, outputs, rows),
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
