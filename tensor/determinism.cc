#include "tessera/tensor/determinism.h"

#include <algorithm>
#include <atomic>

#include "tessera/tensor/check.h"

namespace tessera {
namespace {

std::atomic<bool> g_deterministic{false};

}  // namespace

void set_deterministic(bool on) { g_deterministic.store(on, std::memory_order_relaxed); }

bool deterministic() { return g_deterministic.load(std::memory_order_relaxed); }

std::span<const UnorderedOperation> unordered_operations() { return {}; }

void require_fixed_order(std::string_view operation, Device device,
                         std::span<const UnorderedOperation> list) {
  if (!deterministic()) return;
  const bool unordered =
      std::any_of(list.begin(), list.end(), [&](const UnorderedOperation& entry) {
        return entry.name == operation && entry.device == device.type;
      });
  TESSERA_CHECK_AS(StateError, !unordered, operation,
                   "it has no fixed order of additions on {}, and deterministic mode is on; "
                   "compute it on another device, or set_deterministic(false)",
                   device.str());
}

}  // namespace tessera
