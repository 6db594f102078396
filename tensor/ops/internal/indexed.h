#pragma once

/// What operations that follow indices share: from tensors to the kernels gather and scatter.
/// Private to this folder.

#include "tessera/tensor/check.h"
#include "tessera/tensor/kernels/indexed.h"
#include "tessera/tensor/kernels/scatter.h"
#include "tessera/tensor/tensor.h"

namespace tessera::ops {

/// For kernels to call; the operation is a template argument because they take a plain pointer.
template <const char* const& where>
[[noreturn]] void throw_bad_index(std::int64_t index, std::int64_t position, std::int64_t extent,
                                  int dim) {
  throw_error<InvalidArgument>(
      where, "index {} at position {} is outside [0, {}), the extent of dim {}; count from 0",
      index, position, extent, dim);
}

/// Both defined, on one device, the index i64 or i32.
void check_index(const char* where, const Tensor& x, const Tensor& index);
/// Sums of bool are refused.
void check_addable(const char* where, const Tensor& x);

/// Which elements are meant: the indices have the shape of all that is moved, by strides of 0 where
/// one stands for many.
struct Chosen {
  int dim = 0;
  Tensor index;
};

/// `index` [n] along `dim` of `shape`, whose extent there is n.
Chosen slices(const Tensor& index, int dim, const Shape& shape);

/// The chosen elements of x.
Tensor gathered(const Tensor& x, const Chosen& chosen, BadIndex bad_index);

struct Put {
  const char* where = "";  ///< the operation, for errors about overwritten tensors
  ScatterMode mode = ScatterMode::kAssign;
  std::int64_t skip = -1;
  BadIndex bad_index = nullptr;
};
/// src, of out's dtype, to the chosen places of out.
void put(const Tensor& out, const Chosen& chosen, const Tensor& src, const Put& how);
/// src, of any dtype, added there; sums of 16-bit dtypes in f32.
void add_into(const Tensor& out, const Chosen& chosen, const Tensor& src, Put how);

}  // namespace tessera::ops
