#include "tessera/distributed/resolved_collective.h"

#include <fmt/format.h>

#include "tessera/tensor/check.h"
#include "tessera/tensor/kernels/resolve.h"

namespace tessera::distributed {
namespace {

std::byte* writable(const Tensor& tensor, const char* op) {
  // A storage that is filling belongs to the caller, who refills it: that is no overwrite.
  const bool filling = tensor.storage().state() == StorageState::kFilling;
  const View view = filling ? fill_view(tensor) : overwrite(tensor, op);
  return view.as<std::byte>();
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

std::string ResolvedCollective::str() const {
  const std::string label = site.label.empty() ? "" : fmt::format(" ({})", site.label);
  return fmt::format("{} #{}{} of group \"{}\"", site.op, site.sequence, label, site.group);
}

std::uint64_t ResolvedCollective::fingerprint() const {
  std::uint64_t hash = 0x7E55E7A;
  mix(hash, static_cast<std::uint64_t>(kind));
  mix(hash, static_cast<std::uint64_t>(reduce));
  mix(hash, static_cast<std::uint64_t>(root));
  mix(hash, static_cast<std::uint64_t>(dtype));
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
  const std::string how =
      kind == CollectiveKind::kReduceScatter || kind == CollectiveKind::kAllReduce
          ? fmt::format(" by {}", reduce_op_name(reduce))
      : kind == CollectiveKind::kBroadcast ? fmt::format(" from rank {}", root)
                                           : "";
  return fmt::format("{}{}{} of {}, {} members, {} elements", site.op, label, how,
                     dtype_name(dtype), members.size(), elements);
}

std::string row_mismatch(const ResolvedCollective& here, const ResolvedCollective& there) {
  if (here.kind != CollectiveKind::kAllToAll) return {};
  const auto compare = [](const ResolvedCollective& from, const ResolvedCollective& to) {
    const std::int64_t sent = from.rows_sent[static_cast<std::size_t>(to.site.rank)];
    const std::int64_t expected = to.rows_received[static_cast<std::size_t>(from.site.rank)];
    if (sent == expected) return std::string();
    return fmt::format("rank {} sends {} rows to rank {}, which expects {}", from.site.rank, sent,
                       to.site.rank, expected);
  };
  const std::string out = compare(here, there);
  return out.empty() ? compare(there, here) : out;
}

Device collective_device(const Collective& call) {
  if (!call.inputs.empty()) return call.inputs.front().device();
  return kCpu;
}

ResolvedCollective resolve(const ProcessGroup& group, const Collective& call) {
  const char* op = collective_name(call.kind);
  const Device device = collective_device(call);
  TESSERA_CHECK(device.is_cpu(), op, "group \"{}\" carries cpu tensors, these are on {}",
                group.name(), device.str());
  ResolvedCollective out{.kind = call.kind,
                         .reduce = call.reduce,
                         .root = call.root,
                         .rows_sent = call.rows_sent,
                         .rows_received = call.rows_received,
                         .site = {.rank = group.rank(),
                                  .group = group.name(),
                                  .op = op,
                                  .sequence = call.sequence,
                                  .label = call.label},
                         .ticket = call.ticket};
  if (!call.inputs.empty()) out.dtype = call.inputs.front().dtype();
  out.members.reserve(call.inputs.size());
  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    if (call.outputs.empty()) {
      const bool only_read = call.kind == CollectiveKind::kBroadcast && call.root == group.rank();
      out.members.push_back(resolve_in_place(call.inputs[i], op, only_read));
    } else {
      out.members.push_back({.input = read(call.inputs[i]).as<std::byte>(),
                             .output = writable(call.outputs[i], op),
                             .count_in = call.inputs[i].numel(),
                             .count_out = call.outputs[i].numel(),
                             .row_elements = call.row_elements.empty() ? 0 : call.row_elements[i]});
    }
  }
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
void throw_collective_error(const ResolvedCollective& call, const std::string& what) {
  throw CollectiveError(failure_text(call, what), call.site);
}
void throw_timeout(const ResolvedCollective& call, const std::string& what) {
  throw TimeoutError(failure_text(call, what));
}

}  // namespace tessera::distributed
