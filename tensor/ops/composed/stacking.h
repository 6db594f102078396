#pragma once

/// The definitions of ops/stacking.h. For the .cc files that instantiate them.

#include <algorithm>
#include <vector>

#include "tessera/tensor/ops/composed/operands.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/shape.h"
#include "tessera/tensor/ops/stacking.h"

namespace tessera::composed {

template <class V>
void check_list(const char* where, const std::vector<V>& list) {
  TESSERA_CHECK(!list.empty(), where, "the list of tensors is empty; give at least one");
  for (const V& x : list) {
    ops::check_defined(where, "a tensor of the list", plain(x));
    ops::check_same_device(where, plain(list.front()), plain(x));
    ops::check_same_dtype(where, plain(list.front()), plain(x));
  }
}

template <class V>
V with_dims(const char* where, const V& x, int least) {
  ops::check_defined(where, "the tensor", plain(x));
  V out = x.ndim() == 0 ? reshape(x, {1}) : x;
  if (least >= 2 && out.ndim() == 1) out = unsqueeze(out, 0);
  if (least >= 3 && out.ndim() == 2) out = unsqueeze(out, 2);
  return out;
}

/// cat along `dim` of the tensors with at least `least` dims. Throws InvalidArgument tagged `where`
/// for shapes that differ elsewhere.
template <class V>
V joined_along(const char* where, std::vector<V> list, int dim) {
  const Shape first = list.front().shape();
  for (const V& x : list) {
    TESSERA_CHECK(x.ndim() == first.ndim() && x.shape().with(dim, 0) == first.with(dim, 0), where,
                  "shapes {} and {} do not fit; they may differ in dim {} only", first.str(),
                  x.shape().str(), dim);
  }
  return cat(list, dim);
}

template <class V>
std::vector<V> all_with_dims(const char* where, const std::vector<V>& list, int least) {
  check_list(where, list);
  std::vector<V> out;
  for (const V& x : list) out.push_back(with_dims(where, x, least));
  return out;
}

template <class V>
V hstack(const std::vector<V>& list) {
  std::vector<V> all = all_with_dims("hstack", list, 1);
  const int dim = all.front().ndim() == 1 ? 0 : 1;
  return joined_along("hstack", std::move(all), dim);
}

template <class V>
V vstack(const char* where, const std::vector<V>& list) {
  return joined_along(where, all_with_dims(where, list, 2), 0);
}

template <class V>
V dstack(const std::vector<V>& list) {
  return joined_along("dstack", all_with_dims("dstack", list, 3), 2);
}

template <class V>
V column_stack(const std::vector<V>& list) {
  check_list("column_stack", list);
  std::vector<V> columns;
  for (const V& x : list) columns.push_back(x.ndim() < 2 ? reshape(x, {x.numel(), 1}) : x);
  return joined_along("column_stack", std::move(columns), 1);
}

template <class V>
V block_diag(const std::vector<V>& list) {
  constexpr const char* kWhere = "block_diag";
  check_list(kWhere, list);
  std::vector<V> blocks;
  std::int64_t columns = 0;
  for (const V& x : list) {
    TESSERA_CHECK(x.ndim() <= 2, kWhere, "a block has shape {}; blocks have at most 2 dims",
                  x.shape().str());
    blocks.push_back(with_dims(kWhere, x, 2));
    columns += blocks.back().dim(1);
  }
  std::int64_t before = 0;
  for (V& block : blocks) {
    const std::int64_t width = block.dim(1);
    block = pad(block, {{before, columns - before - width}}, 0);
    before += width;
  }
  return cat(blocks, 0);
}

/// The dim of hsplit (1), vsplit (0) or dsplit (2).
template <class V>
int split_dim(const char* where, const V& x, int dim) {
  ops::check_defined(where, "the tensor", plain(x));
  if (dim == 1 && x.ndim() == 1) return 0;
  const int least = dim == 1 ? 1 : std::max(2, dim + 1);
  TESSERA_CHECK(x.ndim() >= least, where, "needs at least {} dims, got shape {}; unsqueeze it",
                least, x.shape().str());
  return dim;
}

/// The extents of the parts, which tensor_split and its like give to split().
inline std::vector<std::int64_t> section_sizes(std::int64_t extent, std::int64_t sections) {
  TESSERA_CHECK(sections >= 1, "tensor_split",
                "the number of sections is {}; it must be at least 1", sections);
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(sections), extent / sections);
  for (std::int64_t i = 0; i < extent % sections; ++i) ++sizes[static_cast<std::size_t>(i)];
  return sizes;
}

