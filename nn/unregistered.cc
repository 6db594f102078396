#include "tessera/nn/unregistered.h"

#include <functional>
#include <map>
#include <mutex>

namespace tessera::nn::detail {
namespace {

struct LiveMembers {
  std::mutex mutex;
  std::map<const void*, MemberKind, std::less<const void*>> members;
};

// Never destroyed: a module with static storage may outlive any static of this file.
LiveMembers& live_members() {
  static auto& live = *new LiveMembers;
  return live;
}

}  // namespace

void note_constructed(const void* address, MemberKind kind) {
  LiveMembers& live = live_members();
  const std::lock_guard lock(live.mutex);
  live.members.insert_or_assign(address, kind);
}

void forget_constructed(const void* address) noexcept {
  LiveMembers& live = live_members();
  const std::lock_guard lock(live.mutex);
  live.members.erase(address);
}

std::optional<UnregisteredMember> find_unregistered(const void* begin, std::size_t bytes,
                                                    const void* except) {
  LiveMembers& live = live_members();
  const std::lock_guard lock(live.mutex);
  const void* end = static_cast<const std::byte*>(begin) + bytes;
  for (auto it = live.members.lower_bound(begin); it != live.members.end(); ++it) {
    if (!std::less<const void*>()(it->first, end)) break;
    if (it->first != except) return UnregisteredMember{it->first, it->second};
  }
  return std::nullopt;
}

}  // namespace tessera::nn::detail
