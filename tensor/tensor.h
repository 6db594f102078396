#pragma once

/// A strided view of a storage: the value handle that everything computes on.
///
/// Copying a Tensor copies the handle; both see the same elements. clone() copies elements. Views
/// (slice, transpose, ...) share storage and *version*: every write through any view of a family
/// counts one up, which is how autograd notices that a tensor it saved was overwritten. Metadata
/// never changes after construction.
///
/// A Tensor is usable from one thread at a time, that of its rank. Elements written by a queued
/// stream are valid for the host after the stream is synchronized; item() and to_vector() do so.

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

#include "tessera/tensor/dtype.h"
#include "tessera/tensor/memory/storage.h"
#include "tessera/tensor/shape.h"

namespace tessera {

struct TensorOptions {
  DType dtype = DType::kF32;
  Device device = default_device();
  /// On the CPU: page-locked, so that a GPU copies from and to it while the host goes on.
  bool pinned = false;
};

/// What `item()` answers on the null device, where there are no values.
struct PlanValue {
  double value;
};

class Tensor {
 public:
  Tensor() = default;  ///< undefined

  /// Uninitialised elements in a storage of its own, contiguous, in the thread's current memory
  /// category.
  static Tensor empty(const Shape& shape, const TensorOptions& options = {});
  /// The same in a named storage that starts released when `materialized` is false.
  static Tensor empty_named(const Shape& shape, const TensorOptions& options,
                            MemoryCategory category, std::string name, bool materialized = true);
  /// A view of `storage`; offset and strides count elements. A new version family. Throws
  /// InvalidArgument when the view reaches outside the storage.
  static Tensor over(Storage storage, const Shape& shape, const Shape& strides, std::int64_t offset,
                     DType dtype);
  /// Contiguous copy of `values`, converted to nothing: T names the dtype. Throws InvalidArgument
  /// when counts differ.
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
  const Storage& storage() const;
  TensorOptions options() const;
  bool is_contiguous() const;

  /// Views: no copy. Dims may be negative: they count from the back. Each throws InvalidArgument
  /// for dims or ranges that do not exist.
  ///
  /// view: the same elements in row-major order in another shape, where strides allow it, else
  /// InvalidArgument (try_view: nothing); one extent may be -1. See reshape() in ops/elementwise.h.
  Tensor view(const Shape& shape) const;
  std::optional<Tensor> try_view(const Shape& shape) const;
  Tensor unflatten(int dim, const Shape& extents) const;  ///< one dim as several
  Tensor transpose(int dim0, int dim1) const;
  Tensor permute(std::span<const int> dims) const;  ///< dim i of the result is dim dims[i]
  Tensor permute(std::initializer_list<int> dims) const {
    return permute(std::span(dims.begin(), dims.size()));
  }
  Tensor movedim(int from, int to) const;  ///< the others keep their order
  /// Entries start, start + step, ... below `end` of `dim`; negative ones count from the back.
  Tensor slice(int dim, std::int64_t start, std::int64_t end, std::int64_t step = 1) const;
  Tensor narrow(int dim, std::int64_t start, std::int64_t length) const;
  Tensor select(int dim, std::int64_t index) const;  ///< one index; the dim disappears
  Tensor expand(const Shape& shape) const;  ///< extents of 1 repeat with stride 0; -1 stays
  Tensor squeeze() const;                   ///< all dims of extent 1 disappear
  Tensor squeeze(int dim) const;
  Tensor unsqueeze(int dim) const;
  /// The same elements in a version family of its own: writes through it do not count as writes to
  /// this tensor.
  Tensor detached_version() const;

  /// Writes to this view family so far.
  std::uint64_t version() const;
  /// Counts one more. `by` is the operation as the user calls it, a literal; null: it has no name.
  void bump_version(const char* by = nullptr) const;
  /// The operation that wrote to this family last, for messages; null where it did not say its
  /// name.
  const char* last_writer() const;
  /// For an operation made of others: the latest write was its own.
  void set_last_writer(const char* by) const;

  /// True when nobody else can reach the elements: this is the only handle, the family has no other
  /// view, and the storage no other owner. Handles are copied from handles, so the answer stays
  /// true while the thread that asks makes none.
  bool is_sole_owner() const;

  /// How many handles of a higher kind (autograd's variables) see this view family. Whoever makes
  /// and drops them counts; an operation in place asks whether its own is the only one.
  int family_handles() const;
  void add_family_handles(int change) const;

  /// The one element, after synchronizing the current stream. Throws InvalidArgument unless numel()
  /// == 1 and T fits the dtype; StateError on the null device, where the second form answers
  /// `plan`.
  template <class T>
  T item() const {
    return to_vector<T>(1).front();
  }
  double item(PlanValue plan) const;
  /// All elements in row-major order, after synchronizing the current stream. Throws as item().
  template <class T>
  std::vector<T> to_vector() const {
    return to_vector<T>(-1);
  }

  /// Name, dtype, shape, device and the values in even columns, for people: above 256 elements dims
  /// keep three entries at each end; one form of number suits all (1., 0.2500 or 1.0000e-07).
  std::string str() const;
  /// Shape, dtype, device, strides, offset, storage and version: what str() leaves out, no values.
  std::string debug_str() const;

 private:
  struct Impl;
  static Tensor from_host(const void* data, std::size_t count, DType dtype, const Shape& shape,
                          Device device);
  explicit Tensor(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  const Impl& impl() const;  // throws StateError when undefined
  [[noreturn]] static void throw_undefined();
  Tensor restrided(const Shape& shape, const Shape& strides, std::int64_t offset) const;
  /// Checks, waits for the current stream and answers the number of elements; expected < 0: any.
  std::size_t prepare_host_read(DType dtype, std::int64_t expected) const;
  void copy_to_host(void* out) const;
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
