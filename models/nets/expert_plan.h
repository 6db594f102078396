#pragma once

/// Which token goes to which expert, and in which order: host arithmetic on the router's choices.
/// For expert_layers.h.

#include <cstdint>
#include <span>
#include <vector>

namespace tessera::models {

/// Experts [first, first + count).
struct ExpertRange {
  std::int64_t first = 0;
  std::int64_t count = 0;
};
/// The chunk rule: n experts over `ranks` ranks, ceil(n / ranks) each, the last ones fewer or none.
ExpertRange experts_of(std::int64_t n_experts, int ranks, int rank);

/// What a rank's tokens chose.
struct ExpertChoices {
  std::int64_t n_experts = 0;
  std::int64_t top_k = 0;
  std::vector<std::int64_t> experts;  ///< [tokens, top_k], row-major: a token's choices in order

  std::int64_t tokens() const { return static_cast<std::int64_t>(experts.size()) / top_k; }
};

/// How often this rank's tokens chose an expert: [top_k, n_experts], by the place of the choice.
std::vector<std::int64_t> choice_counts(const ExpertChoices& choices);

/// What one rank has to know of all ranks that share the batch.
struct BatchCounts {
  std::vector<std::int64_t> before;  ///< choice_counts of the ranks before this one, added up
  std::vector<std::int64_t> all;     ///< of all ranks
};
/// From every rank's choice_counts, in rank order.
BatchCounts batch_counts(std::span<const std::int64_t> of_ranks, int ranks, int rank);

/// The rows that a rank sends: expert by expert, first choices first, tokens in their order.
struct ExpertPlan {
  std::vector<std::int64_t> rows = {};  ///< the choice behind each: token * top_k + place
  std::vector<std::int64_t> sent = {};  ///< rows of each expert, of all
  std::vector<std::int64_t> demand =
      {};                         ///< choices of each expert over the batch, refused ones too
  std::int64_t batch_tokens = 0;  ///< of all ranks that share the batch
};

/// `capacity_factor` 0: every choice is a row. Else an expert has no more than
/// ceil(capacity_factor * batch tokens * top_k / n_experts) rows over the whole batch.
ExpertPlan plan_experts(const ExpertChoices& choices, const BatchCounts& counts,
                        double capacity_factor);

/// Rows as they come from the ranks of an axis, [ranks, experts here] in that order, and the place
/// of each among them when they are put in order of experts.
struct ReceivedRows {
  std::vector<std::int64_t> from = {};    ///< rows from each rank
  std::vector<std::int64_t> counts = {};  ///< rows of each expert here
  std::vector<std::int64_t> order = {};   ///< sorted row i is order[i] of those that came
  std::vector<std::int64_t> inverse =
      {};  ///< row i of those that came is inverse[i] of the sorted ones
};
/// `sent`: ExpertPlan::sent of every rank, one behind the other.
ReceivedRows received_rows(std::span<const std::int64_t> sent, std::int64_t n_experts,
                           const ExpertRange& here);

}  // namespace tessera::models
