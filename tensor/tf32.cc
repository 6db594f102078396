#include "tessera/tensor/tf32.h"

#include <atomic>

namespace tessera {
namespace {

std::atomic<bool> g_allowed{false};

}  // namespace

void set_tf32_allowed(bool allowed) { g_allowed.store(allowed, std::memory_order_relaxed); }

bool tf32_allowed() { return g_allowed.load(std::memory_order_relaxed); }

}  // namespace tessera
