#pragma once

/// Counter-based random numbers: a number depends only on a key and a position, not on device,
/// rank, thread or order.
///
/// Generator: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC
/// 2011). Uniform numbers use 24 (f32) or 53 (f64) bits. Normal numbers come from Box-Muller with
/// the polynomials in kernels/math/random_math.h, so that CPU and GPU give the same bits.

#include <cstdint>
#include <string_view>
#include <vector>

#include "tessera/tensor/tensor.h"

namespace tessera::random {

/// A 64-bit key that names one sequence of random numbers.
struct Key {
  std::uint64_t value = 0;
  bool operator==(const Key&) const = default;
};

/// The key of a name under a seed: XXH64 of the name with that seed. Equal on all ranks and
/// machines.
Key named_key(std::uint64_t seed, std::string_view name);

/// A box inside a larger, global tensor: `shape` elements from `offset` in each dim of `global`.
struct Box {
  Shape global;
  Shape offset;
};
/// The box that covers a whole tensor.
Box whole(const Shape& shape);

/// out[i] = low + (high - low) * u, u uniform in [0, 1). The position of element i is its row-major
/// index in box.global. Throws InvalidArgument unless `out` is floating, has as many dims as
/// box.global and fits inside it.
void fill_uniform(const Tensor& out, Key key, const Box& box, double low, double high);
/// out[i] = mean + stddev * n, n standard normal. Throws as fill_uniform.
void fill_normal(const Tensor& out, Key key, const Box& box, double mean, double stddev);

/// out[i] = mean + stddev * n, n standard normal, truncated to [low, high]. Computed by the inverse
/// of the distribution function. Throws as above, and unless low < high and stddev > 0.
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
/// out[i] = an integer from low to high - 1, all equally likely; any dtype that can hold them.
/// Throws unless low < high.
void fill_integers(const Tensor& out, Key key, const Box& box, std::int64_t low, std::int64_t high);

/// A permutation of 0..n-1 in host memory. Equal keys give equal permutations everywhere.
std::vector<std::int64_t> permutation(std::int64_t n, Key key);

}  // namespace tessera::random
