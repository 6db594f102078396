#include "tessera/tensor/random_scope.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <utility>

#include "tessera/tensor/check.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tensor/thread_state.h"

namespace tessera::random {
namespace {

std::atomic<std::uint64_t> g_seed{0};
std::atomic<std::uint64_t> g_generation{0};

thread_local State t_state;

State& current() {
  if (!detail::thread_state().has_fixed_random) {
    const std::uint64_t generation = g_generation.load(std::memory_order_acquire);
    if (t_state.generation != generation) {
      t_state = State{.generation = generation};
    }
    t_state.step.seed = g_seed.load(std::memory_order_relaxed);
  }
  return t_state;
}

std::uint64_t count_call(State& state, std::uint64_t layer) {
  const auto place =
      std::lower_bound(state.calls.begin(), state.calls.end(), layer,
                       [](const State::Calls& calls, std::uint64_t l) { return calls.layer < l; });
  if (place != state.calls.end() && place->layer == layer) return place->count++;
  state.calls.insert(place, {.layer = layer, .count = 1});
  return 0;
}

State state_of(const StepOptions& options) {
  TESSERA_CHECK(options.first_sample >= 0, "random.StepScope",
                "first_sample is {}; samples count from 0", options.first_sample);
  TESSERA_CHECK(options.step != kNoStep, "random.StepScope",
                "step {} means \"no step\"; count steps from 0", options.step);
  return {.step = options, .in_step = true};
}

}  // namespace

Key RandomKey::key() const {
  // Distinct from the keys that named_key makes of names: those are seeded with the user's seed.
  constexpr std::uint64_t kDomain = 0x6472617773ull;  // "draws"
  const std::array<std::uint64_t, 4> words = {seed, step, layer, call};
  return {XXH64(words.data(), sizeof(words), kDomain)};
}

RandomKey next_key(std::string_view layer) {
  const char* no_draws = detail::thread_state().no_draws;
  TESSERA_CHECK_AS(StateError, no_draws == nullptr, "random.next_key",
                   "layer \"{}\" draws random numbers, but {}", layer, no_draws);
  State& state = current();
  const int rank = state.in_step ? -1 : current_rank_context()->rank();
  const std::uint64_t name = named_key(static_cast<std::uint64_t>(rank + 1), layer).value;
  return {.seed = state.step.seed,
          .step = state.in_step ? state.step.step : kNoStep,
          .layer = name,
          .call = count_call(state, name)};
}

std::int64_t first_sample() { return current().step.first_sample; }

void manual_seed(std::uint64_t seed) {
  g_seed.store(seed, std::memory_order_relaxed);
  g_generation.fetch_add(1, std::memory_order_release);
}

State capture() { return current(); }

RestoreScope::RestoreScope(const State& state)
    : previous_(std::exchange(t_state, state)),
      previous_fixed_(std::exchange(detail::thread_state().has_fixed_random, true)) {}

RestoreScope::~RestoreScope() {
  t_state = std::move(previous_);
  detail::thread_state().has_fixed_random = previous_fixed_;
}

NoDraws::NoDraws(const char* reason)
    : previous_(std::exchange(detail::thread_state().no_draws, reason)) {}

NoDraws::~NoDraws() { detail::thread_state().no_draws = previous_; }

StepScope::StepScope(const StepOptions& options) : scope_(state_of(options)) {}

}  // namespace tessera::random
