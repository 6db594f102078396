#include "tessera/distributed/device_groups.h"

#include <utility>

#include "tessera/distributed/resolved_collective.h"
#include "tessera/tensor/check.h"

namespace tessera::distributed {
namespace {

using Groups = std::map<DeviceType, std::shared_ptr<ProcessGroup>>;

std::string device_name(DeviceType type) { return Device{type, 0}.str().substr(0, 4); }

class DeviceGroups final : public ProcessGroup {
 public:
  DeviceGroups(Identity identity, Groups groups)
      : ProcessGroup(std::move(identity)), groups_(std::move(groups)) {}

  std::string backend() const override {
    std::string out;
    for (const auto& [type, group] : groups_)
      out += fmt::format("{}{}", out.empty() ? "" : ", ", group->backend());
    return out;
  }
  bool carries(DeviceType type) const override { return groups_.count(type) != 0; }
  void run(const Collective& call) override { group_for(collective_device(call).type).run(call); }
  void abort(const std::string& reason) noexcept override {
    for (const auto& [type, group] : groups_) group->abort(reason);
  }
  std::shared_ptr<ProcessGroup> make_subgroup(const SubgroupRequest& request) override {
    Groups parts;
    for (const auto& [type, group] : groups_) parts[type] = group->make_subgroup(request);
    return std::make_shared<DeviceGroups>(request.identity, std::move(parts));
  }

 private:
  // Of a device that is carried, or of one that every transport takes (null).
  ProcessGroup& group_for(DeviceType type) {
    const auto found = groups_.find(type);
    return *(found == groups_.end() ? groups_.begin() : found)->second;
  }

  Groups groups_;
};

}  // namespace

std::shared_ptr<ProcessGroup> by_device(Groups groups) {
  TESSERA_CHECK(!groups.empty(), "by_device", "there is no group");
  for (const auto& [type, group] : groups)
    TESSERA_CHECK(group != nullptr, "by_device", "the group for {} is null", device_name(type));
  const ProcessGroup& first = *groups.begin()->second;
  for (const auto& [type, group] : groups) {
    TESSERA_CHECK(group->carries(type), "by_device", "group \"{}\" ({}) does not carry {} tensors",
                  group->name(), group->backend(), device_name(type));
    TESSERA_CHECK(group->name() == first.name() && group->rank() == first.rank() &&
                      group->ranks() == first.ranks(),
                  "by_device",
                  "the groups are not of the same ranks: rank {} of {} in \"{}\", rank {} of {} in "
                  "\"{}\"",
                  first.rank(), first.size(), first.name(), group->rank(), group->size(),
                  group->name());
  }
  ProcessGroup::Identity identity{
      .name = first.name(), .rank = first.rank(), .ranks = first.ranks()};
  return std::make_shared<DeviceGroups>(std::move(identity), std::move(groups));
}

}  // namespace tessera::distributed
