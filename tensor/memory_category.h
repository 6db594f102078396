#pragma once

/// What memory is used for, and the category of the storages that a thread creates.

#include <cstdint>

namespace tessera {

/// The purpose of bytes.
enum class MemoryCategory : std::uint8_t {
  kParameter,      ///< a rank's shards, in the stored dtype
  kGradient,       ///< gradient slots and reduced gradients
  kOptimizer,      ///< momentum and other optimizer state
  kGathered,       ///< full parameter values, between gather and release
  kActivation,     ///< everything that forward and backward allocate; the default
  kWorkspace,      ///< scratch of one kernel
  kCommunication,  ///< staging of collectives
  kOther,
};
inline constexpr int kMemoryCategories = 8;
const char* memory_category_name(MemoryCategory category);

/// The category of storages that this thread creates without naming one.
MemoryCategory current_memory_category();

/// Sets current_memory_category() until the end of the scope.
class MemoryCategoryScope {
 public:
  explicit MemoryCategoryScope(MemoryCategory category);
  ~MemoryCategoryScope();
  MemoryCategoryScope(const MemoryCategoryScope&) = delete;
  MemoryCategoryScope& operator=(const MemoryCategoryScope&) = delete;

 private:
  MemoryCategory previous_;
};

}  // namespace tessera
