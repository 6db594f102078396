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

std::size_t pinned_block_bytes(std::size_t bytes) {
  constexpr std::size_t kLeast = 4096, kStepsOfDoubling = 8;
  std::size_t step = kLeast / kStepsOfDoubling;
  while (step * 2 * kStepsOfDoubling < bytes) step *= 2;
  const std::size_t rounded = (bytes + step - 1) / step * step;
  return rounded < kLeast ? kLeast : rounded;
}

}  // namespace tessera::cuda
