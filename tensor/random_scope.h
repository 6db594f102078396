#pragma once

/// The keys of run-time random numbers (dropout). A key is made from the seed, the step, the layer
/// and the number of earlier draws of the layer in this step. All ranks and threads, and a
/// recomputed forward, therefore draw the same numbers.
///
///     random::StepScope scope({.seed = 1, .step = 7, .first_sample = 32});   // the trainer
///     const random::RandomKey key = random::next_key("blocks.3.dropout");    // the layer
///     // box.offset[0] = random::first_sample()
///     random::fill_uniform(mask, key.key(), box, 0, 1);
///
/// All state belongs to the calling thread. To run a forward a second time (recompute), take
/// capture() before the first run and open a RestoreScope around the second: the same calls then
/// draw the same keys, also in nested recomputation.

#include <cstdint>
#include <string_view>
#include <vector>

#include "tessera/tensor/random.h"

namespace tessera::random {

/// Identifies one draw. Draws with equal keys give equal numbers at equal positions.
struct RandomKey {
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  std::uint64_t layer = 0;  ///< named_key of the layer's name
  std::uint64_t call = 0;   ///< number of earlier draws of this layer in the step

  bool operator==(const RandomKey&) const = default;
  /// All four fields combined into one key, for fill_uniform and the other fill functions.
  Key key() const;
};

struct StepOptions {
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  std::int64_t first_sample = 0;  ///< global index of the first sample that this rank computes
};

/// Returns the key of the next draw of `layer`, and counts the draw.
///
/// Inside a StepScope the key has the scope's seed and step, and calls of a layer count from 0.
/// Outside it has the seed of manual_seed(), kNoStep and the number of this thread's calls since
/// manual_seed; the rank is part of `layer` then, so that ranks draw different numbers. Threads of
/// one rank that draw outside a scope draw the same numbers.
RandomKey next_key(std::string_view layer);
inline constexpr std::uint64_t kNoStep = ~std::uint64_t{0};

/// StepOptions::first_sample of the open scope; 0 without one.
std::int64_t first_sample();

/// The seed of draws outside any StepScope, for the whole process (0 by default). Their calls count
/// from 0 again on every thread. Thread-safe.
void manual_seed(std::uint64_t seed);

/// The state that the next draws of a thread depend on. A value: copies are independent.
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

/// Draws continue from `state` until the end of the scope, and afterwards from where they were
/// before it. The scopes of this file nest, and must end in the reverse order of their
/// construction.
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

/// One step of training or evaluation on this thread. A nested scope counts calls from 0 again, so
/// give it another step or seed.
class StepScope {
 public:
  /// Throws InvalidArgument for a negative first_sample and for step kNoStep.
  explicit StepScope(const StepOptions& options);

 private:
  RestoreScope scope_;
};

/// Until the end of the scope a draw of this thread throws StateError with the layer's name and
/// `reason`. For work that is recorded once and replayed with the same keys (a CUDA graph).
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
