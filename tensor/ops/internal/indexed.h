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

/// Checks that both are defined and on one device, and that the index is i64 or i32.
void check_index(const char* where, const Tensor& x, const Tensor& index);
/// Throws for bool, which cannot be summed.
void check_addable(const char* where, const Tensor& x);

/// The selected elements. The indices are expanded to the shape of all elements that are moved;
/// strides are 0 where one index selects many elements.
struct Chosen {
  int dim = 0;
  Tensor index;
};

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
/// Writes src, which has out's dtype, to the selected elements of out.
void put(const Tensor& out, const Chosen& chosen, const Tensor& src, const Put& how);
/// Adds src, of any dtype, to the selected elements; sums of 16-bit dtypes are in f32.
void add_into(const Tensor& out, const Chosen& chosen, const Tensor& src, Put how);

}  // namespace tessera::ops
