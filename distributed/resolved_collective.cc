#include "tessera/distributed/resolved_collective.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "tessera/tensor/check.h"
#include "tessera/tensor/kernels/resolve.h"

namespace tessera::distributed {
namespace {

std::byte* writable(const Tensor& tensor, const char* op) {
  // A storage that is filling belongs to the caller, which refills it: this is no overwrite.
  const bool filling = tensor.storage().state() == StorageState::kFilling;
  const View view = filling ? fill_view(tensor) : overwrite(tensor, op);
  return view.as<std::byte>();
}

// So does an input that is this rank's part of an output which is filling.
const std::byte* readable(const Tensor& input, const Tensor* output) {
  const bool filling = output != nullptr && input.storage() == output->storage() &&
                       input.storage().state() == StorageState::kFilling;
  if (filling) return fill_view(input).as<std::byte>();
  return read(input).as<std::byte>();
}

ResolvedMember resolve_in_place(const Tensor& tensor, const char* op, bool only_read) {
  ResolvedMember member{.count_in = tensor.numel(), .count_out = tensor.numel()};
  if (only_read) {
    member.input = read(tensor).as<std::byte>();
  } else {
    member.output = writable(tensor, op);
    member.input = member.output;
  }
  return member;
}

void mix(std::uint64_t& hash, std::uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15ULL;
  hash ^= hash >> 29;
}

std::string failure_text(const ResolvedCollective& call, const std::string& what) {
  return error_text(call.site.op, fmt::format("{} {}", call.str(), what));
}

}  // namespace

std::string ResolvedCollective::str() const { return site_text(site); }

std::uint64_t ResolvedCollective::fingerprint() const {
  std::uint64_t hash = 0x7E55E7A;
  mix(hash, static_cast<std::uint64_t>(kind));
  mix(hash, static_cast<std::uint64_t>(reduce.kind));
  mix(hash, std::bit_cast<std::uint64_t>(reduce.factor));
  mix(hash, static_cast<std::uint64_t>(root));
  mix(hash, static_cast<std::uint64_t>(dtype));
  mix(hash, static_cast<std::uint64_t>(device.type));
  for (const ResolvedMember& member : members) {
    if (kind == CollectiveKind::kAllToAll) {
      mix(hash, static_cast<std::uint64_t>(member.row_elements));
      continue;
    }
    mix(hash, static_cast<std::uint64_t>(member.count_in));
    mix(hash, static_cast<std::uint64_t>(member.count_out));
  }
  return hash;
}

std::string ResolvedCollective::terms() const {
  std::int64_t elements = 0;
  for (const ResolvedMember& member : members) elements += member.count_in;
  const std::string label = site.label.empty() ? "" : fmt::format(" ({})", site.label);
  std::string how;
  if (is_reduction(kind)) how += fmt::format(" by {}", reduce.name());
  const bool from_root = kind == CollectiveKind::kBroadcast || kind == CollectiveKind::kScatter;
  if (has_root(kind)) how += fmt::format(" {} rank {}", from_root ? "from" : "to", root);
  return fmt::format("{}{}{} of {}{}, {} members, {} elements", site.op, label, how,
                     dtype_name(dtype), device.is_cpu() ? "" : " on " + device.str(),
                     members.size(), elements);
}

std::string row_mismatch(const ResolvedCollective& here, const ResolvedCollective& there,
                         std::span<const int> ranks) {
  if (here.kind != CollectiveKind::kAllToAll) return {};
  const auto compare = [ranks](const ResolvedCollective& from, const ResolvedCollective& to) {
    const auto sender = static_cast<std::size_t>(from.site.rank);
    const auto receiver = static_cast<std::size_t>(to.site.rank);
    const std::int64_t sent = from.rows_sent[receiver];
    const std::int64_t expected = to.rows_received[sender];
    if (sent == expected) return std::string();
    return fmt::format("rank {} sends {} rows to rank {}, which expects {}", ranks[sender], sent,
                       ranks[receiver], expected);
  };
  const std::string out = compare(here, there);
  return out.empty() ? compare(there, here) : out;
}

bool is_reduction(CollectiveKind kind) {
  return kind == CollectiveKind::kReduceScatter || kind == CollectiveKind::kAllReduce ||
         kind == CollectiveKind::kReduce;
}

bool has_root(CollectiveKind kind) {
  return kind == CollectiveKind::kBroadcast || kind == CollectiveKind::kReduce ||
         kind == CollectiveKind::kGather || kind == CollectiveKind::kScatter;
}

bool is_in_place(CollectiveKind kind) {
  return kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kBroadcast ||
         kind == CollectiveKind::kReduce;
}

const Tensor* first_tensor(const Collective& call) {
  if (!call.inputs.empty()) return &call.inputs.front();
  return call.outputs.empty() ? nullptr : &call.outputs.front();
}

Device collective_device(const Collective& call) {
  const Tensor* first = first_tensor(call);
  return first == nullptr ? kCpu : first->device();
}

CollectiveSite site_of(const ProcessGroup& group, const Collective& call) {
  return {.rank = group.rank(),
          .group = group.name(),
          .op = collective_name(call),
          .sequence = call.sequence,
          .label = call.label.text};
}

namespace {

// Member i of a call whose lists may be missing here (a root's).
ResolvedMember resolve_member(const ProcessGroup& group, const Collective& call, const char* op,
                              std::size_t i) {
  if (is_in_place(call.kind)) {
    const bool only_read = call.kind == CollectiveKind::kBroadcast
                               ? call.root == group.rank()
                               : call.kind == CollectiveKind::kReduce && call.root != group.rank();
    return resolve_in_place(call.inputs[i], op, only_read);
  }
  ResolvedMember member{.row_elements = call.row_elements.empty() ? 0 : call.row_elements[i]};
  if (i < call.inputs.size()) {
    member.input = readable(call.inputs[i], i < call.outputs.size() ? &call.outputs[i] : nullptr);
    member.count_in = call.inputs[i].numel();
  }
  if (i < call.outputs.size()) {
    member.output = writable(call.outputs[i], op);
    member.count_out = call.outputs[i].numel();
  }
  // The tensor that only the root holds consists of one part for each rank.
  if (call.kind == CollectiveKind::kGather) member.count_out = member.count_in * group.size();
  if (call.kind == CollectiveKind::kScatter) member.count_in = member.count_out * group.size();
  return member;
}

void resolve_messages(const Collective& call, const char* op, ResolvedCollective& out) {
  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    // Only ever sent from: one pointer type serves both directions.
    auto* data = const_cast<std::byte*>(read(call.inputs[i]).as<std::byte>());
    out.sends.push_back({call.to[i].peer, call.to[i].place, data, call.inputs[i].numel()});
  }
  for (std::size_t i = 0; i < call.outputs.size(); ++i) {
    out.receives.push_back({call.from[i].peer, call.from[i].place, writable(call.outputs[i], op),
                            call.outputs[i].numel()});
  }
}

}  // namespace

