// Collectives on several streams at once, and many of them.
#include <catch2/catch.hpp>

#include "tessera/distributed/collectives.h"
#include "tessera/tensor/streams/stream.h"
#include "tessera/tests/distributed/values.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {

using distributed::ReduceOp;

TESSERA_RANK_TEST("collectives on two queued streams may be under way together", "[streams]") {
  const DeviceStream gather = DeviceStream::create(kCpu, StreamKind::kQueued, "gather");
  const DeviceStream reduce = DeviceStream::create(kCpu, StreamKind::kQueued, "reduce");
  // The streams run in opposite orders of speed on even and odd ranks, so each overtakes the other
  // somewhere.
  const DeviceStream& slow = t.rank() % 2 == 0 ? gather : reduce;
  const std::int64_t count = 6000;
  std::vector<Tensor> wholes, sums;
  for (int round = 0; round < 12; ++round) {
    stream_sleep(slow, 1.0);
    const auto member = static_cast<std::size_t>(round);
    const Tensor part = rank_tensor<float>(t.rank(), member, count),
                 whole = rank_tensor<float>(0, 0, count * t.size());
    const Tensor grads = rank_tensor<float>(t.rank(), member + 100, count * t.size()),
                 sum = rank_tensor<float>(0, 0, count);
    {
      StreamGuard guard(gather);
      all_gather(t.group(), std::vector{part}, std::vector{whole}, "gather");
    }
    {
      StreamGuard guard(reduce);
      reduce_scatter(t.group(), std::vector{grads}, std::vector{sum}, ReduceOp::kSum, "reduce");
    }
    // A tensor's memory must outlive the queued work on another stream.
    wholes.insert(wholes.end(), {part, whole});
    sums.insert(sums.end(), {grads, sum});
  }
  gather.synchronize();
  reduce.synchronize();
  for (std::size_t round = 0; round < 12; ++round) {
    const std::vector<float> whole = wholes[2 * round + 1].to_vector<float>(),
                             sum = sums[2 * round + 1].to_vector<float>();
    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < count * t.size(); ++i)
      wrong += whole[static_cast<std::size_t>(i)] !=
               rank_value<float>(static_cast<int>(i / count), round, i % count);
    for (std::int64_t i = 0; i < count; ++i)
      wrong += sum[static_cast<std::size_t>(i)] !=
               reduced_value<float>(t.size(), ReduceOp::kSum, round + 100, t.rank() * count + i);
    t.check(wrong == 0, "round {}: {} wrong elements", round, wrong);
  }
}

TESSERA_RANK_TEST_WITH("thousands of collectives stay right", "[streams]", {.worlds = {2, 3}}) {
  const DeviceStream other = DeviceStream::create(kCpu, StreamKind::kQueued, "other");
  const int rounds = 400;
  std::int64_t wrong = 0;
  std::vector<Tensor> queued;
  for (int round = 0; round < rounds; ++round) {
    const Tensor x = Tensor::from_vector<std::int64_t>({t.rank() + round, round}, {2});
    const Tensor whole = Tensor::from_vector<std::int64_t>(
        std::vector<std::int64_t>(static_cast<std::size_t>(2 * t.size())), {2 * t.size()});
    {
      StreamGuard guard(other);
      all_gather(t.group(), std::vector{x}, std::vector{whole});
    }
    queued.insert(queued.end(), {x, whole});
    const Tensor sum = Tensor::from_vector<std::int64_t>({t.rank() + round}, {1});
    all_reduce(t.group(), std::vector{sum});
    wrong += sum.item<std::int64_t>() != t.size() * round + t.size() * (t.size() - 1) / 2;
  }
  other.synchronize();
  for (std::size_t round = 0; round < static_cast<std::size_t>(rounds); ++round) {
    const std::vector<std::int64_t> whole = queued[2 * round + 1].to_vector<std::int64_t>();
    for (int r = 0; r < t.size(); ++r)
      wrong += whole[static_cast<std::size_t>(2 * r)] != r + static_cast<std::int64_t>(round);
  }
  t.check(wrong == 0, "{} wrong results", wrong);
}

TESSERA_RANK_TEST_WITH("an event orders another stream behind a queued collective", "[streams]",
                       {.worlds = {3}, .cpu_compute = StreamKind::kQueued}) {
  const DeviceStream comm = DeviceStream::create(kCpu, StreamKind::kQueued, "comm");
  const Tensor x = rank_tensor<double>(t.rank(), 0, 9), whole = rank_tensor<double>(0, 0, 27);
  const DeviceEvent ready = current_stream(kCpu).record("ready");
  comm.wait(ready);
  {
    StreamGuard guard(comm);
    if (t.rank() == 1) stream_sleep(comm, 20);
    all_gather(t.group(), std::vector{x}, std::vector{whole});
  }
  const DeviceEvent gathered = comm.record("gathered");
  current_stream(kCpu).wait(gathered);
  const std::vector<double> values = whole.to_vector<double>();
  t.check(values[26] == rank_value<double>(2, 0, 8), "read before the gather was done");
}

}  // namespace tessera::testing
