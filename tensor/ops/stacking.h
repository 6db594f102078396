#pragma once

/// Joining and splitting along a dim that the name says, and tensors made from several.
///
/// As in NumPy and PyTorch. Lists have at least one tensor; their tensors have one dtype and device.
/// Splits, atleast and broadcast_tensors return views, where the layout allows it; the others return
/// new contiguous tensors. All dtypes.

#include <cstdint>
#include <vector>

#include "tessera/tensor/tensor.h"

namespace tessera {

/// At least 1, 2 or 3 dims: [] -> [1], [1, 1], [1, 1, 1]; [n] -> [1, n], [1, n, 1]; [n, m] -> [n, m,
/// 1].
Tensor atleast_1d(const Tensor& x);
Tensor atleast_2d(const Tensor& x);
Tensor atleast_3d(const Tensor& x);

/// cat along dim 1, or along dim 0 for tensors of 1 dim and 0-d ones.
Tensor hstack(const std::vector<Tensor>& tensors);
/// cat of atleast_2d along dim 0; row_stack is another name.
Tensor vstack(const std::vector<Tensor>& tensors);
Tensor row_stack(const std::vector<Tensor>& tensors);
/// cat of atleast_3d along dim 2.
Tensor dstack(const std::vector<Tensor>& tensors);
/// cat along dim 1, in which tensors of 1 dim, and 0-d ones, are columns.
Tensor column_stack(const std::vector<Tensor>& tensors);
/// The tensors, of at most 2 dims, as blocks on the diagonal of a matrix of zeros; [n] is a row.
Tensor block_diag(const std::vector<Tensor>& tensors);

/// `sections` parts, the first of which have one entry more if the extent is not a multiple.
std::vector<Tensor> tensor_split(const Tensor& x, std::int64_t sections, int dim = 0);
/// Parts that begin at 0 and at each of `starts`, and end where the next one begins; negative
/// starts count from the back, and starts outside the dim are moved to its ends.
std::vector<Tensor> tensor_split(const Tensor& x, const std::vector<std::int64_t>& starts,
                                 int dim = 0);
/// tensor_split along dim 1 (dim 0 for 1 dim), 0 and 2. `sections` must divide the extent.
std::vector<Tensor> hsplit(const Tensor& x, std::int64_t sections);
std::vector<Tensor> hsplit(const Tensor& x, const std::vector<std::int64_t>& starts);
std::vector<Tensor> vsplit(const Tensor& x, std::int64_t sections);
std::vector<Tensor> vsplit(const Tensor& x, const std::vector<std::int64_t>& starts);
std::vector<Tensor> dsplit(const Tensor& x, std::int64_t sections);
std::vector<Tensor> dsplit(const Tensor& x, const std::vector<std::int64_t>& starts);

/// Each tensor in the common shape of all; of any dtypes.
std::vector<Tensor> broadcast_tensors(const std::vector<Tensor>& tensors);

/// The order of the first two dims of meshgrid's results.
enum class MeshIndexing : std::uint8_t {
  kIJ,  ///< the first tensor goes along dim 0: matrices
  kXY,  ///< the first tensor goes along dim 1: Cartesian axes
};
/// For coordinates [n], [m], ...: for each tensor its values over the grid [n, m, ...], as views; a
/// 0-d tensor is [1].
std::vector<Tensor> meshgrid(const std::vector<Tensor>& tensors,
                             MeshIndexing indexing = MeshIndexing::kIJ);
/// All combinations of one element of each [n], [m], ... in row-major order: [n m ..., tensors]; the
/// tensor itself if there is only one.
Tensor cartesian_prod(const std::vector<Tensor>& tensors);

}  // namespace tessera
