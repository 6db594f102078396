#include "tessera/distributed/collective_checks.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <tuple>

#include "tessera/distributed/resolved_collective.h"
#include "tessera/tensor/check.h"

namespace tessera::distributed {
namespace {

constexpr const char* kAllToAll = "all_to_all";

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

// "cpu", "cpu and cuda".
std::string carried(const ProcessGroup& group) {
  std::string out;
  if (group.carries(DeviceType::kCpu)) out = "cpu";
  if (group.carries(DeviceType::kCuda)) out += out.empty() ? "cuda" : " and cuda";
  return out.empty() ? "no device" : out;
}

std::int64_t bytes_to_peers(const ProcessGroup& group, const Collective& call) {
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    if (call.to[i].peer != group.rank()) bytes += bytes_of({call.inputs[i]});
  }
  return bytes;
}

// All tensors of one list, compared with the first of the call.
void check_members(const char* op, const std::vector<Tensor>& tensors, const Tensor& first,
                   const char* role) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& tensor = tensors[i];
    TESSERA_CHECK(tensor.defined(), op, "{} {} is an undefined tensor", role, i);
    TESSERA_CHECK(tensor.dtype() == first.dtype(), op,
                  "{} {} is {}, the first tensor is {}; one call takes one dtype", role, i,
                  dtype_name(tensor.dtype()), dtype_name(first.dtype()));
    TESSERA_CHECK(tensor.device() == first.device(), op,
                  "{} {} is on {}, the first tensor on {}; one call takes one device", role, i,
                  tensor.device().str(), first.device().str());
    TESSERA_CHECK(tensor.is_contiguous(), op,
                  "{} {} of shape {} is not contiguous; pass a contiguous copy", role, i,
                  tensor.shape().str());
  }
}

void check_reduction(const char* op, const ReduceOp& reduce, DType dtype) {
  TESSERA_CHECK(!reduce.needs_floating() || is_floating(dtype), op,
                "{} of {} tensors makes fractions: convert them to a floating dtype first",
                reduce.name(), dtype_name(dtype));
}

void check_peers(const char* op, const ProcessGroup& group,
                 const std::vector<PeerMessage>& messages) {
  for (const PeerMessage& message : messages) {
    TESSERA_CHECK(message.peer >= 0 && message.peer < group.size(), op,
                  "{} is not a rank of group \"{}\" of {}", message.peer, group.name(),
                  group.size());
  }
}

void check_rows(const char* role, const Tensor& tensor, std::size_t i, std::int64_t rows) {
  TESSERA_CHECK(tensor.ndim() >= 1, kAllToAll, "{} {} is a 0-d tensor; view it as [1]", role, i);
  TESSERA_CHECK(tensor.dim(0) == rows, kAllToAll,
                "{} {} of shape {} must have {} rows, the sum of the counts", role, i,
                tensor.shape().str(), rows);
}

// The memory of one tensor of a call: elements [begin, end) of a storage.
struct Stretch {
  std::uint64_t storage = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  bool is_output = false;
  std::size_t index = 0;  // in its list
};

std::vector<Stretch> stretches_of(const Collective& call) {
  std::vector<Stretch> out;
  const auto add = [&out](const std::vector<Tensor>& tensors, bool is_output) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const Tensor& x = tensors[i];
      if (x.numel() > 0)
        out.push_back({x.storage().id(), x.offset(), x.offset() + x.numel(), is_output, i});
    }
  };
  add(call.inputs, false);
  add(call.outputs, true);
  return out;
}

// In place: the small tensor is this rank's part of the large one, which no other rank accesses.
bool is_own_part(const ProcessGroup& group, const Collective& call, const Stretch& input,
                 const Stretch& output) {
  if (input.index != output.index) return false;
  switch (call.kind) {
    case CollectiveKind::kAllGather:
    case CollectiveKind::kGather:
      return input.begin == output.begin + group.rank() * (input.end - input.begin);
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kScatter:
      return output.begin == input.begin + group.rank() * (output.end - output.begin);
    default:
      return false;
  }
}

// Peers and transports read and write in any order.
void check_memory(const char* op, const ProcessGroup& group, const Collective& call) {
  std::vector<Stretch> stretches = stretches_of(call);
  std::sort(stretches.begin(), stretches.end(), [](const Stretch& a, const Stretch& b) {
    return std::tie(a.storage, a.begin) < std::tie(b.storage, b.begin);
  });
  std::vector<Stretch> open;  // those that reach beyond the beginning of the next
  for (const Stretch& next : stretches) {
    std::erase_if(open, [&next](const Stretch& before) {
      return before.storage != next.storage || before.end <= next.begin;
    });
    for (const Stretch& before : open) {
      const bool in_order =
          std::tie(before.is_output, before.index) < std::tie(next.is_output, next.index);
      const Stretch &a = in_order ? before : next, &b = in_order ? next : before;
      const bool only_read = !b.is_output && !is_in_place(call.kind);
      TESSERA_CHECK(only_read || (a.is_output != b.is_output && is_own_part(group, call, a, b)), op,
                    "{} {} and {} {} share memory; pass another tensor",
                    a.is_output ? "output" : "input", a.index, b.is_output ? "output" : "input",
                    b.index);
    }
    open.push_back(next);
  }
}

