// CUDA graphs: capture over several streams, with memory of their own; the meaning of marks; and
// work that cannot be captured.
#include <catch2/catch.hpp>
#include <functional>
#include <optional>
#include <stdexcept>
#include <thread>
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
using testing::filled;
using testing::kCount;
using testing::kGpu;
using testing::on_gpu;
using testing::thrown;
using testing::value_of;

TEST_CASE("gpu graph: a capture issues nothing, a replay all of it") {
  const DeviceStream stream = on_gpu("compute");
  const StreamGuard guard(stream);
  const Tensor x = filled(2), sum = filled(0);
  CudaGraph graph;
  CHECK_FALSE(graph.is_captured());
  graph.capture(stream.cuda_queue(), [&] { axpby_(sum, x, {.alpha = 1, .beta = 1}); });
  CHECK(graph.is_captured());
  CHECK(value_of(sum) == 0);
  graph.replay(stream.cuda_queue());
  CHECK(value_of(sum) == 2);
  fill_(x, 5);
  for (int i = 0; i < 3; ++i) graph.replay(stream.cuda_queue());
  CHECK(value_of(sum) == 17);
  const DeviceStream other = on_gpu("other");
  other.wait(stream.record());
  graph.replay(other.cuda_queue());
  other.synchronize();
  CHECK(value_of(sum) == 22);
}

TEST_CASE("gpu graph: streams fork and join by events, blocks stay where they are") {
  const DeviceStream compute = on_gpu("compute"), side = on_gpu("side");
  const StreamGuard guard(compute);
  const Tensor x = filled(0);
  Tensor out;
  CudaGraph graph;
  graph.capture(compute.cuda_queue(), [&] {
    const Tensor twice = mul(x, 2);
    Tensor more;
    const DeviceEvent made = compute.record("made");
    {
      const StreamGuard on_side(side);
      side.wait(made);
      stream_sleep(side, 5);
      more = add(twice, x);
    }
    const DeviceEvent done = side.record("done");
    compute.wait(done);
    out = add(more, twice);
  });
  CHECK(graph.memory_bytes() >= 3 * kCount * sizeof(float));
  for (int round = 1; round <= 4; ++round) {
    fill_(x, round);
    const Tensor noise = filled(-1);  // eager work uses other memory
    graph.replay(compute.cuda_queue());
    CHECK(value_of(out) == 5 * round);
    CHECK(value_of(noise) == -1);
  }
}

TEST_CASE(
    "gpu graph: a stream without an event joins behind the origin, and the graph ends behind it") {
  const DeviceStream compute = on_gpu("compute"), side = on_gpu("side");
  const StreamGuard guard(compute);
  const Tensor sum = filled(0);
  const Tensor one = filled(1);
  CudaGraph graph;
  graph.capture(compute.cuda_queue(), [&] {
    const StreamGuard on_side(side);
    stream_sleep(side, 20);
    axpby_(sum, one, {.alpha = 1, .beta = 1});
  });
  for (int i = 0; i < 2; ++i) {
    axpby_(sum, one, {.alpha = 1, .beta = 1});
    graph.replay(compute.cuda_queue());
  }
  CHECK(value_of(sum) == 4);
}

TEST_CASE("gpu graph: events from before are over, those of the capture mean the latest replay") {
  const DeviceStream compute = on_gpu("compute"), side = on_gpu("side");
  const StreamGuard guard(compute);
  const Tensor x = filled(1);
  stream_sleep(side, 30);
  const DeviceEvent early = side.record("early");
  DeviceEvent inside;
  CudaGraph graph;
  graph.capture(compute.cuda_queue(), [&] {
    compute.wait(early);
    CHECK(early.is_ready());
    fill_(x, 2);
    stream_sleep(compute, 60);
    fill_(x, 3);
    inside = compute.record("inside");
  });
  CHECK(inside.is_ready());  // no replay so far
  side.wait(inside);
  graph.replay(compute.cuda_queue());
  CHECK_FALSE(inside.is_ready());
  side.wait(inside);
  const DeviceEvent after = side.record("after");
  CHECK_FALSE(after.is_ready());
  after.synchronize();
  CHECK(inside.is_ready());
  inside.synchronize();
  CHECK(value_of(x) == 3);
}

TEST_CASE("gpu graph: an event of one graph in another, and graphs that follow each other") {
  const DeviceStream compute = on_gpu("compute");
  const StreamGuard guard(compute);
  const Tensor x = filled(1);
  CudaGraph first, second;
  DeviceEvent of_first;
  first.capture(compute.cuda_queue(), [&] {
    axpby_(x, x, {.alpha = 2});
    of_first = compute.record();
  });
  first.replay(compute.cuda_queue());
  second.capture(compute.cuda_queue(), [&] {
    compute.wait(of_first);
    axpby_(x, filled(1), {.alpha = 1, .beta = 1});
  });
  for (int i = 0; i < 3; ++i) {
    first.replay(compute.cuda_queue());
    second.replay(compute.cuda_queue());
  }
  CHECK(value_of(x) == 23);  // ((2 * 2 + 1) * 2 + 1) * 2 + 1
}

