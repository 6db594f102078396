// Graphs far deeper than the call stack, and passes over streams.
#include <catch2/catch.hpp>
#include <chrono>
#include <future>
#include <stdexcept>
#include <thread>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/function.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/tensor/streams/stream.h"
#include "tessera/tests/autograd/fixtures.h"

namespace tessera::testing {
namespace {

constexpr int kDepth = 1'000'000;

// A link that computes nothing, so that the test is quick; it owns the variable before it twice, by
// edge and by capture.
Variable link(const Variable& x) {
  return record_twice("link", x.tensor(), {x},
                      [x = SavedVariable(x, "link")](const Variable& dy, const BackwardContext&) {
                        x.unpack();
                        return Gradients{dy};
                      });
}

Variable chain(const Variable& x, int depth) {
  Variable y = x;
  for (int i = 0; i < depth; ++i) y = link(y);
  return y;
}

TEST_CASE("deep graph: a million nodes run and go") {
  const Variable x = scalar_leaf(2.0);
  Variable y = chain(x, kDepth);
  backward(y);
  CHECK(x.grad().item<double>() == 1);
  const std::weak_ptr<GraphNode> node = y.gradient_edge().node;
  y = Variable();
  CHECK(node.expired());
}

TEST_CASE("deep graph: a million nodes go without having run") {
  const Variable x = scalar_leaf(2.0);
  const std::weak_ptr<GraphNode> below = x.gradient_edge().node;
  Variable y = chain(x, kDepth);
  const std::weak_ptr<GraphNode> leaf_node = x.gradient_edge().node;
  y = Variable();
  CHECK(leaf_node.expired());
}

TEST_CASE("deep graph: chosen inputs and retained graphs") {
  const Variable x = scalar_leaf(2.0);
  const Variable y = chain(x, kDepth / 4);
  CHECK(grad({&y, 1}, {&x, 1}, {.retain_graph = true})[0].item<double>() == 1);
  CHECK_FALSE(x.grad().defined());
  backward(y, {.inputs = {x}});
  CHECK(x.grad().item<double>() == 1);
}

TEST_CASE("deep graph: a wide one") {
  const Variable x = scalar_leaf(2.0);
  std::vector<Variable> roots;
  for (int i = 0; i < 50'000; ++i) roots.push_back(link(x));
  backward(roots, {});
  CHECK(x.grad().item<double>() == 50'000);
}

TEST_CASE("deep graph: another thread may drop it, and others watch") {
  const Variable x = scalar_leaf(2.0);
  Variable y = chain(x, 1000);
  std::weak_ptr<GraphNode> last = y.gradient_edge().node;
  std::weak_ptr<GraphNode> first = x.gradient_edge().node;
  std::thread([dropped = std::move(y)]() mutable { dropped = Variable(); }).join();
  CHECK(last.expired());
  CHECK(first.expired());
  last.reset();  // what watched nodes is let go of after them
  backward(chain(x, 10));
  CHECK(x.grad().item<double>() == 1);
}

TEST_CASE("deep graph: a node that cannot be made leaves nothing behind") {
  struct Refuses {
    Refuses() = default;
    Refuses(const Refuses& /*other*/) { throw std::runtime_error("no copies"); }
    Gradients operator()(const Variable& dy, const BackwardContext& /*context*/) const {
      return {dy};
    }
  };
  const Variable x = scalar_leaf(2.0);
  const std::weak_ptr<GraphNode> leaf_node = x.gradient_edge().node;
  const Refuses refuses;
  CHECK_THROWS_AS(record_twice("refused", x.tensor(), {x}, refuses), std::runtime_error);
  CHECK(leaf_node.expired());
}

TEST_CASE("deep graph: nodes owned by static objects are destroyed at the program's end") {
  static Variable kept;
  kept = chain(scalar_leaf(1.0), 10);
  CHECK(kept.requires_grad());
}

// Every operation of a step waits behind a gate that opens only after the step was issued: if the
// step had read a value on the host, the gate would have timed out first.
TEST_CASE("streams: backward under a queued current stream") {
  const Variable x(irregular({7, 5}));
  const Tensor targets = Tensor::from_vector<std::int64_t>({0, 2, 1, 1, 0, 2, 2}, {7});
  const auto step = [&](Variable& w1, Variable& b1, Variable& w2) {
    const Variable h = gelu(linear(x, w1, b1));
    const Variable logits = add(matmul(h, w2), mean(h, {1}, true));
    backward(add(cross_entropy(logits, targets), sum(square(w2))));
  };
  Variable w1 = leaf({4, 5});
  Variable b1 = leaf({4});
  Variable w2 = leaf({4, 3});
  step(w1, b1, w2);
  const std::vector<std::vector<double>> expected = {values(w1.grad()), values(b1.grad()),
                                                     values(w2.grad())};
  for (Variable* leaf : {&w1, &b1, &w2}) leaf->set_grad({});

  const DeviceStream stream = DeviceStream::create(kCpu, StreamKind::kQueued, "compute");
  StreamGuard guard(stream);
  std::promise<void> issued;
  stream.enqueue("gate",
                 [gate = issued.get_future().share()] { gate.wait_for(std::chrono::seconds(20)); });
  const DeviceEvent passed = stream.record("passed");
  step(w1, b1, w2);
  CHECK_FALSE(passed.is_ready());
  issued.set_value();
  stream.synchronize();
  CHECK(values(w1.grad()) == expected[0]);
  CHECK(values(b1.grad()) == expected[1]);
  CHECK(values(w2.grad()) == expected[2]);
}

TEST_CASE("streams: backward on the null device does everything but compute") {
  const TensorOptions options = {.dtype = DType::kF32, .device = kNull};
  const Variable x(zeros({7, 5}, options));
  Variable w(zeros({4, 5}, options), true);
  Variable b(zeros({4}, options), true);
  backward(sum(gelu(linear(x, w, b))));
  CHECK(w.grad().shape() == w.shape());
  CHECK(b.grad().device() == kNull);
}

}  // namespace
}  // namespace tessera::testing
