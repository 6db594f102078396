#pragma once

/// Ordered lists of callbacks with removable handles; used for gradients, graph nodes and modules.

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <utility>
#include <vector>

namespace tessera {

/// Names one registered hook. remove() is idempotent, and safe after the list is gone and from
/// inside a hook. Dropping the handle leaves the hook in place.
class HookHandle {
 public:
  HookHandle() = default;
  explicit HookHandle(std::function<void()> remove) : remove_(std::move(remove)) {}
  void remove() {
    if (remove_) std::exchange(remove_, nullptr)();
  }

 private:
  std::function<void()> remove_;
};

/// Hooks of one signature, called in order. Hooks may add or remove hooks while they run: the
/// change counts from the next round. An empty list owns no memory. Moves but does not copy. Not
/// thread-safe.
template <class Signature>
class HookList {
 public:
  enum class Position : std::uint8_t { kLast, kFirst };

  HookList() = default;
  HookList(HookList&&) noexcept = default;
  HookList& operator=(HookList&&) noexcept = default;

  HookHandle add(std::function<Signature> hook, Position position = Position::kLast) {
    if (!state_) state_ = std::make_shared<State>();
    const std::uint64_t id = ++state_->last_id;
    auto entry = std::make_pair(id, std::move(hook));
    auto& entries = state_->entries;
    entries.insert(position == Position::kFirst ? entries.begin() : entries.end(),
                   std::move(entry));
    return HookHandle([weak = std::weak_ptr<State>(state_), id] {
      if (auto state = weak.lock())
        state->entries.remove_if([id](const auto& e) { return e.first == id; });
    });
  }
  bool empty() const { return !state_ || state_->entries.empty(); }
  /// A copy to iterate over.
  std::vector<std::function<Signature>> snapshot() const {
    std::vector<std::function<Signature>> out;
    if (!state_) return out;
    for (const auto& [id, hook] : state_->entries) out.push_back(hook);
    return out;
  }

 private:
  struct State {
    std::list<std::pair<std::uint64_t, std::function<Signature>>> entries;
    std::uint64_t last_id = 0;
  };
  std::shared_ptr<State> state_;
};

}  // namespace tessera
