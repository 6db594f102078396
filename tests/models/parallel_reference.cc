#include "tessera/tests/models/parallel_reference.h"

#include <string>

#include <fmt/format.h>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/grad_mode.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/distributed/mesh/placement.h"
#include "tessera/fsdp/testing.h"
#include "tessera/nn/optim/sgd.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tensor/random_scope.h"
#include "tessera/tests/models/token_model_checks.h"

namespace tessera::testing {
namespace {

constexpr Tolerance kTolerance{.rtol = 1e-12, .atol = 1e-13};
constexpr nn::optim::SgdOptions kSgd{.lr = 0.05, .momentum = 0.9};

// The mean over all samples' tokens is the sum of these over the ranks, divided by the ranks.
Variable loss_of(const Variable& logits, std::int64_t first_sample, const DataPlace& place) {
  const std::int64_t length = logits.dim(1), begin = first_sample * length;
  const Tensor all =
      Tensor::from_vector(some_tokens(kSamples * length, logits.dim(2)), {kSamples * length});
  const Tensor targets = all.slice(0, begin, begin + logits.dim(0) * length);
  return cross_entropy(flatten(logits, 0, 1), targets, LossReduction::kSum) *
         (static_cast<double>(place.ranks) / static_cast<double>(kSamples * length));
}

void check_same(RankTest& t, const nn::Module& parallel, const nn::Module& whole, bool gradients) {
  const std::string report = fsdp::check_sharded_parity(
      whole, parallel, {.tolerance = kTolerance.rtol, .gradients = gradients});
  t.check(report.empty(), "{}", report);
}

}  // namespace

void train_parallel_reference(RankTest& t, const std::function<Subject()>& make,
                              const models::ParallelizeOptions& options, const DataPlace& place) {
  const Subject whole = make(), parallel = make();
  randomize(*whole.module);
  parallel.parallelize(options);
  randomize(*parallel.module);
  nn::optim::SGD whole_sgd(whole.module->parameters(), kSgd);
  nn::optim::SGD parallel_sgd(parallel.module->parameters(), kSgd);
  const distributed::Chunk mine = distributed::chunk_of(kSamples, place.ranks, place.index);
  for (std::uint64_t step = 0; step < 3; ++step) {
    const RankTest::NamedCase at(t, fmt::format("step {}", step));
    Variable expected, logits;
    {
      const random::StepScope scope({.seed = 1, .step = step});
      expected = whole.logits(0, kSamples);
      backward(loss_of(expected, 0, {}));
    }
    {
      const random::StepScope scope({.seed = 1, .step = step, .first_sample = mine.begin});
      logits = parallel.logits(mine.begin, mine.end);
      backward(loss_of(logits, mine.begin, place));
    }
    t.check_close(logits.tensor(), expected.tensor().slice(0, mine.begin, mine.end), kTolerance,
                  "logits");
    check_same(t, *parallel.module, *whole.module, /*gradients=*/true);
    whole_sgd.step();
    parallel_sgd.step();
    whole_sgd.zero_grad();
    parallel_sgd.zero_grad();
    check_same(t, *parallel.module, *whole.module, /*gradients=*/false);
  }
  whole.module->eval();
  parallel.module->eval();
  const NoGradGuard no_grad;
  t.check_close(parallel.decoded(), whole.logits(0, kSamples).tensor(), kTolerance, "decoded");
}

}  // namespace tessera::testing
