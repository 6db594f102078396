#include "tessera/tensor/tensor.h"

#include <algorithm>

#include "tessera/tensor/check.h"
#include "tessera/tensor/tensor_impl.h"

namespace tessera {
namespace {

/// Bytes of a tensor. Throws InvalidArgument for negative extents and for more bytes than int64
/// holds.
std::size_t checked_bytes(const Shape& shape, DType dtype, const char* where) {
  // Empty tensors keep the product at 0, whatever their other extents are.
  std::int64_t bytes = shape.ndim() > 0 && std::find(shape.begin(), shape.end(), 0) != shape.end()
                           ? 0
                           : static_cast<std::int64_t>(dtype_size(dtype));
  for (std::int64_t extent : shape) {
    TESSERA_CHECK(extent >= 0, where, "shape {} has a negative extent; extents start at 0",
                  shape.str());
    TESSERA_CHECK(!__builtin_mul_overflow(bytes, extent, &bytes), where,
                  "shape {} of {} has more bytes than 64 bits count; use smaller extents",
                  shape.str(), dtype_name(dtype));
  }
  return static_cast<std::size_t>(bytes);
}

/// The index after the last element that the view reaches, relative to its first one.
std::int64_t reach(const Shape& shape, const Shape& strides, const char* where) {
  std::int64_t last = 0;
  for (int dim = 0; dim < shape.ndim(); ++dim) {
    if (shape[dim] == 0) return 0;
    std::int64_t span = 0;
    const bool overflow = __builtin_mul_overflow(shape[dim] - 1, strides[dim], &span) ||
                          __builtin_add_overflow(last, span, &last);
    TESSERA_CHECK(!overflow, where, "strides {} of shape {} overflow 64 bits; use smaller ones",
                  strides.str(), shape.str());
  }
  return last + 1;
}

}  // namespace

void Tensor::throw_undefined() {
  throw_error<StateError>("tensor",
                          "this tensor is undefined; assign one that was made by an operation");
}

Tensor Tensor::empty(const Shape& shape, const TensorOptions& options) {
  return empty_named(shape, options, current_memory_category(), {});
}

Tensor Tensor::empty_named(const Shape& shape, const TensorOptions& options,
                           MemoryCategory category, std::string name, bool materialized) {
  const std::size_t bytes = checked_bytes(shape, options.dtype, "tensor.empty");
  TensorStorage storage = TensorStorage::create(options.device, bytes, category, std::move(name));
  if (options.pinned) storage.pin();
  if (materialized) storage.materialize();
  return Tensor(std::make_shared<Impl>(std::move(storage), shape, contiguous_strides(shape), 0,
                                       options.dtype));
}

Tensor Tensor::over(TensorStorage storage, const Shape& shape, const Shape& strides,
                    std::int64_t offset, DType dtype) {
  constexpr const char* kWhere = "tensor.over";
  checked_bytes(shape, dtype, kWhere);
  TESSERA_CHECK(strides.ndim() == shape.ndim(), kWhere,
                "shape {} and strides {} differ in their number of dims", shape.str(),
                strides.str());
  for (std::int64_t stride : strides) {
    TESSERA_CHECK(stride >= 0, kWhere, "strides {} go backwards; they must be 0 or more",
                  strides.str());
  }
  const auto room = static_cast<std::int64_t>(storage.bytes() / dtype_size(dtype));
  const std::int64_t extent = reach(shape, strides, kWhere);
  TESSERA_CHECK(
      offset >= 0 && offset <= room && extent <= room - offset, kWhere,
      "shape {} with strides {} at offset {} reaches outside storage \"{}\" of {} {} elements; it "
      "spans {} from its offset",
      shape.str(), strides.str(), offset, storage.name(), room, dtype_name(dtype), extent);
  return Tensor(std::make_shared<Impl>(std::move(storage), shape, strides, offset, dtype));
}

bool Tensor::is_sole_owner() const {
  const Impl& self = impl();
  // A view is one more owner of the first tensor of its family.
  const bool only_handle = impl_.use_count() == 1 && (!self.root || self.root.use_count() == 1);
  if (!only_handle || self.storage().use_count() != 1) return false;
  // Makes the writes of threads that dropped their handles before visible here.
  std::atomic_thread_fence(std::memory_order_acquire);
  return true;
}

std::int64_t Tensor::dim(int d) const { return shape()[normalize_dim(d, ndim(), "tensor.dim")]; }

const char* Tensor::last_writer() const {
  return impl().family().last_writer.load(std::memory_order_relaxed);
}

void Tensor::set_last_writer(const char* by) const {
  impl().family().last_writer.store(by, std::memory_order_relaxed);
}

}  // namespace tessera
