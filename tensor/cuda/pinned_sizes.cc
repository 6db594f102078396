#include "tessera/tensor/cuda/pinned_sizes.h"

namespace tessera::cuda {
namespace {

constexpr std::size_t kSmallestPinned = 4096;
static_assert(kSmallestPinned << (kPinnedClasses - 1) == kLargestPinned);

}  // namespace

int pinned_class(std::size_t bytes) {
  int found = 0;
  while (pinned_class_bytes(found) < bytes) ++found;
  return found;
}

std::size_t pinned_class_bytes(int pinned_class) { return kSmallestPinned << pinned_class; }

}  // namespace tessera::cuda
