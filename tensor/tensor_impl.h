#pragma once

/// What a Tensor handle holds. For tensor*.cc only.

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "tessera/tensor/tensor.h"

namespace tessera {

struct Tensor::Impl {
  Impl(Storage storage_in, const Shape& shape_in, const Shape& strides_in, std::int64_t offset_in,
       DType dtype_in, std::shared_ptr<const Impl> root_in)
      : storage(std::move(storage_in)),
        shape(shape_in),
        strides(strides_in),
        offset(offset_in),
        numel(shape_in.numel()),
        dtype(dtype_in),
        contiguous(tessera::is_contiguous(shape_in, strides_in)),
        root(std::move(root_in)) {}

  std::atomic<std::uint64_t>& family_version() const { return root ? root->version : version; }

  const Storage storage;
  const Shape shape;
  const Shape strides;
  const std::int64_t offset;
  const std::int64_t numel;
  const DType dtype;
  const bool contiguous;
  // The first tensor of the view family holds its version counter; null in that tensor itself.
  const std::shared_ptr<const Impl> root;
  mutable std::atomic<std::uint64_t> version{0};
};

}  // namespace tessera