ResolvedCollective resolve(const ProcessGroup& group, const Collective& call) {
  const char* op = collective_name(call);
  ResolvedCollective out{.kind = call.kind,
                         .reduce = call.reduce,
                         .root = call.root,
                         .device = collective_device(call),
                         .rows_sent = call.rows_sent,
                         .rows_received = call.rows_received,
                         .channel = call.channel,
                         .site = site_of(group, call),
                         .ticket = call.ticket};
  const Tensor* first = first_tensor(call);
  if (first != nullptr) out.dtype = first->dtype();
  if (call.kind == CollectiveKind::kExchange) {
    resolve_messages(call, op, out);
    return out;
  }
  const std::size_t members = std::max(call.inputs.size(), call.outputs.size());
  out.members.reserve(members);
  for (std::size_t i = 0; i < members; ++i)
    out.members.push_back(resolve_member(group, call, op, i));
  return out;
}

std::string ranks_text(std::span<const int> ranks) {
  constexpr std::size_t kShown = 16;
  std::string out = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size() && i < kShown; ++i) {
    if (i > 0) out += ", ";
    out += std::to_string(ranks[i]);
  }
  if (ranks.size() > kShown) out += fmt::format(" and {} more", ranks.size() - kShown);
  return out;
}

void throw_aborted(const ResolvedCollective& call, const std::string& what) {
  throw CollectiveAborted(failure_text(call, what), call.site);
}
std::string needs_rank_that_left(int world_rank) {
  return fmt::format(
      "needs rank {}, which has left the group; all ranks make this call, also where only one uses "
      "the result; if its data ran out before the others', fsdp::UnevenInputs lets all ranks end "
      "together",
      world_rank);
}

void throw_collective_error(const ResolvedCollective& call, const std::string& what) {
  throw CollectiveError(failure_text(call, what), call.site);
}
void throw_timeout(const ResolvedCollective& call, const std::string& what) {
  throw TimeoutError(failure_text(call, what));
}

}  // namespace tessera::distributed
