// Tokens as sequences, and these in batches: the same for any number of ranks, with or without
// workers, from any step.
#include "tessera/models/data/packed_sequences.h"

#include <rapidcheck.h>
#include <catch2/catch.hpp>
#include <numeric>

#include "tessera/nn/data/data_loader.h"
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

TEST_CASE("sequences are packed one behind the other, the rest is left") {
  const PackedSequences sequences(counting(11), 3);
  REQUIRE(sequences.size() == 3);
  CHECK(sequences.length() == 3);
  std::vector<std::int64_t> out(4);
  sequences.read(2, out);
  CHECK(out == Row{6, 7, 8, 9});
  CHECK(PackedSequences(counting(10), 3).size() == 3);
  CHECK(PackedSequences(counting(9), 3).size() == 2);
  CHECK(PackedSequences(counting(4), 3).size() == 1);
  CHECK_THROWS_WITH(sequences.read(3, out), Contains("sequence 3 of 3"));
  CHECK_THROWS_WITH(sequences.read(-1, out), Contains("sequence -1 of 3"));
  CHECK_THROWS_WITH(sequences.read(0, std::span(out).first(3)), Contains("room for 3 tokens"));
  CHECK_THROWS_WITH(PackedSequences(counting(11), 0), Contains("sequences of 0 tokens"));
  CHECK_THROWS_WITH(PackedSequences(counting(3), 3),
                    Contains("has 3 tokens") && Contains("needs 4"));
  CHECK_THROWS_AS(PackedSequences(counting(1), 1), DataError);
  CHECK_THROWS_WITH(PackedSequences(counting(0), 1), Contains("made with validation 0"));
}

TEST_CASE("a fingerprint is of all tokens, and of nothing else") {
  const auto of = [](std::vector<std::int64_t> numbers, std::int64_t length) {
    return PackedSequences(std::make_shared<testing::GivenTokens>(std::move(numbers)), length)
        .fingerprint();
  };
  std::vector<std::int64_t> tokens(300'001);
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<std::int64_t>(i * 7 % 251);
  const std::uint64_t whole = of(tokens, 5);
  CHECK(of(tokens, 6) == whole);
  for (const std::size_t at : {std::size_t{0}, std::size_t{131'072}, tokens.size() - 1}) {
    std::vector<std::int64_t> changed = tokens;
    ++changed[at];
    CHECK(of(changed, 5) != whole);
  }
  tokens.pop_back();
  CHECK(of(tokens, 5) != whole);
}

TEST_CASE("an example has tokens and their successors") {
  const PackedSequences sequences(counting(11), 3);
  const auto [tokens, targets] = sequences.get(1);
  CHECK(tokens.to_vector<std::int64_t>() == Row{3, 4, 5});
  CHECK(targets.to_vector<std::int64_t>() == Row{4, 5, 6});
  CHECK(tokens.device() == kCpu);
  CHECK_THROWS_WITH(sequences.get(3), Contains("sequence 3 of 3"));
}

std::vector<Row> rows_of(const std::pair<Tensor, Tensor>& batch) {
  const auto tokens = batch.first.to_vector<std::int64_t>();
  const auto targets = batch.second.to_vector<std::int64_t>();
  CHECK(batch.second.shape() == batch.first.shape());
  std::vector<Row> rows;
  const std::int64_t length = batch.first.dim(1);
  for (std::int64_t row = 0; row < batch.first.dim(0); ++row) {
    const auto begin = tokens.begin() + row * length;
    rows.emplace_back(begin, begin + length);
    for (std::int64_t i = 0; i < length; ++i)
      CHECK(targets[static_cast<std::size_t>(row * length + i)] ==
            tokens[static_cast<std::size_t>(row * length + i)] + 1);
  }
  return rows;
}

using Loader = nn::data::DataLoader<const PackedSequences&>;

TEST_CASE("the ranks' rows together are the batch that the order says") {
  const int ranks = GENERATE(1, 2, 3, 5), workers = GENERATE(0, 1, 3);
  const PackedSequences sequences(counting(38), 3);  // 12 sequences: batches of 5, 5, 2
  nn::data::BatchOrder order(sequences.size(), {.batch = 5, .seed = 9});
  std::vector<std::unique_ptr<Loader>> loaders;
  for (int rank = 0; rank < ranks; ++rank)
    loaders.push_back(
        std::make_unique<Loader>(sequences, nn::data::DataLoaderOptions{.batch_size = 5,
                                                                        .shuffle = true,
                                                                        .pad = false,
                                                                        .seed = 9,
                                                                        .workers = workers,
                                                                        .ranks = ranks,
                                                                        .rank = rank}));
  for (std::int64_t step = 1; step <= 7; ++step) {
    std::vector<Row> all, expected;
    for (const std::int64_t sample : order.samples_of(step))
      expected.push_back({3 * sample, 3 * sample + 1, 3 * sample + 2});
    for (auto& loader : loaders)
      for (Row& row : rows_of(loader->load(step))) all.push_back(std::move(row));
    CHECK(all == expected);
  }
}

TEST_CASE("property: a loader may be asked for any steps") {
  const PackedSequences sequences(counting(50), 2);
  Loader plain(sequences, {.batch_size = 7, .shuffle = true});
  CHECK(rc::check("and gives what one that never reads ahead gives", [&] {
    Loader ahead(sequences, {.batch_size = 7,
                             .shuffle = true,
                             .workers = *rc::gen::inRange(1, 4),
                             .prefetch = *rc::gen::inRange(1, 4)});
    std::int64_t step = *rc::gen::inRange(1, 30);
    for (int calls = *rc::gen::inRange(0, 12); calls > 0; --calls) {
      RC_ASSERT(rows_of(ahead.load(step)) == rows_of(plain.load(step)));
      step = *rc::gen::inRange(0, 3) == 0 ? *rc::gen::inRange(1, 30) : step + 1;
    }
  }));
}

}  // namespace
}  // namespace tessera::models::data
