#pragma once

/// FSDP events in a rank's trace, as ordered text, and counts of its collectives.
///
///     const ExecutionTrace trace = traced(t, [&] { loss = run(); });
///     check_events(t, "forward", trace, "U root; U block0");
///     check_counts(t, "forward", trace, {.all_gather = 2});
///
/// Events: "U group" (its gather was issued), "R group" (released), "P group" (its backward is
/// done). Calls that do nothing are not recorded.

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "tessera/autograd/ops/ops.h"
#include "tessera/distributed/collective_counts.h"
#include "tessera/fsdp/fully_shard.h"
#include "tessera/fsdp/runtime/annotations.h"
#include "tessera/models/nets/transformer.h"
#include "tessera/nn/layer.h"
#include "tessera/nn/parameter.h"
#include "tessera/tensor/trace.h"
#include "tessera/tests/fsdp/reference.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {

/// Returns the trace of `body` on this rank.
template <class Body>
ExecutionTrace traced(RankTest&, Body&& body) {
  ExecutionTrace trace;
  const TraceScope recording(trace);
  body();
  return trace;
}

/// The letters of the compared events.
inline constexpr const char* kOrder = "UP";
inline constexpr const char* kOrderAndReshard = "URP";

/// "U root; U block0; ...".
inline std::string events_of(const ExecutionTrace& trace, const std::string& letters = kOrder) {
  std::string out;
  for (const TraceAnnotation& a : trace.all<TraceAnnotation>()) {
    if (a.domain != fsdp::kAnnotationDomain) continue;
    const char letter = a.phase == fsdp::kUnshardPhase        ? 'U'
                        : a.phase == fsdp::kReshardPhase      ? 'R'
                        : a.phase == fsdp::kPostBackwardPhase ? 'P'
                                                              : '?';
    if (letters.find(letter) == std::string::npos) continue;
    out += fmt::format("{}{} {}", out.empty() ? "" : "; ", letter, a.name);
  }
  return out;
}

inline void check_events(RankTest& t, const std::string& what, const ExecutionTrace& trace,
                         const std::string& expected, const std::string& letters = kOrder) {
  const std::string seen = events_of(trace, letters);
  t.check(seen == expected, "{}: expected \"{}\", got \"{}\"", what, expected, seen);
}

/// Collectives by kind. Those over one rank communicate nothing and are not counted.
struct Counts {
  std::int64_t all_gather = 0;
  std::int64_t reduce_scatter = 0;
  std::int64_t all_reduce = 0;
  std::int64_t other = 0;
  bool operator==(const Counts&) const = default;
  Counts& operator+=(const Counts& more) {
    all_gather += more.all_gather;
    reduce_scatter += more.reduce_scatter;
    all_reduce += more.all_reduce;
    other += more.other;
    return *this;
  }
  std::string str() const {
    return fmt::format("{} all_gather, {} reduce_scatter, {} all_reduce, {} other", all_gather,
                       reduce_scatter, all_reduce, other);
  }
};

inline Counts counts_of(const ExecutionTrace& trace) {
  const distributed::CollectiveCounts counts(trace);
  Counts out{.all_gather = counts.of({.op = "all_gather"}).collectives,
             .reduce_scatter = counts.of({.op = "reduce_scatter"}).collectives,
             .all_reduce = counts.of({.op = "all_reduce"}).collectives};
  out.other = counts.of().collectives - out.all_gather - out.reduce_scatter - out.all_reduce;
  return out;
}

inline void check_counts(RankTest& t, const std::string& what, const Counts& seen,
                         const Counts& expected) {
  t.check(seen == expected, "{}: expected {}; got {}", what, expected.str(), seen.str());
}
inline void check_counts(RankTest& t, const std::string& what, const ExecutionTrace& trace,
                         const Counts& expected) {
  check_counts(t, what, counts_of(trace), expected);
}

