// The order of gathers with recomputed activations: around sharded modules, and inside a
// recomputation.

#include <catch2/catch.hpp>

#include <memory>
#include <string>
#include <vector>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/recompute.h"
#include "tessera/fsdp/fully_shard.h"
#include "tessera/nn/init.h"
#include "tessera/nn/recompute.h"
#include "tessera/tests/fsdp/chain.h"
#include "tessera/tests/fsdp/reference.h"
#include "tessera/tests/fsdp/schedule/events.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

using models::Transformer;

/// A layer of the root, then three blocks, each called in a recomputed function: their hooks run
/// again in backward.
class Recomputed final : public nn::Layer<Recomputed> {
 public:
  explicit Recomputed(bool recomputes)
      : recomputes_(recomputes),
        stem_({.in = 5, .out = 5, .dtype = DType::kF64}),
        chain_({.widths = {5, 5, 5, 5}, .classes = 0}) {
    register_module("stem", stem_);
    register_module("chain", chain_);
  }
  Variable forward(const Variable& input) {
    Variable x = gelu(stem_(input));
    for (const auto& block : chain_.blocks()) {
      const auto call = [&block](const Variable& h) { return (*block)(h); };
      x = recomputes_ ? recompute(call, x) : call(x);
    }
    return x;
  }
  const Chain& chain() const { return chain_; }

 private:
  bool recomputes_;
  nn::Linear stem_;
  Chain chain_;
};

TESSERA_RANK_TEST("fsdp order (a): functions recomputed around modules change nothing", "[fsdp]") {
  for (const bool reshard : {true, false}) {
    Recomputed model(true), reference(false);
    const fsdp::FullyShardOptions options = {.mesh = t.world().mesh(),
                                             .reshard_after_forward = reshard};
    for (const auto& block : model.chain().blocks()) fsdp::fully_shard(*block, options);
    fsdp::fully_shard(model, options).set_prefetch({.forward = 0});
    nn::initialize(model, {.seed = 1});
    nn::initialize(reference, {.seed = 1});
    for (std::uint64_t round = 0; round < 3; ++round) {
      const Tensor x = random_rows(2 * t.size(), 5, DType::kF64, round);
      Variable loss;
      check_events(t, "forward",
                   traced(t,
                          [&] {
                            const Variable y = model(Variable(my_rows(x, t.world())));
                            loss = mul(sum(square(y)), 0.25);
                          }),
                   "U root; U chain.block0; U chain.block1; U chain.block2");
      const ExecutionTrace trace = traced(t, [&] { backward(loss); });
      check_events(t, "backward", trace,
                   reshard ? "U root; U chain.block2; U chain.block1; P chain.block2; "
                             "U chain.block0; P chain.block1; P chain.block0; P root"
                           : "P chain.block2; P chain.block1; P chain.block0; P root");
      check_counts(t, "backward", trace,
                   unless_alone(t, {.all_gather = reshard ? 4 : 0, .reduce_scatter = 4}));
      backward(plain_loss(reference(Variable(x))));
      const std::string difference =
          compare_with_reference(model, reference, 1e-12, /*gradients=*/true);
      t.check(difference.empty(), "round {}: {}", round, difference);
    }
  }
}

Variable loss_of(Transformer& model) { return local_loss(model(token_rows(2, 5))); }

/// The groups of order (f): embeddings, each block and its w1, norm and output.
struct NestedRecompute {
  explicit NestedRecompute(RankTest& t) : model(transformer_args(3, DType::kF64, false)) {
    const fsdp::FullyShardOptions options = {.mesh = t.world().mesh(),
                                             .reshard_after_forward = true};
    fsdp::fully_shard({&at("tok_embeddings"), &at("pos_embeddings")}, options);
    for (int i = 0; i < 3; ++i) {
      nn::recompute(at(layer(i) + ".feed_forward"));
      nn::recompute(at(layer(i)));
      fsdp::fully_shard(at(layer(i) + ".feed_forward.w1"), options);
      fsdp::fully_shard(at(layer(i)), options);
    }
    fsdp::fully_shard({&at("norm"), &at("output")}, options);
    fsdp::fully_shard(model, options).set_prefetch({.forward = 0});
    nn::initialize(model, {.seed = 1});
  }
  static std::string layer(int i) { return "layers." + std::to_string(i); }
  nn::Module& at(const std::string& name) { return model.get_submodule(name); }
  fsdp::Handle handle(const std::string& name) { return fsdp::of(at(name)); }

  Transformer model;
};

TESSERA_RANK_TEST("fsdp order (f): recompute inside recompute, gathers by the implicit rule",
                  "[fsdp]") {
  NestedRecompute f(t);
  for (int round = 0; round < 2; ++round) {
    Variable loss = loss_of(f.model);
    check_events(t, "backward", traced(t, [&] { backward(loss); }),
                 "U norm, output; U layers.2; R norm, output; U layers.2.feed_forward.w1; "
                 "U layers.1; R layers.2.feed_forward.w1; R layers.2; "
                 "U layers.1.feed_forward.w1; U layers.0; R layers.1.feed_forward.w1; R layers.1; "
                 "U layers.0.feed_forward.w1; U tok_embeddings, pos_embeddings; "
                 "R layers.0.feed_forward.w1; R layers.0; R tok_embeddings, pos_embeddings",
                 "UR");
  }
}

TESSERA_RANK_TEST("fsdp order (f): recompute inside recompute, gathers by lists", "[fsdp]") {
  NestedRecompute f(t);
  f.handle("output").set_modules_to_backward_prefetch({&f.at("layers.2")});
  for (const int i : {2, 1}) {
    const std::string previous = NestedRecompute::layer(i - 1);
    f.handle(NestedRecompute::layer(i))
        .set_modules_to_backward_prefetch({&f.at(previous), &f.at(previous + ".feed_forward.w1")});
  }
  f.handle("layers.0").set_modules_to_backward_prefetch({&f.at("tok_embeddings")});
  for (int round = 0; round < 2; ++round) {
    Variable loss = loss_of(f.model);
    check_events(t, "backward", traced(t, [&] { backward(loss); }),
                 "U norm, output; U layers.2; R norm, output; U layers.1; "
                 "U layers.1.feed_forward.w1; U layers.2.feed_forward.w1; "
                 "R layers.2.feed_forward.w1; R layers.2; U layers.0; U layers.0.feed_forward.w1; "
                 "R layers.1.feed_forward.w1; R layers.1; U tok_embeddings, pos_embeddings; "
                 "R layers.0.feed_forward.w1; R layers.0; R tok_embeddings, pos_embeddings",
                 "UR");
  }
}

TESSERA_RANK_TEST("fsdp order (f): every group gathers twice and reduces once", "[fsdp]") {
  NestedRecompute f(t);
  const int groups = 8;
  for (int round = 0; round < 2; ++round) {
    Variable loss;
    check_counts(t, "forward", traced(t, [&] { loss = loss_of(f.model); }),
                 unless_alone(t, {.all_gather = groups}));
    check_counts(t, "backward", traced(t, [&] { backward(loss); }),
                 unless_alone(t, {.all_gather = groups, .reduce_scatter = groups}));
  }
}

}  // namespace
}  // namespace tessera::testing
