#pragma once

// A parallelized model beside an unsharded reference: the same steps on every rank, the same
// numbers.

#include <cstdint>
#include <functional>
#include <memory>

#include "tessera/models/parallelize/parallelize.h"
#include "tessera/nn/module.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {

// A token model in f64 and how to call it.
struct Subject {
  std::shared_ptr<nn::Module> module;
  // Logits of samples [begin, end) of one batch of kSamples: [samples, length, vocab].
  std::function<Variable(std::int64_t begin, std::int64_t end)> logits;
  // Logits of the whole batch, decoded with a cache in two calls.
  std::function<Tensor()> decoded;
  std::function<void(const models::ParallelizeOptions&)> parallelize;
};
// Over 2, 3 and 5 ranks: 4 + 3, 3 + 3 + 1 and 2 + 2 + 2 + 1 + 0.
inline constexpr std::int64_t kSamples = 7;

// The ranks of the mesh that share the batch.
struct DataPlace {
  int ranks = 1;
  int index = 0;
};

// Trains both for three steps with SGD, momentum and dropout; each rank of the parallel model has
// its own samples. Logits, gradients and parameters agree to 1e-12 throughout, and so do the
// decoded logits at the end. Collective.
void train_parallel_reference(RankTest& t, const std::function<Subject()>& make,
                              const models::ParallelizeOptions& options, const DataPlace& place);

}  // namespace tessera::testing
