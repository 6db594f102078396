#pragma once

/// The object behind a Tensor handle, and the inline accessors. Included at the end of tensor.h.
/// Operations read shapes and dtypes all the time, so the accessors are inline.

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "tessera/tensor/tensor.h"

namespace tessera {

struct Tensor::Impl {
  /// The first tensor of a view family.
  Impl(TensorStorage storage_in, const Shape& shape_in, const Shape& strides_in,
       std::int64_t offset_in, DType dtype_in)
      : shape(shape_in),
        strides(strides_in),
        device(storage_in.device()),
        offset(offset_in),
        numel(shape_in.numel()),
        dtype(dtype_in),
        contiguous(tessera::is_contiguous(shape_in, strides_in)),
        own_storage(std::move(storage_in)) {}
  /// A view of the family of `root_in`.
  Impl(std::shared_ptr<const Impl> root_in, const Shape& shape_in, const Shape& strides_in,
       std::int64_t offset_in)
      : shape(shape_in),
        strides(strides_in),
        device(root_in->device),
        offset(offset_in),
        numel(shape_in.numel()),
        dtype(root_in->dtype),
        contiguous(tessera::is_contiguous(shape_in, strides_in)),
        root(std::move(root_in)) {}

  const TensorStorage& storage() const { return root ? root->own_storage : own_storage; }
  const Impl& family() const { return root ? *root : *this; }

  const Shape shape;
  const Shape strides;
  const Device device;
  const std::int64_t offset;
  const std::int64_t numel;
  const DType dtype;
  const bool contiguous;
  // For views: the first tensor of the family, which holds the storage, the version and the other
  // state that the family shares.
  const std::shared_ptr<const Impl> root;
  const TensorStorage own_storage;
  mutable std::atomic<std::uint64_t> version{0};
  mutable std::atomic<const char*> last_writer{nullptr};
  mutable std::atomic<int> handles{0};
};

inline const Tensor::Impl& Tensor::impl() const {
  if (impl_ == nullptr) [[unlikely]]
    throw_undefined();
  return *impl_;
}

inline const Shape& Tensor::shape() const { return impl().shape; }
inline const Shape& Tensor::strides() const { return impl().strides; }
inline std::int64_t Tensor::offset() const { return impl().offset; }
inline int Tensor::ndim() const { return impl().shape.ndim(); }
inline std::int64_t Tensor::numel() const { return impl().numel; }
inline DType Tensor::dtype() const { return impl().dtype; }
inline Device Tensor::device() const { return impl().device; }
inline TensorOptions Tensor::options() const { return {.dtype = dtype(), .device = device()}; }
inline const TensorStorage& Tensor::storage() const { return impl().storage(); }
inline bool Tensor::is_contiguous() const { return impl().contiguous; }

inline std::uint64_t Tensor::version() const {
  return impl().family().version.load(std::memory_order_relaxed);
}

inline void Tensor::bump_version(const char* by) const {
  // Only one thread at a time writes to a family, so no read-modify-write is needed; other threads
  // may only read.
  const Impl& family = impl().family();
  family.version.store(family.version.load(std::memory_order_relaxed) + 1,
                       std::memory_order_relaxed);
  family.last_writer.store(by, std::memory_order_relaxed);
}

inline int Tensor::family_handles() const {
  return impl().family().handles.load(std::memory_order_relaxed);
}

inline void Tensor::add_family_handles(int change) const {
  // Counted on every thread that wraps a shared, frozen tensor.
  impl().family().handles.fetch_add(change, std::memory_order_relaxed);
}

}  // namespace tessera
