// Runs with TESSERA_POISON=1.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "tessera/tensor/allocator.h"
#include "tessera/tensor/stream.h"
#include "tessera/tensor/tensor.h"

namespace tessera {
namespace {

bool all_nan(const Tensor& x) {
  const std::vector<float> values = x.to_vector<float>();
  return std::all_of(values.begin(), values.end(), [](float value) { return std::isnan(value); });
}

TEST_CASE("poison: new elements are NaN, in fresh and in reused memory") {
  for (int i = 0; i < 3; ++i) {
    const Tensor x = Tensor::empty({37});
    CHECK(all_nan(x));
    auto* data = static_cast<float*>(x.storage().data());
    std::fill(data, data + 37, 1.0F);
  }
}

TEST_CASE("poison: does not overtake queued work that still uses the memory") {
  const Stream stream = Stream::create(kCpu, StreamKind::kQueued, "compute");
  const StreamGuard guard(stream);
  float seen = 0;
  stream_sleep(stream, 10);
  {
    const Tensor x = Tensor::from_vector(std::vector<float>(1000, 5.0F), {1000});
    const auto* data = static_cast<const float*>(x.storage().data());
    stream.enqueue("read", [&seen, data] { seen = data[999]; });
  }
  const Tensor next = Tensor::empty({1000});  // the same memory
  CHECK(all_nan(next));
  CHECK(seen == 5.0F);
}

}  // namespace
}  // namespace tessera
