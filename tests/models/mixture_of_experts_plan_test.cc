// Host arithmetic of the mixture of experts: which choices are kept, where rows go and how they are
// sorted, against slow counting and values worked out by hand.

#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>
#include <random>
#include <vector>

#include "tessera/models/nets/expert_plan.h"

namespace tessera::models {
namespace {

using Counts = std::vector<std::int64_t>;

BatchCounts alone(const ExpertChoices& choices) {
  return batch_counts(choice_counts(choices), 1, 0);
}

TEST_CASE("experts are divided by the chunk rule") {
  const auto ranges = [](std::int64_t n, int ranks) {
    Counts text;
    for (int rank = 0; rank < ranks; ++rank) {
      const ExpertRange range = experts_of(n, ranks, rank);
      text.push_back(range.first);
      text.push_back(range.count);
    }
    return text;
  };
  CHECK(ranges(5, 1) == Counts{0, 5});
  CHECK(ranges(5, 2) == Counts{0, 3, 3, 2});
  CHECK(ranges(5, 4) == Counts{0, 2, 2, 2, 4, 1, 5, 0});
  CHECK(ranges(2, 3) == Counts{0, 1, 1, 1, 2, 0});
}

TEST_CASE("choices are counted by place and expert") {
  const ExpertChoices choices{.n_experts = 3, .top_k = 2, .experts = {0, 1, 0, 2, 1, 0}};
  CHECK(choice_counts(choices) == Counts{2, 1, 0, 1, 1, 1});
  const BatchCounts counts = batch_counts(Counts{1, 2, 3, 4, 5, 6}, 3, 2);
  CHECK(counts.before == Counts{4, 6});
  CHECK(counts.all == Counts{9, 12});
}

TEST_CASE("without a capacity every choice is a row, expert by expert, first choices first") {
  const ExpertChoices choices{.n_experts = 3, .top_k = 2, .experts = {0, 1, 1, 0, 0, 2}};
  const ExpertPlan plan = plan_experts(choices, alone(choices), 0);
  // Expert 0: first choices of tokens 0 and 2, then the second one of token 1.
  CHECK(plan.rows == Counts{0, 4, 3, 2, 1, 5});
  CHECK(plan.sent == Counts{3, 2, 1});
  CHECK(plan.demand == Counts{3, 2, 1});
  CHECK(plan.batch_tokens == 3);
}

TEST_CASE("over capacity second choices give way to first ones, later tokens to earlier ones") {
  // All choose expert 0: tokens 0 and 3 as their second choice. ceil(1 * 4 * 2 / 3) = 3 are kept.
  const ExpertChoices choices{.n_experts = 3, .top_k = 2, .experts = {1, 0, 0, 1, 0, 2, 2, 0}};
  const ExpertPlan plan = plan_experts(choices, alone(choices), 1);
  CHECK(plan.sent == Counts{3, 2, 2});
  CHECK(Counts(plan.rows.begin(), plan.rows.begin() + 3) == Counts{2, 4, 1});
  CHECK(plan.demand == Counts{4, 2, 2});
  // ceil(0.5 * 8 / 3) = 2: both second choices are dropped.
  const ExpertPlan half = plan_experts(choices, alone(choices), 0.5);
  CHECK(half.sent == Counts{2, 2, 2});
  CHECK(Counts(half.rows.begin(), half.rows.begin() + 2) == Counts{2, 4});
  // ceil(0.1 * 8 / 3) = 1.
  CHECK(plan_experts(choices, alone(choices), 0.1).sent == Counts{1, 1, 1});
  // A huge factor means no limit; it must not overflow an integer.
  CHECK(plan_experts(choices, alone(choices), 1e300).sent == Counts{4, 2, 2});
}

struct Drawn {
  ExpertChoices whole;
  std::vector<ExpertChoices> parts;
};

// Choices of 0 to 39 tokens, skewed towards the first experts, split over ranks.
Drawn draw(std::mt19937& generator, int ranks) {
  const auto below = [&generator](std::int64_t n) {
    return std::uniform_int_distribution<std::int64_t>(0, n - 1)(generator);
  };
  Drawn drawn;
  drawn.whole.n_experts = 1 + below(7);
  drawn.whole.top_k = 1 + below(drawn.whole.n_experts);
  drawn.parts.resize(static_cast<std::size_t>(ranks), drawn.whole);
  for (ExpertChoices& part : drawn.parts) {
    for (std::int64_t token = below(9); token > 0; --token) {
      Counts experts(static_cast<std::size_t>(drawn.whole.n_experts));
      std::iota(experts.begin(), experts.end(), 0);
      if (below(2) == 0) std::shuffle(experts.begin(), experts.end(), generator);
      part.experts.insert(part.experts.end(), experts.begin(), experts.begin() + drawn.whole.top_k);
    }
    drawn.whole.experts.insert(drawn.whole.experts.end(), part.experts.begin(), part.experts.end());
  }
  return drawn;
}

TEST_CASE("a batch that is split over ranks gets in as the whole one does") {
  std::mt19937 generator(7);
  for (int round = 0; round < 200; ++round) {
    const int ranks = 1 + round % 5;
    const Drawn drawn = draw(generator, ranks);
    const double factor = 0.25 * (round % 6);
    const ExpertPlan whole = plan_experts(drawn.whole, alone(drawn.whole), factor);
    Counts of_ranks;
    for (const ExpertChoices& part : drawn.parts) {
      const Counts counts = choice_counts(part);
      of_ranks.insert(of_ranks.end(), counts.begin(), counts.end());
    }
    Counts rows;
    std::int64_t first = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const ExpertChoices& part = drawn.parts[static_cast<std::size_t>(rank)];
      const ExpertPlan plan = plan_experts(part, batch_counts(of_ranks, ranks, rank), factor);
      CHECK(plan.demand == whole.demand);
      CHECK(plan.batch_tokens == whole.batch_tokens);
      for (const std::int64_t row : plan.rows) rows.push_back(first + row);
      first += static_cast<std::int64_t>(part.experts.size());
    }
    Counts expected = whole.rows;
    std::sort(rows.begin(), rows.end());
    std::sort(expected.begin(), expected.end());
    CHECK(rows == expected);
  }
}

TEST_CASE("rows that came from ranks are put in order of experts, and back") {
  // Experts 1 and 2 of three are here; two ranks sent 2 + 1 and 1 + 3 rows for them.
  const Counts sent = {5, 2, 1, 0, 1, 3};
  const ReceivedRows rows = received_rows(sent, 3, {.first = 1, .count = 2});
  CHECK(rows.from == Counts{3, 4});
  CHECK(rows.counts == Counts{3, 4});
  CHECK(rows.order == Counts{0, 1, 3, 2, 4, 5, 6});
  CHECK(rows.inverse == Counts{0, 1, 3, 2, 4, 5, 6});
  for (std::size_t i = 0; i < rows.order.size(); ++i)
    CHECK(rows.inverse[static_cast<std::size_t>(rows.order[i])] == static_cast<std::int64_t>(i));
  const ReceivedRows none = received_rows(sent, 3, {.first = 3, .count = 0});
  CHECK(none.from == Counts{0, 0});
  CHECK(none.counts.empty());
  CHECK(none.order.empty());
}

}  // namespace
}  // namespace tessera::models