// What a rank sends itself it receives in the same call: no transport carries it.
void check_own_messages(const char* op, const ProcessGroup& group, const Collective& call) {
  const auto own = [&group](const std::vector<PeerMessage>& peers,
                            const std::vector<Tensor>& tensors) {
    std::vector<std::int64_t> counts;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (peers[i].peer == group.rank()) counts.push_back(tensors[i].numel());
    }
    return counts;
  };
  const std::vector<std::int64_t> sent = own(call.to, call.inputs),
                                  received = own(call.from, call.outputs);
  TESSERA_CHECK(sent == received, op,
                "rank {} sends itself tensors of [{}] elements and receives from itself [{}]; "
                "messages to oneself are sent and received in one call",
                group.rank(), fmt::join(sent, ", "), fmt::join(received, ", "));
}

}  // namespace

void check_call(const ProcessGroup& group, const Collective& call) {
  const char* op = collective_name(call);
  TESSERA_CHECK(call.root >= 0 && call.root < group.size(), op,
                "root {} is not a rank of group \"{}\" of {}", call.root, group.name(),
                group.size());
  check_peers(op, group, call.to);
  check_peers(op, group, call.from);
  const Tensor* first = first_tensor(call);
  if (first == nullptr) return;
  TESSERA_CHECK(first->defined(), op, "{} 0 is an undefined tensor",
                call.inputs.empty() ? "output" : "input");
  check_members(op, call.inputs, *first, "input");
  check_members(op, call.outputs, *first, "output");
  check_memory(op, group, call);
  if (call.kind == CollectiveKind::kExchange) check_own_messages(op, group, call);
  if (is_reduction(call.kind)) check_reduction(op, call.reduce, first->dtype());
  const Device device = first->device();
  TESSERA_CHECK(
      device.is_null() || group.carries(device.type), op,
      "these tensors are on {}, and group \"{}\" carries those of {} ({}): give the world a "
      "transport for {} too, or move them",
      device.str(), group.name(), carried(group), group.backend(), device.str());
}

void check_pairs(const char* op, int size, const PairedLists& lists) {
  const auto& [small, large, small_role, large_role] = lists;
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

void check_only_at_root(const char* op, const ProcessGroup& group, int root,
                        std::span<const Tensor> list, const char* role) {
  TESSERA_CHECK(group.rank() == root || list.empty(), op,
                "{} {}s on rank {}: only the root, rank {}, passes {}s", list.size(), role,
                group.rank(), root, role);
}

void check_counts(const char* role, const std::vector<std::int64_t>& counts, int size) {
  TESSERA_CHECK(static_cast<int>(counts.size()) == size, kAllToAll,
                "{} counts of rows {}; pass one for each of {} ranks", counts.size(), role, size);
  for (std::size_t r = 0; r < counts.size(); ++r) {
    TESSERA_CHECK(counts[r] >= 0, kAllToAll, "{} rows {} rank {}; a count is at least 0", counts[r],
                  role, r);
  }
}

std::vector<std::int64_t> check_row_members(std::span<const Tensor> inputs,
                                            std::span<const Tensor> outputs,
                                            const std::vector<std::int64_t>& sent,
                                            const std::vector<std::int64_t>& received) {
  std::vector<std::int64_t> elements;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    elements.push_back(0);
    if (!inputs[i].defined() || !outputs[i].defined()) continue;  // reported by check_members
    check_rows("input", inputs[i], i, sum_of(sent));
    check_rows("output", outputs[i], i, sum_of(received));
    const Shape row = inputs[i].shape().with(0, 1);
    TESSERA_CHECK(row == outputs[i].shape().with(0, 1), kAllToAll,
                  "input {} of shape {} and output {} of shape {} must agree in all dims but the "
                  "first",
                  i, inputs[i].shape().str(), i, outputs[i].shape().str());
    elements.back() = row.numel();
  }
  return elements;
}

std::int64_t bytes_sent(const ProcessGroup& group, const Collective& call) {
  const std::int64_t peers = group.size() - 1;
  const bool is_root = group.rank() == call.root;
  switch (call.kind) {
    case CollectiveKind::kAllGather:
    case CollectiveKind::kAllReduce:
      return peers * bytes_of(call.inputs);
    case CollectiveKind::kReduceScatter:
      return bytes_of(call.inputs) / group.size() * peers;
    case CollectiveKind::kAllToAll:
      return bytes_to_others(group, call);
    case CollectiveKind::kBroadcast:
      return is_root ? peers * bytes_of(call.inputs) : 0;
    case CollectiveKind::kReduce:
    case CollectiveKind::kGather:
      return is_root ? 0 : bytes_of(call.inputs);
    case CollectiveKind::kScatter:
      return bytes_of(call.inputs) / group.size() * peers;
    case CollectiveKind::kExchange:
      return bytes_to_peers(group, call);
    case CollectiveKind::kBarrier:
      return 0;
  }
  return 0;
}

}  // namespace tessera::distributed
