#pragma once

/// Trains a small model whose gathers use extensions, beside a reference that computes with the
/// values as the extensions transmit them.

#include <functional>
#include <memory>
#include <string>

#include "tessera/fsdp/fully_shard.h"
#include "tessera/nn/init.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/tests/fsdp/precision/precision_reference.h"
#include "tessera/tests/fsdp/reference.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {

/// Rows of 40 and of 7 elements; 7 and 3 rows, which leave ranks with fewer or none.
class Rows final : public nn::Layer<Rows> {
 public:
  explicit Rows(DType dtype = DType::kF32)
      : first_({.in = 40, .out = 7, .dtype = dtype}), second_({.in = 7, .out = 3, .dtype = dtype}) {
    register_module("first", first_);
    register_module("second", second_);
  }
  Variable forward(const Variable& x) { return second_(gelu(first_(x))); }
  nn::Linear& first() { return first_; }
  nn::Linear& second() { return second_; }

 private:
  nn::Linear first_, second_;
};

inline std::unique_ptr<Rows> make_rows() {
  auto rows = std::make_unique<Rows>();
  nn::initialize(*rows, {.seed = 3});
  return rows;
}

struct ExtensionCase {
  std::string name;
  fsdp::FullyShardOptions options;  ///< of both layers; the root has no parameters of its own
  ReferencePrecision reference = {};
  ReferenceRanks ranks = {};
  std::function<Tensor(const Tensor& stored)> as_sent = {};  ///< the transmitted form of a value
};

/// Three steps; bits must be equal.
inline void train_with_extension(RankTest& t, const ExtensionCase& c, Rows& sharded) {
  fsdp::fully_shard(sharded.first(), c.options);
  fsdp::fully_shard(sharded.second(), c.options);
  fsdp::fully_shard(sharded, {.mesh = c.options.mesh});
  nn::initialize(sharded, {.seed = 3});
  PrecisionReference<Rows> reference(make_rows, c.reference, c.ranks);
  nn::optim::SGD sharded_sgd(sharded.parameters(), kSgd);
  nn::optim::SGD reference_sgd(reference.master().parameters(), kSgd);
  for (std::uint64_t step = 0; step < 3; ++step) {
    reference.refresh(c.as_sent);
    const Tensor x = random_rows(9, 40, DType::kF32, step);
    backward(row_loss(sharded(Variable(my_rows(x, t.world())))));
    for (int rank = 0; rank < t.size(); ++rank) {
      const distributed::Chunk rows = distributed::chunk_of(9, t.size(), rank);
      const Variable mine(cast(x.slice(0, rows.begin, rows.end), c.reference.param));
      reference.run(rank, [&](Rows& model) { return row_loss(model(mine)); });
    }
    reference.reduce();
    const std::string difference = compare_with_reference(sharded, reference.master(), 0, true);
    t.check(difference.empty(), "{}, step {}: {}", c.name, step, difference);
    sharded_sgd.step();
    reference_sgd.step();
    sharded_sgd.zero_grad();
    reference_sgd.zero_grad();
  }
}

}  // namespace tessera::testing
