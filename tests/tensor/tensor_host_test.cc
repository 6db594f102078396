// Tensors on queued CPU streams whose work is a host function on their elements.

#include <atomic>
#include <catch2/catch.hpp>
#include <thread>
#include <vector>

#include "tessera/tensor/error.h"
#include "tessera/tensor/streams/stream.h"
#include "tessera/tensor/tensor.h"
#include "tessera/tests/support/throws.h"

namespace tessera {
namespace {

using testing::thrown;

TEST_CASE("tensor: a queued stream writes values in its order, and reading waits for it") {
  const DeviceStream stream = DeviceStream::create(kCpu, StreamKind::kQueued, "compute");
  const StreamGuard guard(stream);
  std::atomic<bool> go{false};
  stream.enqueue("hold", [&] {
    while (!go) std::this_thread::yield();
  });
  std::vector<float> values{1, 2, 3};
  const Tensor x = Tensor::from_vector(values, {3});
  values.assign(3, 0);  // the tensor has its own copy
  auto* data = static_cast<float*>(x.storage().data());
  stream.enqueue("double", [data] {
    for (int i = 0; i < 3; ++i) data[i] *= 2;
  });
  std::thread later([&] { go = true; });
  CHECK(x.to_vector<float>() == std::vector<float>{2, 4, 6});
  later.join();
  stream.enqueue("fail", [] { throw DataError("boom"); });
  CHECK(thrown<DataError>([&] { x.to_vector<float>(); }) == "boom");
  CHECK(x.to_vector<float>() == std::vector<float>{2, 4, 6});
}

// Temporaries are destroyed on the host long before the queue reaches their values.
TEST_CASE("tensor: short-lived tensors on a queued stream under load") {
  const DeviceStream stream = DeviceStream::create(kCpu, StreamKind::kQueued, "compute");
  const StreamGuard guard(stream);
  std::atomic<int> errors{0};
  for (int i = 0; i < 1000; ++i) {
    const Tensor x = Tensor::from_vector(std::vector<double>(33, i), {33});
    auto* data = static_cast<double*>(x.storage().data());
    stream.enqueue("check", [&errors, data, i] {
      for (int k = 0; k < 33; ++k) errors += data[k] == i ? 0 : 1;
    });
  }
  stream.synchronize();
  CHECK(errors == 0);
}

}  // namespace
}  // namespace tessera