struct Refused {
  const char* what;
  std::function<void()> body;
};

TEST_CASE("gpu graph: what cannot be captured is refused, with its name") {
  const DeviceStream compute = on_gpu("compute");
  const StreamGuard guard(compute);
  const Tensor x = filled(1), one = full({}, 4, {.device = kGpu});
  const DeviceEvent early = compute.record();
  compute.synchronize();
  const std::vector<Refused> all = {
      {"[tensor.item] the host cannot wait", [&] { one.item<float>(); }},
      {"[tensor.to_vector] the host cannot wait", [&] { x.to_vector<float>(); }},
      {"[stream.synchronize] the host cannot wait", [&] { compute.synchronize(); }},
      {"[event.synchronize] the host cannot wait", [&] { early.synchronize(); }},
      {"[event.is_ready] the host cannot wait", [&] { (void)compute.record().is_ready(); }},
      {"[copy_to_host] the host cannot wait", [&] { to_device(x, kCpu); }},
      {"[copy_from_host] 8 bytes of the host",
       [&] {
         Tensor::from_vector<float>({1, 2}, {2}, kGpu);
       }},
      {"[stream.enqueue] closure \"work\" of stream \"compute\"",
       [&] { compute.enqueue("work", [] {}); }},
      {"[stream.create] stream \"new\" cannot be made", [] { on_gpu("new"); }},
      {"[cuda_graph.capture] this thread captures a graph already",
       [&] { CudaGraph().capture(compute.cuda_queue(), [] {}); }},
  };
  for (const Refused& each : all) {
    CAPTURE(each.what);
    CudaGraph graph;
    const std::string text =
        thrown<StateError>([&] { graph.capture(compute.cuda_queue(), each.body); });
    CHECK_THAT(text, Contains(each.what));
    CHECK_FALSE(graph.is_captured());
    CHECK(value_of(x) == 1);
  }
}

TEST_CASE("gpu graph: after a body that throws, stream and graph can be used anew") {
  const DeviceStream compute = on_gpu("compute"), side = on_gpu("side");
  const StreamGuard guard(compute);
  const Tensor x = filled(1);
  CudaGraph graph;
  CHECK(thrown<std::runtime_error>([&] {
          graph.capture(compute.cuda_queue(), [&] {
            const Tensor lost = filled(2);
            side.wait(compute.record());
            axpby_(x, lost, {.alpha = 1, .beta = 1});
            throw std::runtime_error("enough");
          });
        }) == "enough");
  CHECK(thrown<StateError>([&] { graph.replay(compute.cuda_queue()); }) ==
        "[cuda_graph.replay] there is no graph; capture one first");
  side.synchronize();
  CHECK(value_of(x) == 1);
  const auto add_one = [&] { axpby_(x, filled(1), {.alpha = 1, .beta = 1}); };
  graph.capture(compute.cuda_queue(), add_one);
  graph.replay(compute.cuda_queue());
  CHECK(value_of(x) == 2);
  CHECK_THAT(thrown<StateError>([&] { graph.capture(compute.cuda_queue(), add_one); }),
             Contains("there is a graph already"));
}

TEST_CASE("gpu graph: work of another GPU is refused") {
  if (cuda_device_count() < 2) return;
  const DeviceStream compute = on_gpu("compute");
  const DeviceStream other =
      DeviceStream::create({DeviceType::kCuda, 1}, StreamKind::kQueued, "other");
  CudaGraph graph;
  CHECK_THAT(thrown<StateError>(
                 [&] { graph.capture(compute.cuda_queue(), [&] { stream_sleep(other, 1); }); }),
             Contains("work on cuda:1 cannot be part of a graph of cuda:0"));
  other.synchronize();
}

TEST_CASE("gpu graph: threads capture at the same time, while others wait for their own work") {
  const auto work = [] {
    const DeviceStream stream = on_gpu("of a thread");
    const StreamGuard guard(stream);
    const Tensor x = filled(0);
    std::optional<float> value;
    for (int i = 0; i < 5; ++i) {
      CudaGraph graph;
      graph.capture(stream.cuda_queue(), [&] { axpby_(x, filled(1), {.alpha = 1, .beta = 1}); });
      graph.replay(stream.cuda_queue());
      value = value_of(x);
    }
    return value;
  };
  std::optional<float> there;
  std::thread thread([&] { there = work(); });
  CHECK(work() == 5);
  thread.join();
  CHECK(there == 5);
}

}  // namespace
}  // namespace tessera
