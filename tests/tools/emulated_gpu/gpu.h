// The CUDA runtime as tests of the emulated GPU use it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace tessera::testing {

// Throws for an error.
inline void ok(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorName(error));
}

// The last error of this thread, which it forgets, must be the one that the call returned.
inline cudaError_t noted(cudaError_t error) {
  const cudaError_t last = cudaGetLastError();
  if (last != error) throw std::runtime_error(std::string("noted: ") + cudaGetErrorName(last));
  return error;
}

class TestStream {
 public:
  TestStream() { ok(cudaStreamCreateWithFlags(&handle_, cudaStreamNonBlocking)); }
  ~TestStream() { cudaStreamDestroy(handle_); }
  TestStream(const TestStream&) = delete;
  TestStream& operator=(const TestStream&) = delete;
  operator cudaStream_t() const { return handle_; }
  void synchronize() const { ok(cudaStreamSynchronize(handle_)); }

 private:
  cudaStream_t handle_ = nullptr;
};

class TestEvent {
 public:
  TestEvent() { ok(cudaEventCreate(&handle_)); }
  ~TestEvent() { cudaEventDestroy(handle_); }
  TestEvent(const TestEvent&) = delete;
  TestEvent& operator=(const TestEvent&) = delete;
  operator cudaEvent_t() const { return handle_; }

 private:
  cudaEvent_t handle_ = nullptr;
};

// A pool that keeps what it has, and reuses memory only where streams are ordered.
class TestPool {
 public:
  TestPool() {
    cudaMemPoolProps properties{};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location = {cudaMemLocationTypeDevice, 0};
    ok(cudaMemPoolCreate(&pool_, &properties));
    std::uint64_t threshold = ~std::uint64_t{0};
    int no = 0;
    ok(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &threshold));
    ok(cudaMemPoolSetAttribute(pool_, cudaMemPoolReuseAllowOpportunistic, &no));
    ok(cudaMemPoolSetAttribute(pool_, cudaMemPoolReuseAllowInternalDependencies, &no));
  }
  ~TestPool() { cudaMemPoolDestroy(pool_); }
  operator cudaMemPool_t() const { return pool_; }

  float* take(std::size_t bytes, cudaStream_t stream) const {
    void* data = nullptr;
    ok(cudaMallocFromPoolAsync(&data, bytes, pool_, stream));
    return static_cast<float*>(data);
  }
  std::uint64_t get(cudaMemPoolAttr which) const {
    std::uint64_t value = 0;
    ok(cudaMemPoolGetAttribute(pool_, which, &value));
    return value;
  }
  std::uint64_t used() const { return get(cudaMemPoolAttrUsedMemCurrent); }
  std::uint64_t reserved() const { return get(cudaMemPoolAttrReservedMemCurrent); }

 private:
  cudaMemPool_t pool_ = nullptr;
};

// Memory of the current GPU, by cudaMalloc.
template <class T>
class TestBuffer {
 public:
  explicit TestBuffer(int n) : n_(n) {
    ok(cudaMalloc(reinterpret_cast<void**>(&data_), sizeof(T) * static_cast<std::size_t>(n)));
  }
  ~TestBuffer() { cudaFree(data_); }
  TestBuffer(const TestBuffer&) = delete;
  TestBuffer& operator=(const TestBuffer&) = delete;
  T* data() const { return data_; }

  // Copies on the null stream: waits for none of the tests' streams.
  std::vector<T> values() const {
    std::vector<T> out(static_cast<std::size_t>(n_));
    ok(cudaMemcpy(out.data(), data_, sizeof(T) * out.size(), cudaMemcpyDeviceToHost));
    return out;
  }

 private:
  const int n_;
  T* data_ = nullptr;
};

}  // namespace tessera::testing
