#pragma once

/// Counter-based random numbers: a number depends on a key and a position, never on device, rank,
/// thread or order.
///
/// Generator: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC
/// 2011). Uniforms take 24 (f32) or 53 (f64) bits; normals come from Box-Muller with our own
/// polynomials in kernels/random_math.h, so that CPU and GPU give the same bits.

#include <cstdint>
#include <string_view>
#include <vector>

#include "tessera/tensor/tensor.h"

namespace tessera::random {

/// 64 bits that name one stream of numbers.
struct Key {
  std::uint64_t value = 0;
  bool operator==(const Key&) const = default;
};

/// The key of a named thing under a seed: XXH64 of the name, seeded. Equal everywhere.
Key named_key(std::uint64_t seed, std::string_view name);

/// A part of a larger, global tensor: `shape` elements from `offset` in each dim of `global`.
struct Box {
  Shape global;
  Shape offset;
};
/// The box of a tensor that is all of itself.
Box whole(const Shape& shape);

/// out[i] = low + (high - low) * u, u uniform in [0, 1), where i's position is its row-major index
/// in box.global. Throws InvalidArgument unless out is floating, has box.global's number of dims
/// and lies inside it.
void fill_uniform(const Tensor& out, Key key, const Box& box, double low, double high);
/// out[i] = mean + stddev * n, n standard normal. As above.
void fill_normal(const Tensor& out, Key key, const Box& box, double mean, double stddev);

/// out[i] = mean + stddev * n, n standard normal, drawn again until the result lies between low and
/// high; so distributed, computed by the inverse of the distribution function. Throws as above, and
/// unless low < high and stddev > 0.
struct TruncatedNormal {
  double mean = 0;
  double stddev = 1;
  double low = -2;
  double high = 2;
};
void fill_truncated_normal(const Tensor& out, Key key, const Box& box,
                           const TruncatedNormal& distribution = {});
/// out[i] = 1 with probability p, else 0; any dtype. Throws unless 0 <= p <= 1.
void fill_bernoulli(const Tensor& out, Key key, const Box& box, double p);
/// out[i] = a whole number from low to high - 1, all equally likely; any dtype that holds them.
/// Throws unless low < high.
void fill_integers(const Tensor& out, Key key, const Box& box, std::int64_t low, std::int64_t high);

/// A permutation of 0..n-1, equal everywhere for equal keys; host memory.
std::vector<std::int64_t> permutation(std::int64_t n, Key key);

}  // namespace tessera::random
