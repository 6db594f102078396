// GPU memory for one test, directly from the CUDA runtime: these tests are below Tessera's
// allocator.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

namespace tessera::testing {

inline void cuda_check(cudaError_t error) {
  if (error != cudaSuccess)
    throw std::runtime_error(std::string("CUDA: ") + cudaGetErrorString(error));
}

template <class T>
class DeviceBuffer {
 public:
  explicit DeviceBuffer(const std::vector<T>& values) : size_(values.size()) {
    cuda_check(cudaMalloc(&data_, bytes() + sizeof(T)));
    cuda_check(cudaMemcpy(data_, values.data(), bytes(), cudaMemcpyHostToDevice));
  }
  ~DeviceBuffer() { cudaFree(data_); }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  T* data() const { return static_cast<T*>(data_); }

  // Waits for all work on the device.
  std::vector<T> values() const {
    std::vector<T> copy(size_);
    cuda_check(cudaMemcpy(copy.data(), data_, bytes(), cudaMemcpyDeviceToHost));
    return copy;
  }

 private:
  std::size_t bytes() const { return size_ * sizeof(T); }

  void* data_ = nullptr;
  std::size_t size_;
};

}  // namespace tessera::testing
