#pragma once

/// A strided view of a storage: the value handle that all operations work on.
///
/// Copying a Tensor copies the handle; both see the same elements. clone() copies elements. Views
/// (slice, transpose, ...) share a storage and a *version*: every write through any view of the
/// family increments it. Autograd uses the version to notice that a saved tensor was overwritten.
/// Metadata never changes after construction.
///
/// A Tensor may be used by one thread at a time, its rank's. The host may read elements that a
/// queued stream writes only after it has synchronized the stream; item() and to_vector() do so.

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tessera/tensor/dims.h"
#include "tessera/tensor/dtype.h"
#include "tessera/tensor/memory/storage.h"
#include "tessera/tensor/pytorch_methods.h"
#include "tessera/tensor/shape.h"

namespace tessera {

struct TensorOptions {
  DType dtype = DType::kF32;
  Device device = default_device();
  /// CPU only: page-locked memory, so that copies from and to a GPU do not block the host.
  bool pinned = false;
};

/// The value that `item()` returns on the null device, where tensors have no values.
struct PlanValue {
  double value;
};

class Tensor;

namespace detail {
Tensor any_nonzero(const Tensor& x, const DimList& dims, bool keep_dims);
Tensor all_nonzero(const Tensor& x, const DimList& dims, bool keep_dims);
}  // namespace detail

class Tensor : public detail::PyTorchMethods {
 public:
  Tensor() = default;  ///< undefined
  Tensor(const Tensor&) = default;
  Tensor(Tensor&&) noexcept = default;
  Tensor& operator=(const Tensor&) & = default;
  Tensor& operator=(Tensor&&) & noexcept = default;
  /// t[0] = u would replace the view and write no element.
  void operator=(const Tensor&) && = delete;  ///< copy_(t[0], u)
  void operator=(double) && = delete;         ///< fill_(t[0], 1)

  /// Uninitialised elements in a storage of their own, contiguous, in the thread's current memory
  /// category.
  static Tensor empty(const Shape& shape, const TensorOptions& options = {});
  /// The same in a named storage that starts released when `materialized` is false.
  static Tensor empty_named(const Shape& shape, const TensorOptions& options,
                            MemoryCategory category, std::string name, bool materialized = true);
  /// A view of `storage`; offset and strides are in elements. It starts a new version family.
  /// Throws InvalidArgument if the view reaches outside the storage.
  static Tensor over(TensorStorage storage, const Shape& shape, const Shape& strides,
                     std::int64_t offset, DType dtype);
  /// A contiguous tensor with a copy of `values`. Its dtype is that of T; nothing is converted.
  /// Throws InvalidArgument if the number of values is not that of the shape.
  template <class T>
  static Tensor from_vector(const std::vector<T>& values, const Shape& shape,
                            Device device = default_device()) {
    if constexpr (std::is_same_v<T, bool>) {
      const auto copy = std::make_unique<bool[]>(values.size());
      std::copy(values.begin(), values.end(), copy.get());
      return from_host(copy.get(), values.size(), DType::kBool, shape, device);
    } else {
      return from_host(values.data(), values.size(), dtype_of<T>, shape, device);
    }
  }
  /// The same of `count` values at `data`, which the caller may overwrite once the call returns.
  static Tensor from_host(const void* data, std::size_t count, DType dtype, const Shape& shape,
                          Device device = default_device());
  /// A 0-d tensor.
  static Tensor scalar(double value, const TensorOptions& options = {});

  bool defined() const { return impl_ != nullptr; }
  const Shape& shape() const;
  const Shape& strides() const;  ///< in elements
  std::int64_t offset() const;   ///< in elements
  int ndim() const;
  std::int64_t dim(int d) const;  ///< extent of a dim; negative counts from the back
  std::int64_t numel() const;
  DType dtype() const;
  Device device() const;
  const TensorStorage& storage() const;
  TensorOptions options() const;
  bool is_contiguous() const;

  /// Views: no copy. Dims may be negative: they count from the back. Each throws InvalidArgument
  /// for dims or ranges that do not exist.
  ///
  /// view: the same elements in row-major order in another shape, without a copy; one extent may be
  /// -1. If the strides do not allow it, view throws InvalidArgument and try_view returns nothing.
  /// See reshape() in ops/elementwise.h.
  Tensor view(const Shape& shape) const;
  std::optional<Tensor> try_view(const Shape& shape) const;
  Tensor unflatten(int dim, const Shape& extents) const;  ///< splits one dim into several
  Tensor transpose(int dim0, int dim1) const;
  Tensor permute(std::span<const int> dims) const;  ///< dim i of the result is dim dims[i]
  Tensor permute(std::initializer_list<int> dims) const {
    return permute(std::span(dims.begin(), dims.size()));
  }
  Tensor movedim(int from, int to) const;  ///< the other dims keep their order
  /// Entries start, start + step, ... below `end` of `dim`; negative indices count from the back.
  Tensor slice(int dim, std::int64_t start, std::int64_t end, std::int64_t step = 1) const;
  Tensor narrow(int dim, std::int64_t start, std::int64_t length) const;
  Tensor select(int dim, std::int64_t index) const;  ///< one index; the dim is removed
  Tensor operator[](std::int64_t index) const { return select(0, index); }
  Tensor expand(const Shape& shape) const;  ///< extents of 1 repeat, with stride 0; -1: no change
  /// Removes the dims of extent 1: all of them, or those that are listed. Listed dims of another
  /// extent stay.
  Tensor squeeze() const;
  Tensor squeeze(int dim) const;
  Tensor squeeze(const DimList& dims) const;
  Tensor unsqueeze(int dim) const;
  /// The elements whose index in dim1 is that in dim0 plus `offset`: both dims are removed, and the
  /// diagonal is the last one. Empty if the offset is outside the matrix.
  Tensor diagonal(std::int64_t offset = 0, int dim0 = 0, int dim1 = 1) const;
  /// Windows of `size` elements of `dim`, one every `step`: the dim counts the windows, and a new
  /// last dim has their elements. For a 0-d tensor `dim` is 0 or -1 and `size` at most 1.
  Tensor unfold(int dim, std::int64_t size, std::int64_t step) const;
  /// The same elements in a new version family: writes through it do not count as writes to this
  /// tensor.
  Tensor detached_version() const;

