#include "tessera/tensor/memory_category.h"

#include <utility>

#include "tessera/tensor/thread_state.h"

namespace tessera {

const char* memory_category_name(MemoryCategory category) {
  switch (category) {
    case MemoryCategory::kParameter:
      return "parameter";
    case MemoryCategory::kGradient:
      return "gradient";
    case MemoryCategory::kOptimizer:
      return "optimizer";
    case MemoryCategory::kGathered:
      return "gathered";
    case MemoryCategory::kActivation:
      return "activation";
    case MemoryCategory::kWorkspace:
      return "workspace";
    case MemoryCategory::kCommunication:
      return "communication";
    case MemoryCategory::kOther:
      return "other";
  }
  return "?";
}

MemoryCategory current_memory_category() { return detail::thread_state().settings.memory_category; }

MemoryCategoryScope::MemoryCategoryScope(MemoryCategory category)
    : previous_(std::exchange(detail::thread_state().settings.memory_category, category)) {}

MemoryCategoryScope::~MemoryCategoryScope() {
  detail::thread_state().settings.memory_category = previous_;
}

}  // namespace tessera
