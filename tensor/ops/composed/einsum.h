#pragma once

/// The definitions of ops/einsum.h. For the .cc files that instantiate them.

#include <string_view>

#include "tessera/tensor/ops/composed/contraction.h"
#include "tessera/tensor/ops/einsum.h"

namespace tessera::composed {

// The multiplications that the product of a and b takes.
template <class V>
double product_cost(const Labelled<V>& a, const Labelled<V>& b) {
  double cost = 1;
  for (int label : a.labels) {
    const std::int64_t other = has_label(b.labels, label) ? b.extent(label) : 1;
    cost *= static_cast<double>(other == 1 ? a.extent(label) : other);
  }
  for (int label : b.labels)
    if (!has_label(a.labels, label)) cost *= static_cast<double>(b.extent(label));
  return cost;
}

template <class V>
std::pair<std::size_t, std::size_t> cheapest_pair(const std::vector<Labelled<V>>& terms) {
  std::pair<std::size_t, std::size_t> best = {0, 1};
  for (std::size_t i = 0; i < terms.size(); ++i) {
    for (std::size_t j = i + 1; j < terms.size(); ++j)
      if (product_cost(terms[i], terms[j]) < product_cost(terms[best.first], terms[best.second]))
        best = {i, j};
  }
  return best;
}

// Replaces two terms by their product, summed over the labels that neither the output nor another term has.
template <class V>
void multiply_pair(std::vector<Labelled<V>>& terms, const DimLabels& output) {
  const auto [i, j] = cheapest_pair(terms);
  DimLabels kept = output;
  for (std::size_t k = 0; k < terms.size(); ++k)
    if (k != i && k != j) kept = joined(kept, terms[k].labels);
  terms[i] = contract("einsum", terms[i], terms[j], kept);
  terms.erase(terms.begin() + static_cast<std::ptrdiff_t>(j));
}

template <class V>
V einsum(std::string_view equation, const std::vector<V>& operands) {
  constexpr const char* kWhere = "einsum";
  TESSERA_CHECK(!operands.empty(), kWhere, "got no operands; pass at least one");
  std::vector<Shape> shapes;
  for (const V& x : operands) {
    const Tensor& elements = floating(kWhere, x);
    ops::check_operands(kWhere, plain(operands.front()), elements);
    shapes.push_back(elements.shape());
  }
  const ops::EinsumEquation parsed = ops::parse_einsum(equation, shapes);
  std::vector<Labelled<V>> terms;
  for (std::size_t i = 0; i < operands.size(); ++i)
    terms.push_back(diagonal(Labelled<V>{operands[i], parsed.operands[i]}));
  while (terms.size() > 1) multiply_pair(terms, parsed.output);
  const auto is_summed = [&](int label) { return !has_label(parsed.output, label); };
  return arranged(summed_over(terms.front(), is_summed), parsed.output);
}

// Of a product of two tensors: a's dims are labelled by their positions, b's behind them.
struct PairLabels {
  PairLabels(const Tensor& a, const Tensor& b) : left(ndims(a)), right(ndims(b)) {
    std::iota(left.begin(), left.end(), 0);
    std::iota(right.begin(), right.end(), a.ndim());
  }
  static std::size_t ndims(const Tensor& x) { return static_cast<std::size_t>(x.ndim()); }
  // Dim i of a with dim j of b, for the sum.
  void match(int i, int j) {
    right[static_cast<std::size_t>(j)] = left[static_cast<std::size_t>(i)];
    summed.push_back(left[static_cast<std::size_t>(i)]);
  }
  DimLabels left;
  DimLabels right;
  DimLabels summed;
};

// Checks the operands of `where`.
template <class V>
void check_pair(const char* where, const V& a, const V& b) {
  ops::check_operands(where, plain(a), plain(b));
  ops::check_floating(where, plain(a));
}

template <class V>
V product_of(const char* where, const V& a, const V& b, const PairLabels& labels) {
  DimLabels kept;
  for (int label : joined(labels.left, labels.right))
    if (!has_label(labels.summed, label)) kept.push_back(label);
  return contract(where, Labelled<V>{a, labels.left}, Labelled<V>{b, labels.right}, kept).x;
}

template <class V>
V tensordot(const V& a, const V& b, const DimList& dims_a, const DimList& dims_b) {
  constexpr const char* kWhere = "tensordot";
  check_pair(kWhere, a, b);
  const std::span<const int> of_a(dims_a.begin(), dims_a.end()), of_b(dims_b.begin(), dims_b.end());
  TESSERA_CHECK(of_a.size() == of_b.size(), kWhere,
                "got {} dims of a and {} of b; each dim of a is summed with one of b", of_a.size(),
                of_b.size());
  dim_mask(dims_a, a.ndim(), kWhere);
  dim_mask(dims_b, b.ndim(), kWhere);
  PairLabels labels(plain(a), plain(b));
  for (std::size_t k = 0; k < of_a.size(); ++k) {
    const int i = normalize_dim(of_a[k], a.ndim(), kWhere);
    const int j = normalize_dim(of_b[k], b.ndim(), kWhere);
    const std::int64_t first = a.shape()[i], second = b.shape()[j];
    TESSERA_CHECK(first == second || first == 1 || second == 1, kWhere,
                  "dim {} of {} and dim {} of {} have extents {} and {}; they are equal, or one is "
                  "1",
                  i, a.shape().str(), j, b.shape().str(), first, second);
    labels.match(i, j);
  }
  return product_of(kWhere, a, b, labels);
}

template <class V>
V tensordot(const V& a, const V& b, int dims) {
  constexpr const char* kWhere = "tensordot";
  check_pair(kWhere, a, b);
  TESSERA_CHECK(dims >= 0 && dims <= std::min(a.ndim(), b.ndim()), kWhere,
                "sums over {} dims of {} and {}; it must be one number from 0 to their dims", dims,
                a.shape().str(), b.shape().str());
  std::vector<int> last(static_cast<std::size_t>(dims)), first = last;
  std::iota(last.begin(), last.end(), a.ndim() - dims);
  std::iota(first.begin(), first.end(), 0);
  return tensordot(a, b, DimList(last), DimList(first));
}

template <class V>
V inner(const V& a, const V& b) {
  constexpr const char* kWhere = "inner";
  check_pair(kWhere, a, b);
  if (a.ndim() == 0 || b.ndim() == 0) return mul(a, b);
  TESSERA_CHECK(a.shape().back() == b.shape().back(), kWhere,
                "the last dims of {} and {} differ; they must be equal", a.shape().str(),
                b.shape().str());
  PairLabels labels(plain(a), plain(b));
  labels.match(a.ndim() - 1, b.ndim() - 1);
  return product_of(kWhere, a, b, labels);
}

}  // namespace tessera::composed
