#pragma once

/// One piece of memory for a node and for the counts that shared_ptr keeps of it, since a node is
/// made for every operation. For make_node() only.

#include <array>
#include <atomic>
#include <cstddef>
#include <new>

namespace tessera::detail {

/// The head of the piece; the node follows. It goes when both the node and its counts are gone,
/// in either order and on any thread: nodes are buried late (see NodeDeleter), counts are held
/// by weak pointers.
class NodeMemory {
 public:
  static constexpr std::size_t kCountsBytes = 40;

  /// With room for a node of `bytes`.
  static NodeMemory* make(std::size_t bytes) {
    return new (::operator new(sizeof(NodeMemory) + bytes)) NodeMemory;
  }
  void* node() { return this + 1; }
  void* counts() { return counts_.data(); }
  /// The node or its counts are destroyed.
  void drop() noexcept {
    if (parts_.load(std::memory_order_acquire) != 1 &&
        parts_.fetch_sub(1, std::memory_order_acq_rel) != 1)
      return;
    ::operator delete(this);
  }
  /// The node is destroyed while its counts are letting go of it: they come after, so no other
  /// thread is here.
  void drop_node_first() noexcept { parts_.store(1, std::memory_order_relaxed); }
  /// Nothing was made in it.
  void drop_unused() noexcept { ::operator delete(this); }

 private:
  std::atomic<int> parts_{2};
  alignas(8) std::array<std::byte, kCountsBytes> counts_;
};

static_assert(sizeof(NodeMemory) % __STDCPP_DEFAULT_NEW_ALIGNMENT__ == 0, "a node follows");

/// Gives shared_ptr the room in a NodeMemory.
template <class T>
struct NodeCountsAllocator {
  using value_type = T;

  explicit NodeCountsAllocator(NodeMemory* memory_in) : memory(memory_in) {}
  template <class U>
  NodeCountsAllocator(const NodeCountsAllocator<U>& other) : memory(other.memory) {}

  T* allocate(std::size_t /*count*/) {
    static_assert(sizeof(T) <= NodeMemory::kCountsBytes && alignof(T) <= 8, "see kCountsBytes");
    return static_cast<T*>(memory->counts());
  }
  void deallocate(T* /*counts*/, std::size_t /*count*/) noexcept { memory->drop(); }
  template <class U>
  bool operator==(const NodeCountsAllocator<U>& other) const {
    return memory == other.memory;
  }

  NodeMemory* memory;
};

}  // namespace tessera::detail
