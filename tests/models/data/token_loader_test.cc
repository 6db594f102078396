// Batches of tokens: the same for any number of ranks, with or without read-ahead, from any step.
#include "tessera/models/data/token_loader.h"

#include <rapidcheck.h>
#include <atomic>
#include <catch2/catch.hpp>
#include <numeric>
#include <thread>

#include "tessera/models/training/batch_order.h"
#include "tessera/tensor/error.h"
#include "tessera/tests/models/data/token_support.h"

namespace tessera::models::data {
namespace {

using Catch::Matchers::Contains;

// Token i is i.
std::shared_ptr<const TokenSpan> counting(std::int64_t count) {
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(count));
  std::iota(tokens.begin(), tokens.end(), 0);
  return std::make_shared<testing::GivenTokens>(std::move(tokens));
}

using Row = std::vector<std::int64_t>;

std::vector<Row> rows_of(const TokenBatch& batch) {
  const auto tokens = batch.tokens.to_vector<std::int64_t>();
  const auto targets = batch.targets.to_vector<std::int64_t>();
  std::vector<Row> rows;
  const std::int64_t length = batch.tokens.dim(1);
  for (std::int64_t row = 0; row < batch.rows(); ++row) {
    const auto begin = tokens.begin() + row * length;
    rows.emplace_back(begin, begin + length);
    for (std::int64_t i = 0; i < length; ++i)
      CHECK(targets[static_cast<std::size_t>(row * length + i)] ==
            tokens[static_cast<std::size_t>(row * length + i)] + 1);
  }
  return rows;
}

TEST_CASE("sequences are packed one behind the other, the rest is left") {
  const PackedSequences sequences(counting(11), 3);
  REQUIRE(sequences.count() == 3);
  CHECK(sequences.length() == 3);
  std::vector<std::int64_t> out(4);
  sequences.read(2, out);
  CHECK(out == Row{6, 7, 8, 9});
  CHECK(PackedSequences(counting(10), 3).count() == 3);
  CHECK(PackedSequences(counting(9), 3).count() == 2);
  CHECK(PackedSequences(counting(4), 3).count() == 1);
  CHECK_THROWS_WITH(sequences.read(3, out), Contains("sequence 3 of 3"));
  CHECK_THROWS_WITH(sequences.read(-1, out), Contains("sequence -1 of 3"));
  CHECK_THROWS_WITH(sequences.read(0, std::span(out).first(3)), Contains("room for 3 tokens"));
  CHECK_THROWS_WITH(PackedSequences(counting(11), 0), Contains("sequences of 0 tokens"));
  CHECK_THROWS_WITH(PackedSequences(counting(3), 3),
                    Contains("has 3 tokens") && Contains("needs 4"));
  CHECK_THROWS_AS(PackedSequences(counting(1), 1), DataError);
  CHECK_THROWS_WITH(PackedSequences(counting(0), 1), Contains("made with validation 0"));
}

TEST_CASE("the ranks' rows together are the batch that the order says") {
  const int ranks = GENERATE(1, 2, 3, 5), prefetch = GENERATE(0, 1, 3);
  const PackedSequences sequences(counting(38), 3);  // 12 sequences: batches of 5, 5, 2
  BatchOrder order(sequences.count(), 5, 9);
  std::vector<std::unique_ptr<TokenLoader>> loaders;
  for (int rank = 0; rank < ranks; ++rank)
    loaders.push_back(std::make_unique<TokenLoader>(
        sequences, TokenLoaderOptions{
                       .batch = 5, .seed = 9, .ranks = ranks, .rank = rank, .prefetch = prefetch}));
  CHECK(loaders[0]->steps_per_epoch() == 3);
  for (std::int64_t step = 1; step <= 7; ++step) {
    const auto samples = order.samples_of(step);
    const auto total = static_cast<std::int64_t>(samples.size());
    std::vector<Row> all, expected;
    for (const std::int64_t sample : samples)
      expected.push_back({3 * sample, 3 * sample + 1, 3 * sample + 2});
    for (auto& loader : loaders) {
      const TokenBatch batch = loader->load(step);
      CHECK(batch.step == step);
      CHECK(batch.samples == total);
      CHECK(batch.padded_rows == (total + ranks - 1) / ranks);
      CHECK(batch.rows() <= batch.padded_rows);
      CHECK(batch.first_sample == static_cast<std::int64_t>(all.size()));
      CHECK(batch.targets.shape() == batch.tokens.shape());
      for (Row& row : rows_of(batch)) all.push_back(std::move(row));
    }
    CHECK(all == expected);
  }
}

TEST_CASE("property: a loader may be asked for any steps") {
  const PackedSequences sequences(counting(50), 2);
  TokenLoader plain(sequences, {.batch = 7, .seed = 3, .prefetch = 0});
  CHECK(rc::check("and gives what one that never reads ahead gives", [&] {
    TokenLoader ahead(sequences, {.batch = 7, .seed = 3, .prefetch = *rc::gen::inRange(1, 4)});
    std::int64_t step = *rc::gen::inRange(1, 30);
    for (int calls = *rc::gen::inRange(0, 12); calls > 0; --calls) {
      RC_ASSERT(rows_of(ahead.load(step)) == rows_of(plain.load(step)));
      step = *rc::gen::inRange(0, 3) == 0 ? *rc::gen::inRange(1, 30) : step + 1;
    }
  }));
}

// Counts reads; fails, or blocks from a given read on.
class WatchedTokens final : public testing::GivenTokens {
 public:
  WatchedTokens() : GivenTokens(std::vector<std::int64_t>(41)) {}
  void read(std::int64_t begin, std::span<std::int64_t> out) const override {
    const int number = ++reads;
    while (number > hold_after) std::this_thread::yield();
    if (begin == bad_begin) throw DataError("the disk is gone");
    GivenTokens::read(begin, out);
  }
  mutable std::atomic<int> reads{0};
  std::atomic<int> hold_after{1'000'000};
  std::atomic<std::int64_t> bad_begin{-1};
};

TEST_CASE("what reading throws comes out of the step that it belongs to") {
  const int prefetch = GENERATE(0, 1, 4);
  const auto tokens = std::make_shared<WatchedTokens>();
  const PackedSequences sequences(tokens, 4);
  BatchOrder order(10, 2, 5);
  tokens->bad_begin = 4 * order.samples_of(3)[1];
  TokenLoader loader(sequences, {.batch = 2, .seed = 5, .prefetch = prefetch});
  loader.load(1);
  loader.load(2);
  CHECK_THROWS_WITH(loader.load(3), Contains("the disk is gone"));
  loader.load(4);
  CHECK_THROWS_AS(loader.load(3), DataError);  // thrown again when the step is requested again
  tokens->bad_begin = -1;
  CHECK(loader.load(3).rows() == 2);
}

TEST_CASE("as many batches as told are read ahead, from the first call on") {
  const auto tokens = std::make_shared<WatchedTokens>();
  const PackedSequences sequences(tokens, 4);
  TokenLoader loader(sequences, {.batch = 1, .seed = 5, .prefetch = 3});
  CHECK(tokens->reads == 0);
  loader.load(1);
  while (tokens->reads < 4) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK(tokens->reads == 4);
  loader.load(2);
  while (tokens->reads < 5) std::this_thread::yield();
}

TEST_CASE("a loader ends while it reads, and before it was ever used") {
  const auto tokens = std::make_shared<WatchedTokens>();
  const PackedSequences sequences(tokens, 4);
  { TokenLoader unused(sequences, {.batch = 2}); }
  CHECK(tokens->reads == 0);
  tokens->hold_after = 10;  // the first batch passes, the second blocks in its first read
  auto loader = std::make_unique<TokenLoader>(sequences, TokenLoaderOptions{.batch = 10});
  loader->load(1);
  while (tokens->reads < 11) std::this_thread::yield();
  std::atomic<bool> ended{false}, ended_early{false};
  std::thread opener([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    ended_early = ended.load();
    tokens->hold_after = 1'000'000;
  });
  loader.reset();
  ended = true;
  opener.join();
  CHECK_FALSE(ended_early);
  CHECK(tokens->reads == 20);  // the batch in progress, and none after it
}

TEST_CASE("a loader refuses what cannot be") {
  const PackedSequences sequences(counting(20), 2);
  const auto make = [&](const TokenLoaderOptions& options) {
    TokenLoader loader(sequences, options);
  };
  CHECK_THROWS_WITH(make({.batch = 0}), Contains("the batch is 0"));
  CHECK_THROWS_WITH(make({.ranks = 0}), Contains("rank 0 of 0 ranks"));
  CHECK_THROWS_WITH(make({.ranks = 2, .rank = 2}), Contains("rank 2 of 2 ranks"));
  CHECK_THROWS_WITH(make({.ranks = 2, .rank = -1}), Contains("rank -1 of 2 ranks"));
  CHECK_THROWS_WITH(make({.prefetch = -1}), Contains("prefetch is -1"));
  TokenLoader loader(sequences, {});
  CHECK_THROWS_WITH(loader.load(0), Contains("step 0; steps count from 1"));
  CHECK(loader.load(1).samples == 9);
}

}  // namespace
}  // namespace tessera::models::data
