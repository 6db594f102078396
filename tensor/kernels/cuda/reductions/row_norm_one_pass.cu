// All gradients of a layer or RMS norm in one pass: each row of dy and x is read once. A block has
// every so many-th group of rows; its threads keep the row, and the sums over its rows of their
// channels, in registers. The sums of the blocks are added in order, in f64.
//
// Which thread has which elements depends on the shape alone, not on alignment.

#include "tessera/tensor/kernels/cuda/reductions/norm_rows.h"

namespace tessera {
namespace {

using cuda::ComputeOf;
using cuda::Pack;
using cuda::Words;

constexpr int kFewestThreads = 256, kMostThreads = 512;

struct OnePassWork {
  const void* dy = nullptr;
  const void* x = nullptr;
  const void* added = nullptr;
  void* dx = nullptr;
  const void* mean = nullptr;
  const void* rstd = nullptr;
  cuda::Channels weight;
  cuda::NormGeometry geometry;
  void* partial = nullptr;  // [blocks, 2, length]: of weight, of bias; null if neither is needed
  std::int64_t rows = 0;
  int length = 0;
  int lane_bits = 0;    // log2 of the threads of a row, at least a warp
  bool packed = false;  // all rows begin at multiples of 16 bytes and have whole packs
};

// The sums over a row of two numbers of each of its threads; all threads of the block must call it,
// in the same turn.
template <class C>
class RowSums {
 public:
  __device__ RowSums(C (*shared)[2][kMostThreads / cuda::kWarpSize], int lane_bits)
      : shared_(shared), warps_((1 << lane_bits) / cuda::kWarpSize) {}

  __device__ void operator()(C& a, C& b) {
    a = cuda::warp_fold(a, cuda::Add());
    b = cuda::warp_fold(b, cuda::Add());
    if (warps_ == 1) return;
    const int warp = static_cast<int>(threadIdx.x) / cuda::kWarpSize;
    C(&turn)[2][kMostThreads / cuda::kWarpSize] = shared_[turn_];
    turn_ ^= 1;  // the other half, which slower threads may still read, is written in two turns
    if (threadIdx.x % cuda::kWarpSize == 0) {
      turn[0][warp] = a;
      turn[1][warp] = b;
    }
    __syncthreads();
    const int first = warp / warps_ * warps_;
    a = b = 0;
    for (int w = 0; w < warps_; ++w) {
      a += turn[0][first + w];
      b += turn[1][first + w];
    }
  }

 private:
  C (*shared_)[2][kMostThreads / cuda::kWarpSize];
  int warps_;
  int turn_ = 0;
};

// A thread's part of the rows of a block.
template <class T, int kPacks>
class Lane {
  using C = ComputeOf<T>;
  static constexpr int kCount = Pack<T>::kCount;

 public:
  __device__ explicit Lane(const OnePassWork& work)
      : work_(work),
        lanes_(1 << work.lane_bits),
        lane_(static_cast<int>(threadIdx.x) & (lanes_ - 1)) {}

  // The row's dx, if it is needed; adds the row to the sums.
  template <class Sums>
  __device__ void row(std::int64_t row, Sums& sums) {
    const bool exists = row < work_.rows;
    Words dy[kPacks], x[kPacks], added[kPacks];
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      dy[k] = load(work_.dy, row, exists, k);
      x[k] = load(work_.x, row, exists, k);
      // Before the sums where there are registers for it.
      if (kPacks == 1) added[k] = load_added(row, exists, k);
    }
    const auto* means = static_cast<const C*>(work_.mean);
    const C mean = exists && means != nullptr ? means[row] : C(0);
    const C rstd = exists ? static_cast<const C*>(work_.rstd)[row] : C(0);
    C slope = 0, along = 0;
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      C weight[kCount];
      channels(k, weight);
#pragma unroll
      for (int j = 0; j < kCount; ++j) {
        const C each = cuda::element<T>(dy[k], j);
        const C normal = (cuda::element<T>(x[k], j) - mean) * rstd;
        weights_[k][j] = scalar::fma(each, normal, weights_[k][j]);
        biases_[k][j] += each;
        const C g = scalar::mul(each, weight[j]);
        slope += g;
        along += scalar::mul(g, normal);
      }
    }
    if (work_.dx == nullptr) return;
    sums(slope, along);
    slope = means == nullptr ? C(0) : of_length(slope);
    along = of_length(along);
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      if (kPacks > 1) added[k] = load_added(row, exists, k);
      C weight[kCount];
      channels(k, weight);
      Pack<T> out;
#pragma unroll
      for (int j = 0; j < kCount; ++j) {
        const C normal = (cuda::element<T>(x[k], j) - mean) * rstd;
        const C g = scalar::mul(cuda::element<T>(dy[k], j), weight[j]);
        out.values[j] = convert_element<T>(scalar::fma(-normal, along, g - slope) * rstd);
        if (work_.added != nullptr)
          out.values[j] =
              convert_element<T>(convert_element<C>(out.values[j]) + cuda::element<T>(added[k], j));
      }
      if (exists) store(row, k, out);
    }
  }

  // Adds up the sums of the block's threads of the same channels, and stores them.
  __device__ void finish(C* shared) const {
    C* const out = static_cast<C*>(work_.partial) + std::int64_t{2} * blockIdx.x * work_.length;
    finish_one(weights_, shared, out);
    finish_one(biases_, shared, out + work_.length);
  }

 private:
  __device__ int first(int k) const { return (k * lanes_ + lane_) * kCount; }

  __device__ Words load(const void* data, std::int64_t row, bool exists, int k) const {
    const int begin = first(k);
    const T* from = static_cast<const T*>(data) + row * work_.length + begin;
    if (!exists || begin >= work_.length) return Words{};
    if (work_.packed) return *reinterpret_cast<const Words*>(from);
    Pack<T> out;
#pragma unroll
    for (int j = 0; j < kCount; ++j) out.values[j] = begin + j < work_.length ? from[j] : T{};
    return std::bit_cast<Words>(out);
  }
  __device__ Words load_added(std::int64_t row, bool exists, int k) const {
    return work_.added != nullptr ? load(work_.added, row, exists, k) : Words{};
  }
  __device__ void store(std::int64_t row, int k, const Pack<T>& values) const {
    const int begin = first(k);
    T* to = static_cast<T*>(work_.dx) + row * work_.length + begin;
    if (begin >= work_.length) return;
    if (work_.packed) {
      *reinterpret_cast<Words*>(to) = std::bit_cast<Words>(values);
      return;
    }
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      if (begin + j < work_.length) to[j] = values.values[j];
    }
  }
  __device__ void channels(int k, C (&values)[kCount]) const {
    cuda::load_channels<T>(work_.weight, work_.geometry, 0, first(k), C(1), values);
  }
  __device__ C of_length(C sum) const {
    return static_cast<C>(static_cast<double>(sum) * work_.geometry.inverse_length);
  }
  __device__ void finish_one(const C (&sums)[kPacks][kCount], C* shared, C* out) const {
    const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      __syncthreads();  // the last pack's sums are still being read
#pragma unroll
      for (int j = 0; j < kCount; ++j) shared[j * threads + thread] = sums[k][j];
      __syncthreads();
      if (thread >= lanes_) continue;
#pragma unroll
      for (int j = 0; j < kCount; ++j) {
        C total = 0;
        for (int t = thread; t < threads; t += lanes_) total += shared[j * threads + t];
        if (first(k) + j < work_.length) out[first(k) + j] = total;
      }
    }
  }

  const OnePassWork& work_;
  int lanes_, lane_;
  C weights_[kPacks][kCount] = {};
  C biases_[kPacks][kCount] = {};
};

