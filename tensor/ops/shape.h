#pragma once

/// Putting tensors together, taking them apart, and moving elements about. Any dtype.
///
/// split, chunk and unbind are views of x; the others are new contiguous tensors. `dim` counts from
/// the back when negative; InvalidArgument for one that does not exist.

#include <cstdint>
#include <vector>

#include "tessera/tensor/dims.h"
#include "tessera/tensor/tensor.h"

namespace tessera {

/// The tensors one after another along `dim`; the other extents must agree, and dtypes and devices.
/// At least one tensor.
Tensor cat(const std::vector<Tensor>& tensors, int dim = 0);
/// The same along a new dim: n tensors of shape [a, b] give [n, a, b] for dim 0.
Tensor stack(const std::vector<Tensor>& tensors, int dim = 0);

/// Parts of the given extents, which must add up to that of `dim`.
std::vector<Tensor> split(const Tensor& x, const std::vector<std::int64_t>& sizes, int dim = 0);
/// Parts of `size`, the last one smaller where it does not divide. An extent of 0 gives one part.
std::vector<Tensor> split(const Tensor& x, std::int64_t size, int dim = 0);
/// Parts of ceil(extent / chunks): at most `chunks` of them, and fewer where that covers the dim,
/// as in PyTorch. An extent of 0 gives `chunks` empty parts.
std::vector<Tensor> chunk(const Tensor& x, std::int64_t chunks, int dim = 0);
/// The extents that split and chunk give the parts of a dim of `extent`.
std::vector<std::int64_t> split_sizes(std::int64_t extent, std::int64_t size);
std::vector<std::int64_t> chunk_sizes(std::int64_t extent, std::int64_t chunks);
/// x.select(dim, i) for every i.
std::vector<Tensor> unbind(const Tensor& x, int dim = 0);

/// What pad puts before and after a dim; negative: what it cuts off.
struct Padding {
  std::int64_t before = 0;
  std::int64_t after = 0;
};
/// `value` around x. One entry for each of the last dims, in the order of the dims:
/// pad(x, {{1, 1}, {0, 2}}) of [n, h, w] is [n, h + 2, w + 2].
Tensor pad(const Tensor& x, const std::vector<Padding>& padding, double value = 0);

/// y[i] = x[i - shift], around the end; any shift.
Tensor roll(const Tensor& x, std::int64_t shift, int dim);
/// Reverse order along each of `dims`; a copy when there are none.
Tensor flip(const Tensor& x, const Dims& dims);

/// x repeated repeats[d] times along each dim d. `repeats` has at least as many entries as x has
/// dims; x gets leading dims of 1 for those beyond.
Tensor repeat(const Tensor& x, const Shape& repeats);
/// The same; leading entries may be left out.
Tensor tile(const Tensor& x, const Shape& repeats);
/// Every element `count` times in a row along `dim`: 1 2 -> 1 1 2 2.
Tensor repeat_interleave(const Tensor& x, std::int64_t count, int dim);

/// The lower (upper) triangle of each matrix [..., rows, columns], with zeros elsewhere: element
/// (i, j) stays where j - i <= diagonal (j - i >= diagonal).
Tensor tril(const Tensor& x, std::int64_t diagonal = 0);
Tensor triu(const Tensor& x, std::int64_t diagonal = 0);

}  // namespace tessera
