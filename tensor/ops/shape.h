#pragma once

/// Joining, splitting and rearranging tensors. All dtypes.
///
/// split, chunk and unbind return views of x; the others return new contiguous tensors, except where
/// a comment says otherwise. A negative `dim` counts from the back; a dim that does not exist is an
/// InvalidArgument.

#include <cstdint>
#include <optional>
#include <vector>

#include "tessera/tensor/dims.h"
#include "tessera/tensor/tensor.h"

namespace tessera {

/// Concatenates at least one tensor along `dim`. The other extents, dtypes and devices must be
/// equal.
Tensor cat(const std::vector<Tensor>& tensors, int dim = 0);
/// The same along a new dim: n tensors of shape [a, b] give [n, a, b] for dim 0.
Tensor stack(const std::vector<Tensor>& tensors, int dim = 0);

/// Parts of the given extents, which must add up to the extent of `dim`.
std::vector<Tensor> split(const Tensor& x, const std::vector<std::int64_t>& sizes, int dim = 0);
/// Parts of `size`; the last one is smaller if `size` does not divide the extent. An extent of 0
/// gives one part.
std::vector<Tensor> split(const Tensor& x, std::int64_t size, int dim = 0);
/// Parts of ceil(extent / chunks): at most `chunks`, and fewer if that covers the dim, as in
/// PyTorch. An extent of 0 gives `chunks` empty parts.
std::vector<Tensor> chunk(const Tensor& x, std::int64_t chunks, int dim = 0);
/// The extents of the parts that split and chunk return for a dim of `extent`.
std::vector<std::int64_t> split_sizes(std::int64_t extent, std::int64_t size);
std::vector<std::int64_t> chunk_sizes(std::int64_t extent, std::int64_t chunks);
/// x.select(dim, i) for every i.
std::vector<Tensor> unbind(const Tensor& x, int dim = 0);

/// Elements that pad adds before and after a dim; a negative number crops.
struct Padding {
  std::int64_t before = 0;
  std::int64_t after = 0;
};
/// Pads x with `value`. One entry for each of the last dims, in the order of the dims: pad(x, {{1,
/// 1}, {0, 2}}) of [n, h, w] is [n, h + 2, w + 2].
Tensor pad(const Tensor& x, const std::vector<Padding>& padding, double value = 0);
/// What stands in the padding. For x = 1 2 3 4, padded by 2 on each side:
enum class PadMode : std::uint8_t {
  kConstant,   ///< 0 0 | 1 2 3 4 | 0 0
  kReflect,    ///< 3 2 | 1 2 3 4 | 3 2; by less than the extent
  kReplicate,  ///< 1 1 | 1 2 3 4 | 4 4; the extent is not 0
  kCircular,   ///< 3 4 | 1 2 3 4 | 1 2; by the extent at most
};
/// The same by a mode. Throws InvalidArgument where the mode has no element to put.
Tensor pad(const Tensor& x, const std::vector<Padding>& padding, PadMode mode);

/// y[i] = x[i - shift], wrapping around; any shift.
Tensor roll(const Tensor& x, std::int64_t shift, int dim);
/// By shifts[i] along dims[i], one dim after another; without dims all elements in row-major order.
Tensor roll(const Tensor& x, const std::vector<std::int64_t>& shifts, const DimList& dims);
Tensor roll(const Tensor& x, std::int64_t shift);
/// Reverses each of `dims`; a copy if there are none.
Tensor flip(const Tensor& x, const DimList& dims);
/// The last of two dims reversed (left to right), and the first (upside down): dims 1 and 0.
Tensor fliplr(const Tensor& x);
Tensor flipud(const Tensor& x);
/// `times` quarter turns in the plane of two dims, from the first to the second; negative ones turn
/// back.
Tensor rot90(const Tensor& x, std::int64_t times = 1, int dim0 = 0, int dim1 = 1);

/// x repeated repeats[d] times along each dim d. `repeats` has at least as many entries as x has
/// dims; x gets leading dims of 1 for the additional ones.
Tensor repeat(const Tensor& x, const Shape& repeats);
/// The same; leading entries may be omitted.
Tensor tile(const Tensor& x, const Shape& repeats);
/// Repeats every element `count` times along `dim`: 1 2 -> 1 1 2 2.
Tensor repeat_interleave(const Tensor& x, std::int64_t count, int dim);
struct RepeatInterleaveOptions {
  /// The sum of the counts; unset: the host waits for the device to know it, and the null device,
  /// whose tensors have no values, throws StateError.
  std::optional<std::int64_t> output_size = {};
};
/// Repeats entry i of `dim` counts[i] times. counts [extent] is i64 or i32 and not negative; [1] or
/// 0-d: one count for all. Throws InvalidArgument for a negative count and for an output_size that
/// is not the sum; with output_size on a GPU at the next host wait.
Tensor repeat_interleave(const Tensor& x, const Tensor& counts, int dim,
                         const RepeatInterleaveOptions& options = {});

/// All elements as one dim; a view if the layout allows it.
Tensor ravel(const Tensor& x);
/// x in the shape of `other`; a view if the layout allows it.
Tensor reshape_as(const Tensor& x, const Tensor& other);

/// The lower (upper) triangle of each matrix [..., rows, columns], with zeros elsewhere: element
/// (i, j) is kept if j - i <= diagonal (j - i >= diagonal).
Tensor tril(const Tensor& x, std::int64_t diagonal = 0);
Tensor triu(const Tensor& x, std::int64_t diagonal = 0);

}  // namespace tessera