/// The counts, or zeros in a world of one rank, which communicates nothing.
inline Counts unless_alone(const RankTest& t, const Counts& counts) {
  return t.size() == 1 ? Counts{} : counts;
}

/// The collectives of one kind, without those over one rank.
inline std::vector<CollectiveRecord> records_of(const ExecutionTrace& trace,
                                                const std::string& op) {
  std::vector<CollectiveRecord> out;
  for (CollectiveRecord& record : trace.all<CollectiveRecord>()) {
    if (record.op == op && record.group_size > 1) out.push_back(std::move(record));
  }
  return out;
}

/// The number of ranks of each gather in a trace, in order: "4 4 2".
inline std::string gather_sizes_of(const ExecutionTrace& trace) {
  std::string out;
  for (const CollectiveRecord& record : records_of(trace, "all_gather"))
    out += fmt::format("{}{}", out.empty() ? "" : " ", record.group_size);
  return out;
}

/// The streams that collectives of one kind were issued on.
inline std::set<std::uint64_t> streams_of(const ExecutionTrace& trace, const std::string& op) {
  std::set<std::uint64_t> out;
  for (const CollectiveRecord& record : records_of(trace, op)) out.insert(record.stream);
  return out;
}

// A module with arbitrary parameters.

/// Parameters "p0", "p1", ... forward(x), x [1] of their dtype: x times the sum of all elements, so
/// the gradient of every element is x.
class Holder final : public nn::Layer<Holder> {
 public:
  explicit Holder(std::vector<nn::ParameterOptions> options) {
    for (nn::ParameterOptions& o : options) {
      parameters_.push_back(std::make_unique<nn::Parameter>(std::move(o)));
      register_parameter("p" + std::to_string(parameters_.size() - 1), *parameters_.back());
    }
  }
  Variable forward(const Variable& x) {
    if (inside) inside();
    Variable total;
    for (const auto& parameter : parameters_) {
      const Variable term = sum(parameter->value());
      total = total.defined() ? add(total, term) : term;
    }
    return sum(mul(x, total));
  }
  nn::Parameter& at(std::size_t i) { return *parameters_[i]; }
  std::size_t size() const { return parameters_.size(); }

  std::function<void()> inside;  ///< called by forward if set

 private:
  std::vector<std::unique_ptr<nn::Parameter>> parameters_;
};

/// Parameters of one dtype, initialised to zeros.
inline std::vector<nn::ParameterOptions> zeros_of(const std::vector<Shape>& shapes,
                                                  DType dtype = DType::kF32) {
  std::vector<nn::ParameterOptions> out;
  for (const Shape& shape : shapes)
    out.push_back({.shape = shape, .dtype = dtype, .init = nn::init::zeros()});
  return out;
}

// The bundled Transformer with one group for each block and one for the rest, for which most
// counts and event orders are stated.

/// No dropout, so that ranks and reference compute the same.
inline models::ModelArgs transformer_args(int layers, DType dtype = DType::kF64,
                                          bool weight_tying = true) {
  return {.layers = layers, .dropout = 0, .weight_tying = weight_tying, .dtype = dtype};
}

/// Shards each block, then the root.
inline void shard_transformer(models::Transformer& model, const fsdp::FullyShardOptions& blocks,
                              const fsdp::FullyShardOptions& root) {
  for (models::TransformerBlock& block : model.blocks()) fsdp::fully_shard(block, blocks);
  fsdp::fully_shard(model, root);
}

/// [rows, length] of token ids below `vocab`, equal on every rank.
inline Tensor token_rows(std::int64_t rows, std::int64_t length, std::int64_t vocab = 8,
                         std::int64_t seed = 0) {
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < rows * length; ++i)
    ids.push_back((i * i + 5 * i + 3 * seed) % vocab);
  return Tensor::from_vector(ids, {rows, length});
}

/// Half the sum of squares: a loss without communication.
inline Variable local_loss(const Variable& y) { return mul(sum(square(y)), 0.5); }

}  // namespace tessera::testing
