// Worlds of the emulated NCCL: a thread, a GPU, a stream and a communicator for each rank.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <chrono>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace tessera::testing {

// Read by the runtime when it is first used.
inline const int kEmulatedGpus = setenv("TESSERA_EMULATED_GPUS", "4", 1);

// Assertions of Catch2 belong to the main thread; ranks throw.
inline void expect(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}
inline void ok(ncclResult_t result) { expect(result == ncclSuccess, ncclGetErrorString(result)); }
inline void ok_cuda(cudaError_t error) { expect(error == cudaSuccess, cudaGetErrorString(error)); }

// Runs f(rank) on a thread for each rank; rethrows what the first of them threw.
template <class F>
void on_threads(int ranks, F f) {
  std::vector<std::exception_ptr> errors(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        ok_cuda(cudaSetDevice(rank % 4));
        f(rank);
      } catch (...) {
        errors[rank] = std::current_exception();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

// What a rank of on_ranks has.
struct Rank {
  int rank = 0, ranks = 0;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;

  void synchronize() const { ok_cuda(cudaStreamSynchronize(stream)); }
  ncclResult_t async_error() const {
    ncclResult_t error = ncclSuccess;
    ok(ncclCommGetAsyncError(comm, &error));
    return error;
  }
  // Polls until the communicator has left ncclInProgress.
  ncclResult_t settled() const {
    ncclResult_t error = async_error();
    while (error == ncclInProgress) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
      error = async_error();
    }
    return error;
  }
};

inline ncclUniqueId fresh_id() {
  ncclUniqueId id;
  ok(ncclGetUniqueId(&id));
  return id;
}

// A blocking communicator.
inline ncclResult_t join(ncclComm_t* comm, int ranks, const ncclUniqueId& id, int rank) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  return ncclCommInitRankConfig(comm, ranks, id, rank, &config);
}

// f(Rank) with communicators that are made before and destroyed after; a rank that throws aborts.
template <class F>
void on_ranks(int ranks, F f) {
  const ncclUniqueId id = fresh_id();
  on_threads(ranks, [&](int rank) {
    Rank me{.rank = rank, .ranks = ranks};
    ok_cuda(cudaStreamCreateWithFlags(&me.stream, cudaStreamNonBlocking));
    ok(join(&me.comm, ranks, id, rank));
    try {
      f(me);
    } catch (...) {
      ncclCommAbort(me.comm);
      throw;
    }
    ok(ncclCommDestroy(me.comm));
    ok_cuda(cudaStreamDestroy(me.stream));
  });
}

// Memory of the current GPU with numbers in it.
template <class T>
class Numbers {
 public:
  explicit Numbers(const std::vector<T>& values) : count_(values.size()) {
    ok_cuda(cudaMalloc(&data_, (count_ + 1) * sizeof(T)));
    ok_cuda(cudaMemcpy(data_, values.data(), count_ * sizeof(T), cudaMemcpyHostToDevice));
  }
  ~Numbers() { cudaFree(data_); }
  Numbers(const Numbers&) = delete;
  Numbers& operator=(const Numbers&) = delete;
  T* data() const { return static_cast<T*>(data_); }
  std::vector<T> read(const Rank& me) const {
    me.synchronize();
    std::vector<T> values(count_);
    ok_cuda(cudaMemcpy(values.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
  }

 private:
  void* data_ = nullptr;
  std::size_t count_;
};

template <class T>
void expect_equal(const std::vector<T>& actual, const std::vector<T>& expected,
                  const std::string& what) {
  std::string text = what + ":";
  for (const T& x : actual) text += " " + std::to_string(static_cast<float>(x));
  expect(actual == expected, text);
}

}  // namespace tessera::testing
