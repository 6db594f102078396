#pragma once

/// Rotary position embedding (Su et al., "RoFormer", 2021): pairs of features are rotated by an
/// angle that grows with the position.

#include "tessera/tensor/tensor.h"

namespace tessera {

/// Which of the `features` of a head form a pair.
enum class RotaryPairing : std::uint8_t {
  kHalves,      ///< i and features / 2 + i: Llama in Hugging Face's format, GPT-NeoX
  kNeighbours,  ///< 2i and 2i + 1: the paper, and Llama in Meta's format
};

/// cos and sin of the angle for each position (row) and pair (column).
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
/// Both tensors are [positions, features / 2], for the angle (offset + row) * base^(-2 column /
/// features), computed in f64. features is even.
RotaryTable rotary_table(std::int64_t positions, std::int64_t features,
                         const RotaryTableOptions& options = {});

struct RotaryOptions {
  RotaryPairing pairing = RotaryPairing::kHalves;
  bool inverse = false;  ///< rotate by the negative angle
};
/// x [..., positions, heads, features]: the output of attention's projection, split into heads,
/// before heads and positions are transposed. Each pair (a, b) becomes (a cos - b sin, b cos + a
/// sin). A table of fewer than features / 2 columns rotates the first features only and copies the
/// others. Row i of the table belongs to position i of x: for a part of a sequence pass a slice of
/// the table.
///
/// x is floating, with any strides; the table is f64 for f64, else f32. The derivative is the same
/// operation with `inverse` flipped.
Tensor rotary(const Tensor& x, const RotaryTable& table, const RotaryOptions& options = {});

}  // namespace tessera