  /// The number of writes to this view family so far.
  std::uint64_t version() const;
  /// Increments the version. `by` is the operation under the name that the user calls, a string
  /// literal; null: it has no name.
  void bump_version(const char* by = nullptr) const;
  /// The operation that wrote to this family last, for messages; null if it gave no name.
  const char* last_writer() const;
  /// For an operation made of others: sets its own name as the last writer.
  void set_last_writer(const char* by) const;

  /// True if no other object can reach the elements: this is the only handle, the family has no
  /// other view, and the storage no other owner. The result stays true as long as the calling
  /// thread does not copy the handle.
  bool is_sole_owner() const;

  /// The number of handles of a higher layer (autograd's variables) that see this view family. The
  /// code that makes and drops such handles counts them here; an in-place operation checks whether
  /// its own is the only one.
  int family_handles() const;
  void add_family_handles(int change) const;

  /// The one element, after synchronizing the current stream. A floating T gets an element of any
  /// floating dtype, converted: item<float>() reads a bf16 loss. Throws InvalidArgument unless
  /// numel() == 1 and T is floating as the dtype is, or matches it. On the null device the first
  /// form throws StateError and the second returns `plan`.
  template <class T>
  T item() const {
    if constexpr (tessera::is_floating(dtype_of<T>)) {
      return static_cast<T>(floating_item(dtype_of<T>));
    } else {
      return to_vector<T>(1).front();
    }
  }
  double item(PlanValue plan) const;
  void item() const = delete;  ///< name the type: item<float>()
  /// All elements in row-major order, after synchronizing the current stream. Throws as item().
  template <class T>
  std::vector<T> to_vector() const {
    return to_vector<T>(-1);
  }
  void to_vector() const = delete;  ///< name the type: to_vector<float>()

  /// Reductions, with the others in ops/reduce.h: bool, whether any element, or every element, of
  /// `dims` is nonzero; NaN is nonzero. For no elements false and true. Being friends, they are
  /// found by their argument and need no name in the namespace: a program that uses the namespace
  /// may have an `all` and an `any` of its own.
  friend Tensor any(const Tensor& x, const DimList& dims = {}, bool keep_dims = false) {
    return detail::any_nonzero(x, dims, keep_dims);
  }
  friend Tensor all(const Tensor& x, const DimList& dims = {}, bool keep_dims = false) {
    return detail::all_nonzero(x, dims, keep_dims);
  }

  /// Name, dtype, shape, device and the values in aligned columns. Tensors of more than 256
  /// elements show three entries at each end of a dim. One number format is used for all values
  /// (1., 0.2500 or 1.0000e-07).
  std::string str() const;
  /// Shape, dtype, device, strides, offset, storage and version, which str() leaves out; no values.
  std::string debug_str() const;

 private:
  struct Impl;
  explicit Tensor(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  const Impl& impl() const;  // throws StateError when undefined
  [[noreturn]] static void throw_undefined();
  Tensor restrided(const Shape& shape, const Shape& strides, std::int64_t offset) const;
  /// Checks, waits for the current stream and returns the number of elements; expected < 0: any.
  std::size_t prepare_host_read(DType dtype, std::int64_t expected) const;
  void copy_to_host(void* out) const;
  double floating_item(DType wanted) const;
  template <class T>
  std::vector<T> to_vector(std::int64_t expected) const {
    const std::size_t count = prepare_host_read(dtype_of<T>, expected);
    if constexpr (std::is_same_v<T, bool>) {  // std::vector<bool> has no array
      const auto copy = std::make_unique<bool[]>(count);
      copy_to_host(copy.get());
      return std::vector<bool>(copy.get(), copy.get() + count);
    } else {
      std::vector<T> out(count);
      copy_to_host(out.data());
      return out;
    }
  }
  std::shared_ptr<const Impl> impl_;
};

/// As str().
std::ostream& operator<<(std::ostream& out, const Tensor& tensor);

}  // namespace tessera

#include "tessera/tensor/tensor_impl.h"
