#pragma once

/// The units that gather.cu and scatter.cu move: unconverted elements, as many bytes at a time as
/// possible.

#include <cstdint>

#include "tessera/tensor/cuda/faults.h"
#include "tessera/tensor/kernels/cuda/elementwise/elements.h"
#include "tessera/tensor/kernels/cuda/elementwise/index_dims.h"
#include "tessera/tensor/kernels/indexing.h"

namespace tessera::cuda {

/// The indices in memory, i64 or i32.
struct IndexSource {
  const void* data;
  bool is_wide;
  std::int64_t extent;  ///< valid indices are in [least, extent)
  std::int64_t least;

  TESSERA_HD std::int64_t at(std::int64_t offset) const {
    return is_wide ? static_cast<const std::int64_t*>(data)[offset]
                   : static_cast<const std::int32_t*>(data)[offset];
  }
  TESSERA_HD bool has(std::int64_t value) const { return value >= least && value < extent; }
  /// A valid index, counted from the front.
  TESSERA_HD std::int64_t from_front(std::int64_t value) const {
    return value < 0 ? value + extent : value;
  }
};
inline IndexSource index_source(const ConstView& index, const IndexedWalk& walk) {
  return {.data = index.data,
          .is_wide = index.dtype == DType::kI64,
          .extent = walk.extent,
          .least = walk.least};
}

/// For unit_bytes().
inline std::uint64_t address_bits(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address);
}
/// The byte strides of the operands that move, combined by or; dims of extent 1 are ignored.
inline std::uint64_t stride_bits(const IndexDims& dims, std::int64_t element_size) {
  std::int64_t bits = 0;
  for (int d = 0; d < dims.ndim; ++d) {
    if (dims.shape[d] > 1) bits |= (dims.indexed[d] | dims.other[d]) * element_size;
  }
  return static_cast<std::uint64_t>(bits);
}

/// body.template operator()<U>() for a type of 1, 2, 4, 8 or 16 bytes.
template <class Body>
void with_unit(int bytes, const Body& body) {
  switch (bytes) {
    case 1:
      return body.template operator()<std::uint8_t>();
    case 2:
      return body.template operator()<std::uint16_t>();
    case 4:
      return body.template operator()<std::uint32_t>();
    case 8:
      return body.template operator()<std::uint64_t>();
    default:
      return body.template operator()<Pack<std::uint32_t>>();
  }
}

// An index out of range, found by a GPU kernel: BadIndex is called at the next host wait.

inline void throw_index_fault(FaultCallback callback, const std::int64_t* numbers) {
  const auto bad_index = reinterpret_cast<BadIndex>(callback);
  bad_index(numbers[0], numbers[1], numbers[2], static_cast<int>(numbers[3]));
}

/// For report_fault(reporter, index, position, extent, dim), with the arguments of BadIndex.
inline FaultReporter index_faults(CudaStream stream, BadIndex bad_index) {
  return {.slot = fault_slot(stream),
          .handler = throw_index_fault,
          .callback = reinterpret_cast<FaultCallback>(bad_index)};
}

}  // namespace tessera::cuda
