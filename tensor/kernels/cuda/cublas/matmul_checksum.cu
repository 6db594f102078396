#include "tessera/tensor/kernels/cuda/cublas/matmul_checksum.h"

#include "tessera/tensor/kernels/cuda/elementwise/thread_place.h"

namespace tessera::cuda {
namespace {

constexpr const char* kName = "matmul_checksum";

struct ChecksumWork {
  const void* data = nullptr;
  std::int64_t rows = 0, columns = 0, matrices = 0;
  std::int64_t leading = 0, batch_stride = 0;
  unsigned long long* sum = nullptr;
};

// A permutation of the 64-bit numbers (the finalizer of splitmix64; Steele et al., 2014).
__device__ std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// Each element with its place: sums of integers do not depend on the order.
template <class Bits>
__global__ void checksum_kernel(const __grid_constant__ ChecksumWork work) {
  const std::int64_t all = work.matrices * work.columns * work.rows;
  std::uint64_t mine = 0;
  share(thread_index(), thread_count(), all, [&](std::int64_t i) {
    const std::int64_t column = i / work.rows, matrix = column / work.columns;
    const std::int64_t offset = matrix * work.batch_stride +
                                (column - matrix * work.columns) * work.leading +
                                (i - column * work.rows);
    const std::uint64_t bits = static_cast<const Bits*>(work.data)[offset];
    mine += mixed(bits ^ mixed(static_cast<std::uint64_t>(i) + 1));
  });
  atomicAdd(work.sum, static_cast<unsigned long long>(mine));
}

}  // namespace

void add_checksum(CudaStream stream, const LtMatrix& matrix, std::int64_t batch, const void* data,
                  unsigned long long* sum) {
  const ChecksumWork work{.data = data,
                          .rows = matrix.rows,
                          .columns = matrix.columns,
                          .matrices = batch,
                          .leading = matrix.leading,
                          .batch_stride = matrix.batch_stride,
                          .sum = sum};
  const Grid grid = grid_for(batch * matrix.columns * matrix.rows);
  switch (dtype_size(matrix.dtype)) {
    case 2:
      return start(kName, checksum_kernel<std::uint16_t>, grid, stream, work);
    case 4:
      return start(kName, checksum_kernel<std::uint32_t>, grid, stream, work);
    default:
      return start(kName, checksum_kernel<std::uint64_t>, grid, stream, work);
  }
}

}  // namespace tessera::cuda
