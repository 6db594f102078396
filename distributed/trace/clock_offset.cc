#include "tessera/distributed/trace/clock_offset.h"

#include <cstdlib>
#include <limits>
#include <vector>

#include "tessera/distributed/collectives.h"
#include "tessera/tensor/tensor.h"

namespace tessera::distributed {
namespace {

constexpr const char* kLabel = "clock offset";
constexpr int kRounds = 16;

void send_numbers(ProcessGroup& group, const std::vector<std::int64_t>& numbers, int to) {
  const auto count = static_cast<std::int64_t>(numbers.size());
  send(group, std::vector{Tensor::from_vector(numbers, {count}, kCpu)}, to, kLabel).synchronize();
}

std::vector<std::int64_t> receive_numbers(ProcessGroup& group, std::int64_t count, int from) {
  const Tensor numbers = Tensor::empty({count}, {.dtype = DType::kI64, .device = kCpu});
  recv(group, std::vector{numbers}, from, kLabel);
  return numbers.to_vector<std::int64_t>();
}

ClockOffset ask(ProcessGroup& group, int peer, const std::function<std::int64_t()>& clock) {
  ClockOffset best{.nanoseconds = 0, .uncertainty = std::numeric_limits<std::int64_t>::max()};
  for (int round = 0; round < kRounds; ++round) {
    const std::int64_t asked = clock();
    send_numbers(group, {asked}, peer);
    const std::int64_t there = receive_numbers(group, 1, peer)[0];
    const std::int64_t half = (clock() - asked + 1) / 2;
    if (half < best.uncertainty) best = {.nanoseconds = asked + half - there, .uncertainty = half};
  }
  if (std::abs(best.nanoseconds) <= best.uncertainty) best.nanoseconds = 0;
  return best;
}

}  // namespace

ClockOffset measure_clock_offset(ProcessGroup& group, const std::function<std::int64_t()>& clock) {
  if (group.rank() == 0) {
    for (int peer = 1; peer < group.size(); ++peer) {
      const ClockOffset offset = ask(group, peer, clock);
      send_numbers(group, {offset.nanoseconds, offset.uncertainty}, peer);
    }
    return {};
  }
  for (int round = 0; round < kRounds; ++round) {
    receive_numbers(group, 1, 0);
    send_numbers(group, {clock()}, 0);
  }
  const std::vector<std::int64_t> answer = receive_numbers(group, 2, 0);
  return {.nanoseconds = answer[0], .uncertainty = answer[1]};
}

}  // namespace tessera::distributed
