#pragma once

/// Products of two tensors whose dims have labels: dims with one label are multiplied element by element, or summed
/// over. What einsum and tensordot are made of. For the .cc files that instantiate them.

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "tessera/tensor/ops/composed/operands.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/internal/einsum_equation.h"
#include "tessera/tensor/ops/matmul.h"
#include "tessera/tensor/ops/reduce.h"

namespace tessera::composed {

using ops::DimLabels;
using ops::has_label;

/// A tensor with a label for each dim.
template <class V>
struct Labelled {
  V x;
  DimLabels labels;

  int dim_of(int label) const {
    const auto at = std::find(labels.begin(), labels.end(), label);
    return static_cast<int>(at - labels.begin());
  }
  std::int64_t extent(int label) const { return x.shape()[dim_of(label)]; }
  /// Without the dim of a label; `without` is x without it.
  Labelled dropped(int label, V without) const {
    DimLabels rest = labels;
    rest.erase(rest.begin() + dim_of(label));
    return {std::move(without), std::move(rest)};
  }
};

/// x with its dims in the order of `labels`, which are all that it has.
template <class V>
V arranged(const Labelled<V>& a, const DimLabels& labels) {
  if (a.labels == labels) return a.x;
  std::vector<int> dims;
  for (int label : labels) dims.push_back(a.dim_of(label));
  return permuted(a.x, std::span<const int>(dims));
}

/// Sums over the labels for which `is_summed` is true.
template <class V, class Predicate>
Labelled<V> summed_over(const Labelled<V>& a, const Predicate& is_summed) {
  std::vector<int> dims;
  DimLabels rest;
  for (int label : a.labels)
    is_summed(label) ? dims.push_back(a.dim_of(label)) : rest.push_back(label);
  if (dims.empty()) return a;
  return {sum(a.x, dims), rest};
}

/// Each pair of dims with one label as the dim of their diagonal.
template <class V>
Labelled<V> diagonal(Labelled<V> a) {
  for (std::size_t i = 0; i < a.labels.size();) {
    const int label = a.labels[i];
    const auto again =
        std::find(a.labels.begin() + static_cast<std::ptrdiff_t>(i) + 1, a.labels.end(), label);
    if (again == a.labels.end()) {
      ++i;
      continue;
    }
    const int second = static_cast<int>(again - a.labels.begin());
    const V last = a.x.movedim(second, -1).movedim(static_cast<int>(i), -1);
    // Row-major, the diagonal of [n, n] is each (n + 1)th element.
    const std::int64_t n = last.shape().back();
    Shape merged = last.shape().without(last.ndim() - 1);
    merged[merged.ndim() - 1] = n * n;
    const V elements = reshape(last, merged).slice(-1, 0, n * n, n + 1);
    a.labels.erase(again);
    a = a.dropped(label, elements);
    a.labels.push_back(label);
    i = 0;
  }
  return a;
}

/// Without the dims of extent 1 that the other's extents repeat.
template <class V>
Labelled<V> without_repeated(Labelled<V> a, const Labelled<V>& other) {
  for (int label : DimLabels(a.labels)) {
    if (has_label(other.labels, label) && a.extent(label) == 1 && other.extent(label) != 1)
      a = a.dropped(label, a.x.squeeze(a.dim_of(label)));
  }
  return a;
}

// The labels of a product, by what is done with them.
struct ProductLabels {
  DimLabels batch;   // of both, kept
  DimLabels summed;  // of both, not kept
  DimLabels left;    // of one alone
  DimLabels right;

  template <class V>
  ProductLabels(const Labelled<V>& a, const Labelled<V>& b, const DimLabels& kept) {
    for (int label : a.labels) {
      const bool is_of_both = has_label(b.labels, label);
      (!is_of_both ? left : has_label(kept, label) ? batch : summed).push_back(label);
    }
    for (int label : b.labels)
      if (!has_label(a.labels, label)) right.push_back(label);
  }
};

inline DimLabels joined(const DimLabels& a, const DimLabels& b, const DimLabels& c = {}) {
  DimLabels all = a;
  all.insert(all.end(), b.begin(), b.end());
  all.insert(all.end(), c.begin(), c.end());
  return all;
}

template <class V>
Shape extents(const Labelled<V>& a, const DimLabels& labels) {
  Shape out;
  for (int label : labels) out.push_back(a.extent(label));
  return out;
}

inline Shape joined(Shape a, const Shape& b) {
  for (std::int64_t extent : b) a.push_back(extent);
  return a;
}

/// The product of a and b over all their labels, of which those stay that are in `kept`: the common ones first, then
/// those of a, then those of b. Extents of one label are equal, or one is 1. Each operand is
/// summed over the labels that it alone has; the rest is one matrix product, or a batch of them. Throws InvalidArgument
/// tagged `where` if the result has too many dims.
template <class V>
Labelled<V> contract(const char* where, Labelled<V> a, Labelled<V> b, const DimLabels& kept) {
  a = without_repeated(a, b);
  b = without_repeated(b, a);
  const auto is_alone_in = [&](const Labelled<V>& other) {
    return [&](int label) { return !has_label(kept, label) && !has_label(other.labels, label); };
  };
  a = summed_over(a, is_alone_in(b));
  b = summed_over(b, is_alone_in(a));
  const ProductLabels l(a, b, kept);
  const DimLabels all = joined(l.batch, l.left, l.right);
  TESSERA_CHECK(all.size() <= kMaxDims, where,
                "the product of {} and {} has {} dims, a tensor at most {}; sum over some earlier",
                a.x.shape().str(), b.x.shape().str(), all.size(), kMaxDims);
  const Shape batch = extents(a, l.batch), left = extents(a, l.left), right = extents(b, l.right);
  const V rows = arranged(a, joined(l.batch, l.left, l.summed));
  if (l.summed.empty()) {
    const V columns = arranged(b, joined(l.batch, l.right));
    const Shape none = Shape::filled(left.ndim(), 1);
    return {mul(reshape(rows, joined(joined(batch, left), Shape::filled(right.ndim(), 1))),
                reshape(columns, joined(joined(batch, none), right))),
            all};
  }
  const V columns = arranged(b, joined(l.batch, l.summed, l.right));
  const std::int64_t m = left.numel(), k = extents(a, l.summed).numel(), n = right.numel();
  const Shape batches = batch.ndim() == 0 ? Shape() : Shape{batch.numel()};
  const V product =
      matmul(reshape(rows, joined(batches, {m, k})), reshape(columns, joined(batches, {k, n})));
  return {reshape(product, joined(joined(batch, left), right)), all};
}

}  // namespace tessera::composed
