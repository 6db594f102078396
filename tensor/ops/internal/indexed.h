#pragma once

/// Shared by the operations with indices: launches the gather and scatter kernels. Private to this
/// folder.

#include "tessera/tensor/check.h"
#include "tessera/tensor/kernels/indexing.h"
#include "tessera/tensor/tensor.h"

namespace tessera::ops {

/// Called by kernels. The operation is a template argument because kernels take a plain function
/// pointer.
template <const char* const& where>
[[noreturn]] void throw_bad_index(std::int64_t index, std::int64_t position, std::int64_t extent,
                                  int dim) {
  throw_error<InvalidArgument>(
      where, "index {} at position {} is outside [0, {}), the extent of dim {}; count from 0",
      index, position, extent, dim);
}

/// The same for operations that count negative indices from the back.
template <const char* const& where>
[[noreturn]] void throw_bad_signed_index(std::int64_t index, std::int64_t position,
                                         std::int64_t extent, int dim) {
  throw_error<InvalidArgument>(
      where,
      "index {} at position {} is outside [-{}, {}); dim {} has {} entries, and negative indices "
      "count from its end",
      index, position, extent, extent, dim, extent);
}

/// Checks that both are defined and on one device, and that the index is i64 or i32.
void check_index(const char* where, const Tensor& x, const Tensor& index);
/// Throws for bool, which cannot be summed.
void check_addable(const char* where, const Tensor& x);
/// Throws for a number that is not whole, if x is not floating.
void check_number(const char* where, const Tensor& x, double value);
/// Throws unless value is a defined 0-d tensor on x's device, whose kind is not above x's.
void check_value(const char* where, const Tensor& x, const Tensor& value);
/// x, or a copy of it if it shares memory with `out`: for a scatter, which reads x while it writes
/// `out` in another order.
Tensor away_from(const Tensor& out, const Tensor& x);

/// The selected elements. The indices are expanded to the shape of all elements that are moved;
/// strides are 0 where one index selects many elements.
struct Chosen {
  int dim = 0;
  Tensor index;
  bool from_back = false;  ///< negative indices count from the back
};

/// Checks that the index has as many dims as x, and fits inside outside `dim`.
void check_extents(const char* where, const Tensor& x, int dim, const Tensor& index);
/// Checks a scatter; returns the selected elements. A 0-d operand counts as [1].
Chosen scattered(const char* where, const Tensor& x, int dim, const Tensor& index,
                 const Tensor& src);

/// `index` [n] along `dim` of `shape`, whose extent there is n.
Chosen slices(const Tensor& index, int dim, const Shape& shape);

/// The selected elements of x.
Tensor gathered(const Tensor& x, const Chosen& chosen, BadIndex bad_index);

struct Put {
  const char* where = "";  ///< the operation, for errors about overwritten tensors
  ScatterMode mode = ScatterMode::kAssign;
  std::int64_t skip = -1;
  BadIndex bad_index = nullptr;
};
/// Writes src to the selected elements of out; the kernel says which dtypes it takes.
void put(const Tensor& out, const Chosen& chosen, const Tensor& src, const Put& how);
/// Folds src, of any dtype, into the selected elements, as how.mode says, which is not kAssign;
/// 16-bit dtypes are folded in f32 and rounded once.
void fold_into(const Tensor& out, const Chosen& chosen, const Tensor& src, const Put& how);
/// fold_into by kAdd.
void add_into(const Tensor& out, const Chosen& chosen, const Tensor& src, Put how);

}  // namespace tessera::ops
