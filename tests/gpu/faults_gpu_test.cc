// Invalid input found by a kernel: the next host wait of its stream throws, with the CPU's text,
// and the failure handler is called.
#include <atomic>
#include <catch2/catch.hpp>
#include <stdexcept>
#include <vector>

#include "tessera/tensor/cuda/faults.h"
#include "tessera/tensor/cuda/queue.h"
#include "tessera/tensor/error.h"
#include "tessera/tensor/memory/transfer.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tensor/streams/stream.h"
#include "tessera/tests/support/throws.h"

namespace tessera {
namespace {

using testing::thrown;

constexpr Device kGpu{DeviceType::kCuda, 0};

DeviceStream on_gpu(const std::string& name) {
  return DeviceStream::create(kGpu, StreamKind::kQueued, name);
}

// The rows of [[0, 1], [2, 3], [4, 5]] that `indices` selects.
Tensor rows(const std::vector<std::int64_t>& indices) {
  const Tensor weight = Tensor::from_vector<float>({0, 1, 2, 3, 4, 5}, {3, 2});
  const Tensor index = Tensor::from_vector(indices, {static_cast<std::int64_t>(indices.size())});
  return embedding(to_device(weight, kGpu), to_device(index, kGpu));
}

const std::string kText =
    "[embedding] index 3 at position 1 is outside [0, 3), the extent of dim 0; count from 0";

TEST_CASE("gpu faults: an index out of range is thrown by the stream's next wait, once") {
  const DeviceStream stream = on_gpu("compute");
  const StreamGuard guard(stream);
  const Tensor bad = rows({0, 3});
  CHECK(thrown<InvalidArgument>([&] { stream.synchronize(); }) == kText);
  stream.synchronize();
  CHECK(bad.to_vector<float>() == std::vector<float>{0, 1, 0, 0});
  CHECK(rows({2, 1}).to_vector<float>() == std::vector<float>{4, 5, 2, 3});
}

TEST_CASE("gpu faults: copies to the host are waits") {
  const DeviceStream stream = on_gpu("compute");
  const StreamGuard guard(stream);
  const Tensor bad = rows({0, 3});
  CHECK(thrown<InvalidArgument>([&] { bad.to_vector<float>(); }) == kText);
  CHECK(bad.to_vector<float>() == std::vector<float>{0, 1, 0, 0});
}

TEST_CASE("gpu faults: events rethrow as often as asked, until the stream is waited for") {
  const DeviceStream stream = on_gpu("compute");
  const StreamGuard guard(stream);
  rows({0, 3});
  const DeviceEvent done = stream.record();
  std::atomic<bool> ran = false;
  for (int i = 0; i < 2; ++i) CHECK(thrown<InvalidArgument>([&] { done.synchronize(); }) == kText);
  stream.enqueue("skipped", [&] { ran = true; });
  CHECK(thrown<InvalidArgument>([&] { stream.synchronize(); }) == kText);
  CHECK_FALSE(ran);
  stream.enqueue("not skipped", [&] { ran = true; });
  stream.synchronize();
  CHECK(ran);
}

TEST_CASE("gpu faults: the rank is told, once") {
  const auto context = std::make_shared<RankContext>(1, 2, 1);
  std::atomic<int> told = 0;
  context->set_failure_handler([&](std::exception_ptr error) {
    ++told;
    CHECK(thrown<InvalidArgument>([&] { std::rethrow_exception(error); }).starts_with("[embed"));
  });
  const RankScope scope(context);
  const DeviceStream stream = on_gpu("compute");
  const StreamGuard guard(stream);
  rows({0, 3});
  const DeviceEvent done = stream.record();
  CHECK_THROWS_AS(done.synchronize(), InvalidArgument);
  CHECK_THROWS_AS(stream.synchronize(), InvalidArgument);
  CHECK(told == 1);
  context->set_failure_handler(nullptr);
}

TEST_CASE("gpu faults: each stream has its own") {
  const DeviceStream other = on_gpu("other");
  {
    const DeviceStream stream = on_gpu("compute");
    const StreamGuard guard(stream);
    CHECK(cuda::fault_slot(stream.cuda_handle()) != cuda::fault_slot(other.cuda_handle()));
    rows({0, 3});
    other.wait(stream.record());
    other.synchronize();
  }
  // The fault ended with its stream: later streams have none.
  for (int i = 0; i < 100; ++i) on_gpu("later").synchronize();
}

}  // namespace
}  // namespace tessera