template <class V>
std::vector<V> tensor_split(const V& x, std::int64_t sections, int dim) {
  ops::check_defined("tensor_split", "the tensor", plain(x));
  const int d = normalize_dim(dim, x.ndim(), "tensor_split");
  return split(x, section_sizes(x.dim(d), sections), d);
}

template <class V>
std::vector<V> tensor_split(const V& x, const std::vector<std::int64_t>& starts, int dim) {
  ops::check_defined("tensor_split", "the tensor", plain(x));
  const int d = normalize_dim(dim, x.ndim(), "tensor_split");
  const std::int64_t extent = x.dim(d);
  const auto inside = [&](std::int64_t start) {
    return std::clamp<std::int64_t>(start < 0 ? start + extent : start, 0, extent);
  };
  std::vector<V> parts;
  for (std::size_t i = 0; i <= starts.size(); ++i) {
    const std::int64_t begin = i == 0 ? 0 : inside(starts[i - 1]),
                       end = i == starts.size() ? extent : inside(starts[i]);
    parts.push_back(slice(x, d, begin, std::max(begin, end)));
  }
  return parts;
}

template <class V>
std::vector<V> split_evenly(const char* where, const V& x, std::int64_t sections, int dim) {
  const int d = split_dim(where, x, dim);
  TESSERA_CHECK(sections >= 1 && x.dim(d) % sections == 0, where,
                "dim {} of shape {} does not split into {} equal sections; use tensor_split", d,
                x.shape().str(), sections);
  return tensor_split(x, sections, d);
}

template <class V>
std::vector<V> broadcast_tensors(const std::vector<V>& list) {
  constexpr const char* kWhere = "broadcast_tensors";
  TESSERA_CHECK(!list.empty(), kWhere, "the list of tensors is empty; give at least one");
  Shape common;
  for (const V& x : list) {
    ops::check_defined(kWhere, "a tensor of the list", plain(x));
    ops::check_same_device(kWhere, plain(list.front()), plain(x));
    common = broadcast_shapes(common, x.shape(), kWhere);
  }
  std::vector<V> out;
  for (const V& x : list) out.push_back(expand(x, common));
  return out;
}

/// Throws InvalidArgument tagged `where` for a tensor of more than 1 dim.
template <class V>
void check_coordinates(const char* where, const std::vector<V>& list) {
  check_list(where, list);
  for (const V& x : list) {
    TESSERA_CHECK(x.ndim() <= 1, where, "a tensor has shape {}; give tensors of at most 1 dim",
                  x.shape().str());
  }
}

template <class V>
std::vector<V> meshgrid(const std::vector<V>& list, MeshIndexing indexing) {
  check_coordinates("meshgrid", list);
  const auto count = static_cast<int>(list.size());
  // Tensor i goes along dim i of the grid, but for x and y, which are swapped.
  const bool swaps = indexing == MeshIndexing::kXY && count >= 2;
  const auto along = [&](int i) { return swaps && i < 2 ? 1 - i : i; };
  Shape grid = Shape::filled(count, 1);
  for (int i = 0; i < count; ++i) grid[along(i)] = list[static_cast<std::size_t>(i)].numel();
  std::vector<V> out;
  for (int i = 0; i < count; ++i) {
    const V& x = list[static_cast<std::size_t>(i)];
    out.push_back(expand(reshape(x, Shape::filled(count, 1).with(along(i), x.numel())), grid));
  }
  return out;
}

template <class V>
V cartesian_prod(const std::vector<V>& list) {
  check_coordinates("cartesian_prod", list);
  if (list.size() == 1) return clone(reshape(list.front(), {list.front().numel()}));
  std::vector<V> columns;
  for (const V& x : meshgrid(list, MeshIndexing::kIJ)) columns.push_back(reshape(x, {x.numel()}));
  return stack(columns, 1);
}

}  // namespace tessera::composed
