#include "tessera/models/nets/expert_plan.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>

namespace tessera::models {
namespace {

using Counts = std::vector<std::int64_t>;

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

// The capacity: the maximum number of rows of one expert over the whole batch.
std::int64_t capacity_of(const ExpertChoices& choices, std::int64_t batch_tokens, double factor) {
  if (factor == 0) return std::numeric_limits<std::int64_t>::max();
  const auto all = static_cast<double>(batch_tokens * choices.top_k);
  // A capacity above all choices is no limit, and might not fit into an integer.
  return static_cast<std::int64_t>(
      std::min(all, std::ceil(factor * all / static_cast<double>(choices.n_experts))));
}

// The position of this rank's next choice of each expert in the order of the whole batch, by
// [choice number, expert].
Counts first_places(const ExpertChoices& choices, const BatchCounts& counts) {
  Counts places = counts.before;
  Counts earlier(at(choices.n_experts), 0);  // earlier-numbered choices of all ranks
  for (std::int64_t place = 0; place < choices.top_k; ++place) {
    for (std::int64_t expert = 0; expert < choices.n_experts; ++expert) {
      const std::size_t i = at(place * choices.n_experts + expert);
      places[i] += earlier[at(expert)];
      earlier[at(expert)] += counts.all[i];
    }
  }
  return places;
}

}  // namespace

ExpertRange experts_of(std::int64_t n_experts, int ranks, int rank) {
  const std::int64_t chunk = (n_experts + ranks - 1) / ranks;
  const std::int64_t first = std::min(n_experts, chunk * rank);
  return {.first = first, .count = std::min(n_experts, first + chunk) - first};
}

Counts choice_counts(const ExpertChoices& choices) {
  Counts counts(at(choices.top_k * choices.n_experts), 0);
  for (std::size_t i = 0; i < choices.experts.size(); ++i) {
    const std::int64_t place = static_cast<std::int64_t>(i) % choices.top_k;
    ++counts[at(place * choices.n_experts + choices.experts[i])];
  }
  return counts;
}

BatchCounts batch_counts(std::span<const std::int64_t> of_ranks, int ranks, int rank) {
  const std::size_t size = of_ranks.size() / static_cast<std::size_t>(ranks);
  BatchCounts counts{.before = Counts(size, 0), .all = Counts(size, 0)};
  for (int each = 0; each < ranks; ++each) {
    for (std::size_t i = 0; i < size; ++i) {
      const std::int64_t count = of_ranks[static_cast<std::size_t>(each) * size + i];
      counts.all[i] += count;
      if (each < rank) counts.before[i] += count;
    }
  }
  return counts;
}

ExpertPlan plan_experts(const ExpertChoices& choices, const BatchCounts& counts,
                        double capacity_factor) {
  ExpertPlan plan{.sent = Counts(at(choices.n_experts), 0),
                  .demand = Counts(at(choices.n_experts), 0)};
  for (std::size_t i = 0; i < counts.all.size(); ++i)
    plan.demand[i % plan.demand.size()] += counts.all[i];
  plan.batch_tokens =
      std::reduce(plan.demand.begin(), plan.demand.end(), std::int64_t{0}) / choices.top_k;
  const std::int64_t capacity = capacity_of(choices, plan.batch_tokens, capacity_factor);

  Counts places = first_places(choices, counts);
  std::vector<Counts> of_experts(at(choices.n_experts));
  for (std::int64_t place = 0; place < choices.top_k; ++place) {
    for (std::int64_t token = 0; token < choices.tokens(); ++token) {
      const std::int64_t choice = token * choices.top_k + place;
      const std::int64_t expert = choices.experts[at(choice)];
      if (places[at(place * choices.n_experts + expert)]++ < capacity)
        of_experts[at(expert)].push_back(choice);
    }
  }
  for (std::size_t expert = 0; expert < of_experts.size(); ++expert) {
    const Counts& rows = of_experts[expert];
    plan.sent[expert] = static_cast<std::int64_t>(rows.size());
    plan.rows.insert(plan.rows.end(), rows.begin(), rows.end());
  }
  return plan;
}

ReceivedRows received_rows(std::span<const std::int64_t> sent, std::int64_t n_experts,
                           const ExpertRange& here) {
  const std::size_t ranks = sent.size() / at(n_experts);
  const auto rows_of = [&](std::size_t rank, std::int64_t expert) {
    return sent[rank * at(n_experts) + at(here.first + expert)];
  };
  ReceivedRows rows{.from = Counts(ranks, 0), .counts = Counts(at(here.count), 0)};
  // Where the next expert's rows begin among the rows received from each rank.
  Counts begins(ranks, 0);
  std::int64_t all = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    begins[rank] = all;
    for (std::int64_t expert = 0; expert < here.count; ++expert)
      rows.from[rank] += rows_of(rank, expert);
    all += rows.from[rank];
  }
  rows.inverse.resize(at(all));
  for (std::int64_t expert = 0; expert < here.count; ++expert) {
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const std::int64_t count = rows_of(rank, expert);
      rows.counts[at(expert)] += count;
      for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t row = begins[rank]++;
        rows.inverse[at(row)] = static_cast<std::int64_t>(rows.order.size());
        rows.order.push_back(row);
      }
    }
  }
  return rows;
}

}  // namespace tessera::models
