// Runs with TESSERA_POISON=1.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/streams/stream.h"
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
    fill_(x, 1);
  }
}

TEST_CASE("poison: does not overtake queued work that still uses the memory") {
  const DeviceStream stream =
      DeviceStream::create(default_device(), StreamKind::kQueued, "compute");
  const StreamGuard guard(stream);
  const Tensor seen = zeros({1000});
  {
    const Tensor x = full({1000}, 5);
    stream_sleep(stream, 10);
    copy_(seen, x);
  }
  const Tensor next = Tensor::empty({1000});  // the same memory
  CHECK(all_nan(next));
  CHECK(seen.to_vector<float>() == std::vector<float>(1000, 5.0F));
}

}  // namespace
}  // namespace tessera
