#pragma once

/// Operations on variables whose results have no gradient: comparisons, predicates, bits of integers,
/// positions, counts. They return tensors, and are those of tensor/ops under the same names, where
/// shapes, dtypes and errors are described. `eq(x, 0)` is `eq(x.tensor(), 0)`; any(x) and all(x) are
/// in variable.h.

#include <concepts>
#include <optional>

#include "tessera/autograd/variable.h"
#include "tessera/tensor/ops/counting.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/order.h"
#include "tessera/tensor/ops/reduce.h"

namespace tessera {

namespace detail {

/// At least one of two operands is a variable.
template <class A, class B>
concept HasVariable = std::same_as<A, Variable> || std::same_as<B, Variable>;

inline const Tensor& plain(const Variable& x) { return x.tensor(); }
template <class T>
requires(!std::same_as<T, Variable>) const T& plain(const T& x) { return x; }

}  // namespace detail

#define TESSERA_COMPARISON(name)                                           \
  template <class A, class B>                                              \
  requires detail::HasVariable<A, B> Tensor name(const A& a, const B& b) { \
    return name(detail::plain(a), detail::plain(b));                       \
  }
TESSERA_COMPARISON(eq)
TESSERA_COMPARISON(ne)
TESSERA_COMPARISON(lt)
TESSERA_COMPARISON(le)
TESSERA_COMPARISON(gt)
TESSERA_COMPARISON(ge)
TESSERA_COMPARISON(logical_and)
TESSERA_COMPARISON(logical_or)
TESSERA_COMPARISON(logical_xor)
TESSERA_COMPARISON(bitwise_and)
TESSERA_COMPARISON(bitwise_or)
TESSERA_COMPARISON(bitwise_xor)
TESSERA_COMPARISON(bitwise_left_shift)
TESSERA_COMPARISON(bitwise_right_shift)
#undef TESSERA_COMPARISON

#define TESSERA_COMPARISON_OPERATOR(op, name)                                     \
  template <class A, class B>                                                     \
  requires detail::HasVariable<A, B> Tensor operator op(const A& a, const B& b) { \
    return name(a, b);                                                            \
  }
TESSERA_COMPARISON_OPERATOR(<, lt)
TESSERA_COMPARISON_OPERATOR(<=, le)
TESSERA_COMPARISON_OPERATOR(>, gt)
TESSERA_COMPARISON_OPERATOR(>=, ge)
TESSERA_COMPARISON_OPERATOR(&, bitwise_and)
TESSERA_COMPARISON_OPERATOR(|, bitwise_or)
#undef TESSERA_COMPARISON_OPERATOR
template <class A, class B>
requires detail::HasVariable<A, B>
void operator==(const A& a, const B& b) = delete;  ///< eq(a, b), or equal(a, b)

inline Tensor logical_not(const Variable& x) { return logical_not(x.tensor()); }
inline Tensor isnan(const Variable& x) { return isnan(x.tensor()); }
inline Tensor isinf(const Variable& x) { return isinf(x.tensor()); }
inline Tensor isfinite(const Variable& x) { return isfinite(x.tensor()); }
inline Tensor signbit(const Variable& x) { return signbit(x.tensor()); }
inline Tensor bitwise_not(const Variable& x) { return bitwise_not(x.tensor()); }
inline Tensor operator~(const Variable& x) { return bitwise_not(x); }

template <class A, class B>
requires detail::HasVariable<A, B> Tensor isclose(const A& a, const B& b,
                                                  const IsCloseOptions& options = {}) {
  return isclose(detail::plain(a), detail::plain(b), options);
}
template <class A, class B>
requires detail::HasVariable<A, B>
bool allclose(const A& a, const B& b, const IsCloseOptions& options = {}) {
  return allclose(detail::plain(a), detail::plain(b), options);
}
template <class A, class B>
requires detail::HasVariable<A, B>
bool equal(const A& a, const B& b) { return equal(detail::plain(a), detail::plain(b)); }

inline Tensor argmax(const Variable& x, std::optional<int> dim = -1, bool keep_dims = false) {
  return argmax(x.tensor(), dim, keep_dims);
}
inline Tensor argmin(const Variable& x, std::optional<int> dim = -1, bool keep_dims = false) {
  return argmin(x.tensor(), dim, keep_dims);
}
inline Tensor argsort(const Variable& x, int dim = -1, const SortOptions& options = {}) {
  return argsort(x.tensor(), dim, options);
}

inline Tensor count_nonzero(const Variable& x, const DimList& dims = {}, bool keep_dims = false) {
  return count_nonzero(x.tensor(), dims, keep_dims);
}
inline UniqueValues unique(const Variable& x, const UniqueOptions& options = {}) {
  return unique(x.tensor(), options);
}
inline UniqueValues unique_consecutive(const Variable& x, const UniqueOptions& options = {}) {
  return unique_consecutive(x.tensor(), options);
}
inline Tensor histc(const Variable& x, const HistcOptions& options = {}) {
  return histc(x.tensor(), options);
}
template <class A, class B>
requires detail::HasVariable<A, B> Tensor searchsorted(const A& sorted, const B& values,
                                                       const SearchsortedOptions& options = {}) {
  return searchsorted(detail::plain(sorted), detail::plain(values), options);
}
template <class A, class B>
requires detail::HasVariable<A, B> Tensor bucketize(const A& x, const B& boundaries,
                                                    const SearchsortedOptions& options = {}) {
  return bucketize(detail::plain(x), detail::plain(boundaries), options);
}

}  // namespace tessera
