#pragma once

/// Rotary position embedding (Su et al., "RoFormer", 2021): pairs of features are turned by an
/// angle that grows with the position.

#include "tessera/tensor/tensor.h"

namespace tessera {

/// Which features make a pair, of `features` of a head.
enum class RotaryPairing : std::uint8_t {
  kHalves,      ///< i and features / 2 + i: Llama as Hugging Face stores it, GPT-NeoX
  kNeighbours,  ///< 2i and 2i + 1: the paper, and Llama as Meta stores it
};

/// cos and sin of the angle of each position (row) and pair (column).
struct RotaryTable {
  Tensor cos;
  Tensor sin;
};

struct RotaryTableOptions {
  double base = 10000;        ///< "theta"; > 0
  std::int64_t offset = 0;    ///< position of the first row
  DType dtype = DType::kF32;  ///< f32 or f64
  Device device = default_device();
};
/// Both [positions, features / 2], of the angle (offset + row) * base^(-2 column / features),
/// computed in f64. features is even.
RotaryTable rotary_table(std::int64_t positions, std::int64_t features,
                         const RotaryTableOptions& options = {});

struct RotaryOptions {
  RotaryPairing pairing = RotaryPairing::kHalves;
  bool inverse = false;  ///< turn by the negative angle
};
/// x [..., positions, heads, features]: what the projection of attention gives, seen as heads,
/// before heads and positions change places. Each pair (a, b) becomes (a cos - b sin, b cos + a
/// sin). A table of fewer than features / 2 columns turns the first features only and leaves the
/// others. Rows of the table belong to positions of x: for a part of a sequence pass a slice of
/// them.
///
/// x is floating, of any strides; the table of f64 for f64, else of f32. The derivative is the same
/// with `inverse` the other way.
Tensor rotary(const Tensor& x, const RotaryTable& table, const RotaryOptions& options = {});

}  // namespace tessera
