#pragma once

/// Where run-time random numbers (dropout) get their keys: from the seed, the step, the layer and
/// how often the layer drew before in this step. So ranks, threads and a recomputed forward draw
/// the same numbers.
///
///     random::StepScope scope({.seed = 1, .step = 7, .first_sample = 32});   // the trainer
///     const random::RandomKey key = random::next_key("blocks.3.dropout");    // the layer
///     random::fill_uniform(mask, key.key(), box, 0, 1);   // box.offset[0] =
///     random::first_sample()
///
/// All state belongs to the calling thread. Whoever runs a forward again (recompute) takes
/// capture() before the first run and opens a RestoreScope around the second: the same calls then
/// draw the same keys, in nested recomputations too.

#include <cstdint>
#include <string_view>
#include <vector>

#include "tessera/tensor/random.h"

namespace tessera::random {

/// Names one draw. Two draws of equal keys give equal numbers at equal positions.
struct RandomKey {
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  std::uint64_t layer = 0;  ///< named_key of the layer's name
  std::uint64_t call = 0;   ///< draws of this layer before this one in the step

  bool operator==(const RandomKey&) const = default;
  /// All four in one key, for fill_uniform and its kind.
  Key key() const;
};

struct StepOptions {
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  std::int64_t first_sample = 0;  ///< global index of the first sample that this rank computes
};

/// The key of the next draw of `layer`, and counts it.
///
/// In a StepScope: the scope's seed and step; calls of a layer count from 0. Outside: the seed of
/// manual_seed(), kNoStep, and the calls of this thread since manual_seed; there the rank is part
/// of `layer`, so that ranks draw different numbers. Threads of one rank that draw outside a scope
/// draw the same.
RandomKey next_key(std::string_view layer);
inline constexpr std::uint64_t kNoStep = ~std::uint64_t{0};

/// StepOptions::first_sample of the open scope; 0 without one.
std::int64_t first_sample();

/// The seed of draws outside any StepScope, for the whole process (0 at the start); their calls
/// count from 0 again on every thread. May be called from any thread.
void manual_seed(std::uint64_t seed);

/// What the next draws of a thread depend on. A value: copies are independent.
struct State {
  struct Calls {
    std::uint64_t layer;
    std::uint64_t count;
  };
  StepOptions step = {};
  bool in_step = false;           ///< inside a StepScope
  std::uint64_t generation = 0;   ///< of manual_seed; outside a StepScope only
  std::vector<Calls> calls = {};  ///< sorted by layer
};

/// This thread's state now.
State capture();

/// Draws continue from `state` until the end of the scope; then from where they were before it.
/// Scopes of this file nest, and end in the reverse order of their beginning.
class RestoreScope {
 public:
  explicit RestoreScope(const State& state);
  ~RestoreScope();
  RestoreScope(const RestoreScope&) = delete;
  RestoreScope& operator=(const RestoreScope&) = delete;

 private:
  State previous_;
  bool previous_fixed_;
};

/// One step of training, or of evaluation, on this thread. In a scope inside a scope calls count
/// from 0 anew: give it another step or seed.
class StepScope {
 public:
  /// Throws InvalidArgument for a negative first_sample and for step kNoStep.
  explicit StepScope(const StepOptions& options);

 private:
  RestoreScope scope_;
};

/// Until the end of the scope a draw of this thread throws StateError with the layer's name and
/// `reason`: for work that is recorded once and repeated, keys included.
class NoDraws {
 public:
  explicit NoDraws(const char* reason);
  ~NoDraws();
  NoDraws(const NoDraws&) = delete;
  NoDraws& operator=(const NoDraws&) = delete;

 private:
  const char* previous_;
};

}  // namespace tessera::random
