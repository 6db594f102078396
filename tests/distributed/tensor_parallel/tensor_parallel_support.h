// What the tests of tensor parallelism share: numbers, counting collectives, training beside one
// rank that has everything.
#pragma once

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tessera/autograd/engine.h"
#include "tessera/distributed/collective_counts.h"
#include "tessera/distributed/mesh/device_mesh.h"
#include "tessera/distributed/parameters/mesh_impl.h"
#include "tessera/distributed/parameters/parameters.h"
#include "tessera/nn/module.h"
#include "tessera/nn/optim/sgd.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tensor/streams/stream.h"
#include "tessera/tensor/trace.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {

constexpr Tolerance kExact{1e-12, 1e-12};

inline distributed::DeviceMesh tp_mesh(RankTest& t) {
  return distributed::DeviceMesh("tp", t.world().group(), t.world().device());
}

inline Tensor irregular(const Shape& shape, double seed) {
  std::vector<double> numbers(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = std::sin(seed + 0.7 * static_cast<double>(i) + 0.3);
  return Tensor::from_vector(numbers, shape);
}

inline Tensor indices(const Shape& shape, std::int64_t below, std::int64_t step = 5) {
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = (static_cast<std::int64_t>(i) * step + 2) % below;
  return Tensor::from_vector(numbers, shape);
}

// Collectives by kind that `call` issues on this rank.
using Counts = std::map<std::string, int>;
inline Counts count_collectives(const std::function<void()>& call) {
  ExecutionTrace trace;
  {
    const TraceScope recording(trace);
    call();
  }
  Counts counts;
  for (const auto& row : distributed::CollectiveCounts(trace).rows())
    counts[row.op] += static_cast<int>(row.collectives);
  return counts;
}

inline void check_counts(RankTest& t, const Counts& got, const Counts& expected,
                         const std::string& what) {
  const auto text = [](const Counts& counts) {
    std::string out;
    for (const auto& [op, count] : counts) out += fmt::format("{} {} ", op, count);
    return out;
  };
  t.check(got == expected, "{}: {}, expected {}", what, text(got), text(expected));
}

// `call` throws InvalidArgument with the text. On a GPU a kernel finds the mistake: it is thrown at
// the next wait, and would end the run by the rank's failure handler, which is taken away.
inline void check_refused(RankTest& t, const std::string& text, const std::function<void()>& call) {
  if (t.world().device().is_cuda()) current_rank_context()->set_failure_handler(nullptr);
  t.check_throws<InvalidArgument>(text, [&] {
    call();
    current_stream(t.world().device()).synchronize();
  });
}

// A model over the ranks and one that this rank has whole.
struct References {
  nn::Module& split;
  nn::Module& whole;
};

inline void check_same_gradients(RankTest& t, const References& references,
                                 const std::string& what) {
  const auto split = references.split.named_parameters(),
             whole = references.whole.named_parameters();
  if (!t.check(split.size() == whole.size(), "{}: other parameters", what)) return;
  for (std::size_t i = 0; i < split.size(); ++i) {
    t.check(split[i].name == whole[i].name, "{}: {} and {}", what, split[i].name, whole[i].name);
    const Tensor full = distributed::full_grad(split[i].parameter);
    const Tensor expected = whole[i].parameter.grad();
    if (!t.check(full.defined() == expected.defined(), "{}: gradient of {}", what, split[i].name))
      continue;
    if (full.defined()) t.check_close(full, expected, kExact, what + " d" + split[i].name);
  }
}

inline void check_same_parameters(RankTest& t, const References& references,
                                  const std::string& what) {
  const auto split = references.split.named_parameters(),
             whole = references.whole.named_parameters();
  for (std::size_t i = 0; i < split.size(); ++i) {
    t.check_close(distributed::full_copy(split[i].parameter), whole[i].parameter.local().tensor(),
                  kExact, what + " " + whole[i].name);
  }
}

struct TrainingOptions {
  int steps = 3;
  double lr = 0.05;
  bool loss_in_parts = false;  // the ranks' losses add up to that of the whole
};
// Steps of SGD on both; loss, gradients and parameters stay equal.
inline void check_same_training(RankTest& t, const References& references,
                                const std::function<Variable()>& split_loss,
                                const std::function<Variable()>& whole_loss,
                                const TrainingOptions& options = {}) {
  nn::optim::SGD split(references.split.parameters(), {.lr = options.lr, .momentum = 0.9});
  nn::optim::SGD whole(references.whole.parameters(), {.lr = options.lr, .momentum = 0.9});
  for (int step = 0; step < options.steps; ++step) {
    const std::string what = fmt::format("step {}", step);
    const Variable loss = split_loss(), expected = whole_loss();
    const Tensor shown = clone(loss.tensor());
    if (options.loss_in_parts)
      distributed::make_mesh(tp_mesh(t))->all_reduce(shown, "tp", nn::MeshReduce::kSum);
    t.check_close(shown, expected.tensor(), kExact, what + " loss");
    backward(loss);
    backward(expected);
    check_same_gradients(t, references, what);
    split.step();
    whole.step();
    split.zero_grad();
    whole.zero_grad();
  }
  check_same_parameters(t, references, "after training");
}

}  // namespace tessera::testing
