#pragma once

/// Which token goes to which expert, and in which order: host arithmetic on the router's choices.
/// Used by expert_layers.h.

#include <cstdint>
#include <span>
#include <vector>

namespace tessera::models {

/// Experts [first, first + count).
struct ExpertRange {
  std::int64_t first = 0;
  std::int64_t count = 0;
};
/// The chunk rule: n experts over `ranks` ranks, ceil(n / ranks) each; the last ranks fewer or
/// none.
ExpertRange experts_of(std::int64_t n_experts, int ranks, int rank);

/// The experts that a rank's tokens chose.
struct ExpertChoices {
  std::int64_t n_experts = 0;
  std::int64_t top_k = 0;
  std::vector<std::int64_t> experts;  ///< [tokens, top_k], row-major: a token's choices in order

  std::int64_t tokens() const { return static_cast<std::int64_t>(experts.size()) / top_k; }
};

/// How often this rank's tokens chose each expert as first, second, ... choice: [top_k, n_experts].
std::vector<std::int64_t> choice_counts(const ExpertChoices& choices);

/// The counts over all ranks that share the batch.
struct BatchCounts {
  std::vector<std::int64_t> before;  ///< choice_counts summed over the ranks before this one
  std::vector<std::int64_t> all;     ///< summed over all ranks
};
/// Computed from every rank's choice_counts, in rank order.
BatchCounts batch_counts(std::span<const std::int64_t> of_ranks, int ranks, int rank);

/// The rows that a rank sends: by expert, then by choice (first choices first), then by token.
struct ExpertPlan {
  std::vector<std::int64_t> rows = {};  ///< the choice of each row: token * top_k + choice number
  std::vector<std::int64_t> sent = {};  ///< number of rows of each expert, over all experts
  /// Choices of each expert over the batch, including dropped ones.
  std::vector<std::int64_t> demand = {};
  std::int64_t batch_tokens = 0;  ///< of all ranks that share the batch
};

/// `capacity_factor` 0: every choice is a row. Otherwise an expert has at most
/// ceil(capacity_factor * batch tokens * top_k / n_experts) rows over the whole batch.
ExpertPlan plan_experts(const ExpertChoices& choices, const BatchCounts& counts,
                        double capacity_factor);

/// The rows received from the ranks of an axis, ordered by [rank, expert here], and the permutation
/// that sorts them by expert.
struct ReceivedRows {
  std::vector<std::int64_t> from = {};     ///< rows from each rank
  std::vector<std::int64_t> counts = {};   ///< rows of each expert here
  std::vector<std::int64_t> order = {};    ///< sorted row i is received row order[i]
  std::vector<std::int64_t> inverse = {};  ///< received row i is sorted row inverse[i]
};
/// `sent`: the ExpertPlan::sent of all ranks, concatenated.
ReceivedRows received_rows(std::span<const std::int64_t> sent, std::int64_t n_experts,
                           const ExpertRange& here);

}  // namespace tessera::models
