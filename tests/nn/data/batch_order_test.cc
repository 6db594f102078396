// The samples of each batch and of each rank.
#include "tessera/nn/data/batch_order.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>

#include "tessera/tensor/error.h"
#include "tessera/tensor/random.h"

namespace tessera::nn::data {
namespace {

using Catch::Matchers::Contains;
using Samples = std::vector<std::int64_t>;

Samples copy(std::span<const std::int64_t> samples) { return {samples.begin(), samples.end()}; }

Samples from(std::int64_t begin, std::int64_t end) {
  Samples samples(static_cast<std::size_t>(end - begin));
  std::iota(samples.begin(), samples.end(), begin);
  return samples;
}

TEST_CASE("an epoch has every sample once, its last batch is the rest") {
  BatchOrder order(10, {.batch = 4, .seed = 3});
  REQUIRE(order.steps_per_epoch() == 3);
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    Samples seen;
    for (std::int64_t step = 1; step <= 3; ++step) {
      const Samples samples = copy(order.samples_of(3 * epoch + step));
      CHECK(samples.size() == (step == 3 ? 2 : 4));
      seen.insert(seen.end(), samples.begin(), samples.end());
    }
    std::sort(seen.begin(), seen.end());
    CHECK(seen == from(0, 10));
  }
}

TEST_CASE("the order depends on seed and epoch and on nothing else") {
  BatchOrder first(100, {.batch = 100, .seed = 1}), second(100, {.batch = 100, .seed = 1}),
      other(100, {.batch = 100, .seed = 2});
  const Samples epoch1 = copy(first.samples_of(1));
  const Samples epoch2 = copy(first.samples_of(2));
  CHECK(epoch1 != epoch2);
  CHECK(copy(second.samples_of(2)) == epoch2);  // without the first epoch before
  CHECK(copy(first.samples_of(1)) == epoch1);   // going back
  CHECK(copy(other.samples_of(1)) != epoch1);
}

// The order of runs that were started before must not change, so it is pinned here.
TEST_CASE("the order is a permutation by a key that is named after the epoch") {
  BatchOrder order(50, {.batch = 50, .seed = 7});
  CHECK(copy(order.samples_of(1)) ==
        random::permutation(50, random::named_key(7, "samples of epoch 0")));
  CHECK(copy(order.samples_of(13)) ==
        random::permutation(50, random::named_key(7, "samples of epoch 12")));
}

TEST_CASE("without shuffling every epoch is in order") {
  BatchOrder order(7, {.batch = 3, .shuffle = false});
  for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
    CHECK(copy(order.samples_of(3 * epoch + 1)) == Samples{0, 1, 2});
    CHECK(copy(order.samples_of(3 * epoch + 3)) == Samples{6});
    CHECK(copy(order.samples_of(3 * epoch + 2)) == Samples{3, 4, 5});
  }
}

TEST_CASE("drop_last leaves out a shorter last batch") {
  CHECK(BatchOrder(10, {.batch = 4, .drop_last = true}).steps_per_epoch() == 2);
  CHECK(BatchOrder(12, {.batch = 4, .drop_last = true}).steps_per_epoch() == 3);
  CHECK(BatchOrder(12, {.batch = 4}).steps_per_epoch() == 3);
  CHECK(BatchOrder(3, {.batch = 4, .drop_last = true}).steps_per_epoch() == 0);
  BatchOrder order(10, {.batch = 4, .drop_last = true});
  CHECK(copy(order.samples_of(3)).size() == 4);  // the first batch of epoch 1
  CHECK(order.position_of(3, {}).epoch == 1);
  CHECK(order.position_of(3, {}).batch == 0);
}

TEST_CASE("a batch larger than the data is all of it") {
  BatchOrder order(5, {.batch = 8});
  CHECK(order.steps_per_epoch() == 1);
  CHECK(order.samples_of(4).size() == 5);
}

TEST_CASE("the rows of the ranks are the batch, in order") {
  const int ranks = GENERATE(1, 2, 3, 4, 5);
  const std::int64_t batch = GENERATE(1, 3, 4, 5, 20);
  BatchOrder order(13, {.batch = batch, .seed = 9});
  for (std::int64_t step = 1; step <= 2 * order.steps_per_epoch(); ++step) {
    const Samples samples = copy(order.samples_of(step));
    const auto count = static_cast<std::int64_t>(samples.size());
    const std::int64_t padded = (count + ranks - 1) / ranks;
    Samples split, repeated;
    for (int rank = 0; rank < ranks; ++rank) {
      const BatchSplit uneven{.ranks = ranks, .rank = rank};
      const BatchPosition position = order.position_of(step, uneven);
      CHECK(position.step == step);
      CHECK(position.epoch * order.steps_per_epoch() + position.batch + 1 == step);
      CHECK(position.batch < order.steps_per_epoch());
      CHECK(position.samples == count);
      CHECK(position.padded_rows == padded);
      CHECK(position.first_sample == static_cast<std::int64_t>(split.size()));
      const Samples rows = order.rows_of(step, uneven);
      CHECK(position.rows == static_cast<std::int64_t>(rows.size()));
      CHECK(position.rows <= padded);
      split.insert(split.end(), rows.begin(), rows.end());

      const BatchSplit even{.ranks = ranks, .rank = rank, .pad = true};
      CHECK(order.position_of(step, even).rows == padded);
      CHECK(order.position_of(step, even).first_sample == rank * padded);
      CHECK(order.position_of(step, even).samples == count);
      const Samples more = order.rows_of(step, even);
      CHECK(static_cast<std::int64_t>(more.size()) == padded);
      repeated.insert(repeated.end(), more.begin(), more.end());
    }
    CHECK(split == samples);
    for (std::size_t i = 0; i < repeated.size(); ++i)
      CHECK(repeated[i] == samples[i % samples.size()]);
  }
}

TEST_CASE("a batch order refuses wrong numbers") {
  CHECK_THROWS_WITH(BatchOrder(-1, {}), Contains("[batch_order] -1 samples"));
  CHECK_THROWS_WITH(BatchOrder(4, {.batch = 0}), Contains("[batch_order] the batch is 0"));
  CHECK_THROWS_WITH(BatchOrder(4, {}).samples_of(0), Contains("steps count from 1"));
  CHECK(BatchOrder(0, {.batch = 4}).steps_per_epoch() == 0);
  CHECK_THROWS_WITH(BatchOrder(0, {.batch = 4}).samples_of(1),
                    Contains("0 samples in batches of 4 are no batch; give at least 1"));
  CHECK_THROWS_WITH(BatchOrder(3, {.batch = 4, .drop_last = true}).position_of(1, {}),
                    Contains("3 samples in batches of 4 with drop_last") && Contains("at least 4"));
  CHECK_THROWS_WITH(BatchOrder(3, {}).position_of(1, {.ranks = 2, .rank = 2}),
                    Contains("rank 2 of 2 ranks"));
  CHECK_THROWS_WITH(BatchOrder(3, {}).rows_of(1, {.ranks = 2, .rank = -1}),
                    Contains("rank -1 of 2 ranks"));
  CHECK_THROWS_AS(BatchOrder(3, {}).position_of(1, {.ranks = 0}), InvalidArgument);
}

}  // namespace
}  // namespace tessera::nn::data
