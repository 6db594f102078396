// One backward pass per thread at once, and graphs of a million nodes whose memory goes as it runs.
#include <catch2/catch.hpp>
#include <memory>
#include <thread>

#include "tessera/autograd/anomaly.h"
#include "tessera/autograd/engine.h"
#include "tessera/autograd/function.h"
#include "tessera/autograd/ops/autocast.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/autograd/recompute.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tests/autograd/fixtures.h"

namespace tessera::testing {
namespace {

constexpr int kThreads = 3;

template <class Body>
void on_threads(const Body& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&body, i] {
      RankScope rank(std::make_shared<RankContext>(i, kThreads, 1));
      body(i);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// A small net over `frozen`; its leaves are the thread's own.
std::vector<double> step(const Tensor& frozen, int seed, bool again) {
  const Variable w = leaf({6, 6}, -1, 1, 0.1 + seed), b = leaf({6});
  const Variable table(frozen);
  const auto block = [&](const Variable& h) { return gelu(add(linear(h, w, b), table)); };
  Variable h(irregular({4, 6}, -1, 1, seed));
  for (int i = 0; i < 20; ++i) h = again ? recompute(block, h) : block(h);
  const Variable loss = sum(square(h));
  backward(loss);
  std::vector<double> out = values(w.grad());
  out.push_back(loss.item<double>());
  return out;
}

TEST_CASE("threads: backward passes at once, over own graphs and a shared frozen tensor") {
  const Tensor frozen = irregular({4, 6});
  std::vector<std::vector<double>> alone(kThreads), together(kThreads);
  for (int i = 0; i < kThreads; ++i) alone[static_cast<std::size_t>(i)] = step(frozen, i, false);
  on_threads([&](int i) {
    for (int round = 0; round < 10; ++round)
      together[static_cast<std::size_t>(i)] = step(frozen, i, round % 2 == 1);
  });
  CHECK(together == alone);
  CHECK(frozen.family_handles() == 0);
}

TEST_CASE("threads: a failure, a mode or a callback of one is not seen by others") {
  std::vector<int> fine(kThreads, 0);
  on_threads([&](int i) {
    for (int round = 0; round < 50; ++round) {
      const Variable x = scalar_leaf(2.0);
      if (i == 0) {
        const AnomalyGuard anomaly;
        const AutocastGuard autocast(DType::kF32);
        const Variable y = mul(x, 2.0);
        y.gradient_edge().node->add_pre_hook([](Gradients&) { throw DataError("mine"); });
        try {
          backward(y);
        } catch (const DataError&) {
          ++fine[0];
        }
      } else {
        Variable y = mul(x, 3.0);
        int called = 0;
        y.register_hook([&](const Variable&) {
          queue_callback([&](bool failed) { called += failed ? 100 : 1; });
          return Variable();
        });
        backward(y);
        const bool clean = !in_backward() && !autocast_dtype() && !detail::anomaly_mode();
        if (called == 1 && clean && x.grad().item<double>() == 3)
          ++fine[static_cast<std::size_t>(i)];
      }
    }
  });
  CHECK(fine == std::vector<int>(kThreads, 50));
}

TEST_CASE("threads: a graph recorded on one is destroyed on another") {
  Variable y = scalar_leaf(1.0);
  for (int i = 0; i < 100'000; ++i) y = mul(y, 1.0);
  const std::weak_ptr<GraphNode> node = y.gradient_edge().node;
  std::thread([moved = std::move(y)]() mutable { moved = Variable(); }).join();
  CHECK(node.expired());
}

// ---- a million nodes --------------------------------------------------------------------------

constexpr int kMany = 1'000'000;

// A link that computes nothing.
Variable link(const Variable& x) {
  return record_twice("link", x.tensor(), {x},
                      [](const Variable& dy, const BackwardContext&) { return Gradients{dy}; });
}

TEST_CASE("a million nodes: wide, executed and destroyed") {
  const Variable x = scalar_leaf(2.0);
  Variable y = mul(x, 1.0);
  const std::weak_ptr<GraphNode> below = y.gradient_edge().node;
  std::vector<Variable> all;
  all.reserve(kMany);
  for (int i = 0; i < kMany; ++i) all.push_back(link(y));
  std::vector<Tensor> tensors = {y.tensor()};
  Variable gathered = record_differentiable(
      "gather", std::move(tensors), all,
      [](const Gradients& dy, const BackwardContext&) { return Gradients(kMany, dy[0]); })[0];
  all.clear();
  y = Variable();
  backward(gathered);
  CHECK(x.grad().item<double>() == kMany);
  gathered = Variable();
  CHECK(below.expired());
}

TEST_CASE("a million nodes: a failure at the far end leaves nothing behind") {
  const Variable x = scalar_leaf(2.0);
  Variable y = record_twice("failing", x.tensor(), {x},
                            [](const Variable&, const BackwardContext&) -> Gradients {
                              throw DataError("at the far end");
                            });
  for (int i = 0; i < kMany; ++i) y = link(y);
  CHECK(thrown<DataError>([&] { backward(y); }) == "at the far end");
  CHECK_FALSE(in_backward());
  CHECK_FALSE(x.grad().defined());
  const std::weak_ptr<GraphNode> node = y.gradient_edge().node;
  y = Variable();
  CHECK(node.expired());
}

std::int64_t bytes() { return current_rank_context()->memory().current().total(); }

TEST_CASE("a long chain frees what it saved as it goes, and adds no more than two gradients") {
  constexpr int kLong = 1'000;
  constexpr std::int64_t kRows = 1'000;
  const Variable x = leaf({kRows});
  const std::int64_t before = bytes();
  Variable y = x;
  std::vector<std::int64_t> seen;
  for (int i = 0; i < kLong; ++i) {
    y = exp(mul(y, 1e-3));
    if (i % 100 == 0) {
      y.register_hook([&](const Variable&) {
        seen.push_back(bytes());
        return Variable();
      });
    }
  }
  const std::int64_t one = 64 * ((kRows * 8 + 63) / 64);
  CHECK(bytes() - before >= kLong * one);
  const Variable loss = sum(y);
  y = Variable();
  const std::int64_t full = bytes();
  current_rank_context()->memory().reset_peak();
  backward(loss);
  REQUIRE(seen.size() == 10);
  for (std::size_t i = 1; i < seen.size(); ++i) {
    CAPTURE(i);
    CHECK(seen[i] <= seen[i - 1] - 99 * one);
  }
  CHECK(current_rank_context()->memory().peak_total() <= full + 4 * one);
  CHECK(bytes() - before <= 2 * one);
}

TEST_CASE("a failure half way frees what the rest saved once the graph goes") {
  const Variable x = leaf({1'000});
  const std::int64_t before = bytes();
  {
    Variable y = x;
    for (int i = 0; i < 200; ++i) {
      y = exp(mul(y, 1e-3));
      if (i == 100) {
        y.register_hook([](const Variable&) -> Variable { throw DataError("half way"); });
      }
    }
    const std::int64_t full = bytes();
    CHECK(thrown<DataError>([&] { backward(sum(y)); }) == "half way");
    CHECK(bytes() < full - 90 * 8'000);
  }
  CHECK(bytes() == before);
}

}  // namespace
}  // namespace tessera::testing