// kPacks: of a thread. The fewer, the more blocks fit into a processor.
template <class T, int kPacks>
__global__ void __launch_bounds__(kPacks == 1 ? kFewestThreads : kMostThreads)
    row_norm_one_pass_kernel(const __grid_constant__ OnePassWork work) {
  using C = ComputeOf<T>;
  __shared__ C warps[2][2][kMostThreads / cuda::kWarpSize];
  __shared__ C columns[Pack<T>::kCount * kMostThreads];
  RowSums<C> sums(warps, work.lane_bits);
  Lane<T, kPacks> lane(work);
  const std::int64_t beside = blockDim.x >> work.lane_bits;  // rows of a block at a time
  const std::int64_t mine = threadIdx.x >> work.lane_bits;
  for (std::int64_t row = blockIdx.x * beside; row < work.rows; row += gridDim.x * beside)
    lane.row(row + mine, sums);
  if (work.partial != nullptr) lane.finish(columns);
}

OnePassWork one_pass_work(const RowNormBackwardKernel::Args& a, Workspace scratch) {
  OnePassWork work;
  work.dy = a.dy.data;
  work.x = a.x.data;
  work.added = a.added.data;
  work.dx = a.dx.data;
  work.mean = a.mean.data;
  work.rstd = a.rstd.data;
  if (a.weight.defined()) work.weight = cuda::channels_of(a.weight, a.shape);
  work.geometry = cuda::norm_geometry(a.shape);
  if (a.dweight.defined() || a.dbias.defined()) work.partial = scratch.data;
  work.rows = a.shape.rows();
  work.length = static_cast<int>(a.shape.length());
  work.packed = work.length * static_cast<std::int64_t>(dtype_size(a.x.dtype)) % 16 == 0 &&
                cuda::is_pack_aligned(a.dy.data) && cuda::is_pack_aligned(a.x.data) &&
                cuda::is_pack_aligned(a.dx.data) && cuda::is_pack_aligned(a.added.data);
  return work;
}

template <class T, int kPacks>
void start_pass(CudaStream stream, const RowNormBackwardKernel::Args& a, OnePassWork work,
                int packs) {
  work.lane_bits = 5;
  while (packs > kPacks << work.lane_bits) ++work.lane_bits;
  const int threads = std::max(kFewestThreads, 1 << work.lane_bits);
  cuda::start(
      RowNormBackwardKernel::kName, row_norm_one_pass_kernel<T, kPacks>,
      {.blocks = static_cast<unsigned>(a.cuda_chunks()), .threads = static_cast<unsigned>(threads)},
      stream, work);
}

}  // namespace

void cuda::row_norm_gradients(CudaStream stream, const RowNormBackwardKernel::Args& a,
                              Workspace scratch) {
  OnePassWork work = one_pass_work(a, scratch);
  if (work.length == 0) return;
  if (work.rows > 0) {
    cuda::with_row_type(a.x.dtype, [&]<class T>() {
      const int packs = (work.length + Pack<T>::kCount - 1) / Pack<T>::kCount;
      if (packs <= kFewestThreads) {
        start_pass<T, 1>(stream, a, work, packs);
      } else {
        start_pass<T, sizeof(T) == 8 ? 4 : 2>(stream, a, work, packs);
      }
    });
  }
  cuda::add_norm_chunks(stream, a, scratch);
}

}  // namespace tessera
