// A parallelized model beside its plain twin: the same steps on every rank, the same numbers.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "tessera/models/parallelize/parallelize.h"
#include "tessera/nn/module.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {

// A model of tokens and how it is called. All f64.
struct Subject {
  std::shared_ptr<nn::Module> module;
  // Of samples [begin, end) of one batch of kSamples; [samples, length, vocab].
  std::function<Variable(std::int64_t begin, std::int64_t end)> logits;
  // Of the whole batch, decoded with a cache in two calls.
  std::function<Tensor()> decoded;
  std::function<void(const models::ParallelizeOptions&)> parallelize;
};
// 7: over 2, 3 and 5 ranks 4 + 3, 3 + 3 + 1 and 2 + 2 + 2 + 1 + 0.
inline constexpr std::int64_t kSamples = 7;

// Ranks of the mesh that share the batch.
struct DataPlace {
  int ranks = 1;
  int index = 0;
};

// Trains both for three steps with SGD, momentum and dropout, each rank of the parallel one with
// its samples: logits, gradients and parameters agree to 1e-12 throughout, and so do decoded logits
// at the end. Collective.
void train_parallel_twin(RankTest& t, const std::function<Subject()>& make,
                         const models::ParallelizeOptions& options, const DataPlace& place);

}  // namespace tessera::testing
