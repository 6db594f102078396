// Signal handlers that run while a product is computed: they find the thread's own stack.

#include <pthread.h>
#include <signal.h>
#include <sys/time.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdint>
#include <thread>

#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/matmul.h"
#include "tessera/tensor/ops/reduce.h"

namespace tessera {
namespace {

std::atomic<std::uintptr_t> stack_begin{0}, stack_end{0};
std::atomic<int> signals{0}, elsewhere{0};

void note_stack(int) {
  // Not the address of a local variable, which under asan is not on the stack.
  const auto address = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  ++signals;
  if (address < stack_begin || address >= stack_end) ++elsewhere;
}

void find_stack() {
  pthread_attr_t attributes;
  REQUIRE(pthread_getattr_np(pthread_self(), &attributes) == 0);
  void* begin = nullptr;
  std::size_t bytes = 0;
  pthread_attr_getstack(&attributes, &begin, &bytes);
  pthread_attr_destroy(&attributes);
  stack_begin = reinterpret_cast<std::uintptr_t>(begin);
  stack_end = stack_begin + bytes;
}

// Signals this thread every 0.1 ms from another one, with a handler like a profiler's.
class Profiler {
 public:
  Profiler() : target_(pthread_self()) {
    find_stack();
    signals = elsewhere = 0;
    struct sigaction action = {};
    action.sa_handler = &note_stack;
    action.sa_flags = SA_RESTART;
    sigaction(SIGPROF, &action, &before_);
    thread_ = std::thread([this] {
      while (!ends_) {
        pthread_kill(target_, SIGPROF);
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      }
    });
  }
  ~Profiler() {
    ends_ = true;
    thread_.join();
    sigaction(SIGPROF, &before_, nullptr);
  }
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;

 private:
  pthread_t target_;
  struct sigaction before_ = {};
  std::atomic<bool> ends_{false};
  std::thread thread_;
};

TEST_CASE("signal handlers run on the stack while products are computed") {
  // Inner extents around 84, from which oneDNN's code for AVX-512 keeps its buffer on the heap.
  const std::int64_t k = GENERATE(40, 84, 85, 128, 256, 1000);
  const bool transposed = GENERATE(false, true);
  const Tensor a = ones({20, k}), b = transposed ? ones({20, k}).transpose(0, 1) : ones({k, 20});
  const Profiler profiler;
  int products = 0;
  while (signals < 60) {
    const Tensor c = matmul(a, b);
    ++products;
    if (products % 1000 == 1) REQUIRE(sum(c).item<float>() == static_cast<float>(400 * k));
  }
  CAPTURE(k, transposed, products);
  CHECK(elsewhere == 0);
}

}  // namespace
}  // namespace tessera
