#pragma once

/// Counting: distinct values, bins, and positions among sorted values.
///
/// The size of unique's and bincount's results depends on the values. Without a `bound` they wait
/// for the device, and throw StateError on the null device, which has no values. With one they do
/// not wait, and the results have that size on every device.

#include <optional>

#include "tessera/tensor/tensor.h"

namespace tessera {

struct UniqueOptions {
  bool return_inverse = false;
  bool return_counts = false;
  /// Slices along this dim are compared instead of elements.
  std::optional<int> dim = {};
  /// The number of entries of `values` and `counts`. After the distinct values the last one is
  /// repeated, with count 0. More distinct values than that are an InvalidArgument, thrown at once
  /// on an inline stream, by the next synchronize() on a queued one.
  std::optional<std::int64_t> bound = {};
};
struct UniqueValues {
  Tensor values;   ///< [distinct], or with a dim x's shape with that extent there; x's dtype
  Tensor inverse;  ///< the position in `values` of each element, x's shape, or of each slice,
                   ///< [slices]; i64; undefined unless asked for
  Tensor counts;   ///< [distinct], i64: how often each value occurs; undefined unless asked for
};
/// The distinct values of all elements, in ascending order; with a dim the distinct slices, in
/// ascending order of their elements in row-major order, the first that differs deciding. All
/// dtypes. -0 equals 0; each NaN differs from every other. A bound must be at least 1 where x has
/// elements. With a dim and without a bound it waits for the device once for each element of a
/// slice until all slices differ.
UniqueValues unique(const Tensor& x, const UniqueOptions& options = {});
/// The elements in row-major order. An element is left out if it equals the one before it. With a dim the
/// same of slices.
UniqueValues unique_consecutive(const Tensor& x, const UniqueOptions& options = {});

struct BincountOptions {
  Tensor weights = {};                     ///< x's shape: what each element counts; undefined: 1
  std::int64_t minlength = 0;              ///< the least number of bins
  std::optional<std::int64_t> bound = {};  ///< the number of bins, at least minlength
};
/// How often each of 0, 1, ... the largest element occurs in x [n]: i64, with weights f32 if they
/// are f32, else f64. x is i64, i32 or u8. A negative element, or one that reaches the bound, is an
/// InvalidArgument, thrown as in ops/index.h.
Tensor bincount(const Tensor& x, const BincountOptions& options = {});

struct HistcOptions {
  std::int64_t bins = 100;
  double min = 0;  ///< if min equals max, the range of the elements, one wider each way if that is
  double max = 0;  ///< empty
};
/// How many elements lie in each of `bins` equal parts of [min, max], [bins] in x's dtype; max
/// belongs to the last part. Elements outside, NaN, and all if the range is not finite, do not
/// count. Floating only. Throws InvalidArgument unless bins >= 1 and min <= max are finite.
Tensor histc(const Tensor& x, const HistcOptions& options = {});

struct SearchsortedOptions {
  bool right = false;  ///< after elements that are equal to the value, not before
};
/// For each value the position in its sorted line at which inserting it keeps the order, i64, in the
/// shape of values. sorted [n] is one line for all values; sorted [..., n] has the leading dims of
/// values [..., m]. Different dtypes are promoted. The order is not checked; as in PyTorch, a NaN in
/// `sorted` comes before every value, and every element before a NaN.
Tensor searchsorted(const Tensor& sorted, const Tensor& values,
                    const SearchsortedOptions& options = {});
/// searchsorted(boundaries, x, options) with boundaries [n]: bucket i holds boundaries[i - 1] < x <=
/// boundaries[i], with `right` boundaries[i - 1] <= x < boundaries[i].
Tensor bucketize(const Tensor& x, const Tensor& boundaries,
                 const SearchsortedOptions& options = {});

}  // namespace tessera
