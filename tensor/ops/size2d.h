#pragma once

/// One number for each of the two spatial dims: kernel sizes, strides and so on.

#include <cstdint>

namespace tessera {

/// `.stride = 2` means both dims, `.stride = {2, 1}` height and width.
struct Size2d {
  std::int64_t height = 0;
  std::int64_t width = 0;

  constexpr Size2d(std::int64_t both) : height(both), width(both) {}
  constexpr Size2d(std::int64_t in_height, std::int64_t in_width)
      : height(in_height), width(in_width) {}
  bool operator==(const Size2d&) const = default;
};

}  // namespace tessera
