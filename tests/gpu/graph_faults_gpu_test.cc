// Invalid input found by kernels of a CUDA graph: which waits throw.
#include <catch2/catch.hpp>
#include <vector>

#include "tessera/tensor/cuda/graph.h"
#include "tessera/tensor/cuda/queue.h"
#include "tessera/tensor/error.h"
#include "tessera/tensor/memory/transfer.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tensor/streams/stream.h"
#include "tessera/tests/gpu/graph_tensors.h"
#include "tessera/tests/support/throws.h"

namespace tessera {
namespace {

using Catch::Matchers::Contains;
using cuda::CudaGraph;
using testing::kGpu;
using testing::on_gpu;
using testing::thrown;

TEST_CASE("gpu graph: faults of kernels are thrown by waits, once, and the graph goes on") {
  const DeviceStream compute = on_gpu("compute");
  const StreamGuard guard(compute);
  const Tensor weight = to_device(Tensor::from_vector<float>({0, 1, 2, 3}, {2, 2}), kGpu);
  const Tensor index = to_device(Tensor::from_vector<std::int64_t>({1, 0}, {2}), kGpu);
  Tensor out;
  CudaGraph graph;
  graph.capture(compute.cuda_queue(), [&] { out = embedding(weight, index); });
  graph.replay(compute.cuda_queue());
  CHECK(out.to_vector<float>() == std::vector<float>{2, 3, 0, 1});
  fill_(index, 7);
  graph.replay(compute.cuda_queue());
  CHECK_THAT(thrown<InvalidArgument>([&] { compute.synchronize(); }),
             Contains("[embedding] index 7"));
  fill_(index, 0);
  graph.replay(compute.cuda_queue());
  CHECK(out.to_vector<float>() == std::vector<float>{0, 1, 0, 1});
}

// Two rows by an index that may be wrong, on `stream`.
struct TwoRows {
  Tensor weight = to_device(Tensor::from_vector<float>({0, 1, 2, 3}, {2, 2}), kGpu);
  Tensor index = to_device(Tensor::from_vector<std::int64_t>({1, 0}, {2}), kGpu);
  Tensor out{};
  DeviceEvent inside{};
  CudaGraph graph{};

  explicit TwoRows(const DeviceStream& stream) {
    graph.capture(stream.cuda_queue(), [&] {
      out = embedding(weight, index);
      inside = stream.record("inside");
    });
  }
};

TEST_CASE("gpu graph: faults of kernels are thrown by waits of the stream they were replayed on") {
  const DeviceStream compute = on_gpu("compute"), other = on_gpu("other");
  const StreamGuard guard(compute);
  TwoRows rows(compute);
  fill_(rows.index, 7);
  other.wait(compute.record());
  for (int i = 0; i < 2; ++i) {
    rows.graph.replay(other.cuda_queue());
    CHECK_THAT(thrown<InvalidArgument>([&] { other.synchronize(); }),
               Contains("[embedding] index 7"));
    other.synchronize();    // once
    compute.synchronize();  // nothing was replayed here
  }
  rows.graph.replay(other.cuda_queue());
  CHECK_THAT(thrown<InvalidArgument>([&] { rows.inside.synchronize(); }),
             Contains("[embedding] index 7"));
  CHECK_THROWS_AS(other.synchronize(), InvalidArgument);
  fill_(rows.index, 1);
  rows.graph.replay(compute.cuda_queue());
  CHECK(rows.out.to_vector<float>() == std::vector<float>{2, 3, 2, 3});
}

TEST_CASE("gpu graph: faults of a replay on several streams are thrown by each") {
  const DeviceStream compute = on_gpu("compute"), other = on_gpu("other");
  const StreamGuard guard(compute);
  TwoRows rows(compute);
  rows.graph.replay(compute.cuda_queue());
  compute.synchronize();
  fill_(rows.index, 7);
  other.wait(compute.record());
  rows.graph.replay(other.cuda_queue());
  CHECK_THROWS_AS(other.synchronize(), InvalidArgument);
  CHECK_THROWS_AS(compute.synchronize(), InvalidArgument);
  compute.synchronize();
  const Tensor gone = embedding(rows.weight, rows.index);  // eager work has a slot of its own
  CHECK_THROWS_AS(compute.synchronize(), InvalidArgument);
  other.synchronize();
}

TEST_CASE("gpu graph: a fault outlives the graph until somebody waits") {
  const DeviceStream compute = on_gpu("compute");
  const StreamGuard guard(compute);
  {
    TwoRows rows(compute);
    fill_(rows.index, 7);
    rows.graph.replay(compute.cuda_queue());
  }
  CHECK_THROWS_AS(compute.synchronize(), InvalidArgument);
  compute.synchronize();
}

}  // namespace
}  // namespace tessera
