#include "tessera/distributed/process_group.h"

#include <algorithm>
#include <set>
#include <utility>

#include "tessera/tensor/check.h"

namespace tessera::distributed {

const char* collective_name(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllGather:
      return "all_gather";
    case CollectiveKind::kReduceScatter:
      return "reduce_scatter";
    case CollectiveKind::kAllReduce:
      return "all_reduce";
    case CollectiveKind::kAllToAll:
      return "all_to_all";
    case CollectiveKind::kBroadcast:
      return "broadcast";
    case CollectiveKind::kReduce:
      return "reduce";
    case CollectiveKind::kGather:
      return "gather";
    case CollectiveKind::kScatter:
      return "scatter";
    case CollectiveKind::kExchange:
      return "exchange";
    case CollectiveKind::kBarrier:
      return "barrier";
  }
  return "?";
}

const char* collective_name(const Collective& call) {
  if (call.kind != CollectiveKind::kExchange) return collective_name(call.kind);
  if (call.outputs.empty()) return "send";
  return call.inputs.empty() ? "recv" : "exchange";
}

std::string site_text(const CollectiveSite& site) {
  const std::string number = site.sequence == 0 ? "" : fmt::format(" #{}", site.sequence);
  const std::string label = site.label.empty() ? "" : fmt::format(" ({})", site.label);
  return fmt::format("{}{}{} of group \"{}\"", site.op, number, label, site.group);
}

std::string ReduceOp::name() const {
  switch (kind) {
    case Kind::kSum:
      return "sum";
    case Kind::kAverage:
      return "average";
    case Kind::kMin:
      return "min";
    case Kind::kMax:
      return "max";
    case Kind::kProduct:
      return "product";
    case Kind::kPremulSum:
      return fmt::format("premul_sum({})", factor);
  }
  return "?";
}

ProcessGroup::ProcessGroup(Identity identity) : identity_(std::move(identity)) {
  TESSERA_CHECK(rank() >= 0 && rank() < size(), "process_group",
                "rank {} of {} in group \"{}\": need 0 <= rank < size", rank(), size(), name());
}

std::uint64_t ProcessGroup::next_place(Channel channel, int peer, bool sending) {
  return ++places_[{channel, peer, sending}];
}

std::uint64_t ProcessGroup::next_subgroup(const std::string& members_and_name) {
  return ++subgroups_[members_and_name];
}

std::shared_ptr<ProcessGroup> ProcessGroup::subgroup(const std::vector<int>& members,
                                                     const std::string& name) {
  SubgroupRequest request{.identity = {}, .members = members, .key = {}};
  request.identity.rank = -1;
  std::set<int> seen;
  for (std::size_t i = 0; i < members.size(); ++i) {
    const int member = members[i];
    TESSERA_CHECK(member >= 0 && member < size(), "process_group.subgroup",
                  "{} is not a rank of group \"{}\" of {}", member, this->name(), size());
    TESSERA_CHECK(seen.insert(member).second, "process_group.subgroup",
                  "rank {} of group \"{}\" stands twice among the members", member, this->name());
    if (member == rank()) request.identity.rank = static_cast<int>(i);
    request.identity.ranks.push_back(ranks()[static_cast<std::size_t>(member)]);
  }
  TESSERA_CHECK(request.identity.rank >= 0, "process_group.subgroup",
                "this is rank {} of group \"{}\", which is not among the members {}; only members "
                "make a sub-group",
                rank(), this->name(), fmt::join(members, ", "));
  request.identity.name =
      name.empty() ? fmt::format("{}[{}]", this->name(), fmt::join(members, ",")) : name;
  const std::string key = fmt::format("{}|{}", request.identity.name, fmt::join(members, ","));
  request.key = fmt::format("{}|{}", key, next_subgroup(key));
  return make_subgroup(request);
}

}  // namespace tessera::distributed
