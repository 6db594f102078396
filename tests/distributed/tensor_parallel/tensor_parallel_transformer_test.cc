// The small Transformer with its heads and features in parts, with and without parts of the
// sequence between the layers: parity with one rank, what is communicated, frozen and tied weights.
#include <catch2/catch.hpp>

#include "tessera/autograd/ops/ops.h"
#include "tessera/distributed/tensor_parallel/loss_parallel.h"
#include "tessera/distributed/tensor_parallel/tensor_parallel.h"
#include "tessera/models/nets/transformer.h"
#include "tessera/nn/init.h"
#include "tessera/nn/name_pattern.h"
#include "tessera/nn/training/clip_grad.h"
#include "tessera/tensor/random_scope.h"
#include "tessera/tests/distributed/tensor_parallel/tensor_parallel_plans.h"
#include "tessera/tests/distributed/tensor_parallel/tensor_parallel_support.h"

namespace tessera {
namespace {

using namespace distributed;
using namespace testing;
using models::ModelArgs;
using models::Transformer;

ModelArgs args(double dropout = 0, bool tied = true) {
  return {.dropout = dropout, .weight_tying = tied, .dtype = DType::kF64};
}

ParallelPlan plan(bool sequence) { return sequence ? sequence_plan() : transformer_plan(); }

Variable weighed(const Variable& logits) { return mean(mul(logits, sin(logits))); }

void check_transformer(RankTest& t) {
  for (const bool sequence : {false, true}) {
    for (const bool recomputed : {false, true}) {
      ModelArgs options = args();
      options.checkpoint_activations = recomputed;
      Transformer split(options), whole(options);
      parallelize(split, tp_mesh(t), plan(sequence));
      nn::initialize(split, {.seed = 3});
      nn::initialize(whole, {.seed = 3});
      const Tensor tokens = indices({8, 8}, 8);
      check_same_training(
          t, {split, whole}, [&] { return weighed(split(tokens)); },
          [&] { return weighed(whole(tokens)); }, {.steps = 2});
    }
  }
}

TESSERA_RANK_TEST_WITH("the Transformer trains as on one rank", "[tp]", {.worlds = {1, 2, 4}}) {
  check_transformer(t);
}

TESSERA_RANK_TEST_WITH("the Transformer trains on a queued stream", "[tp]",
                       {.worlds = {2}, .cpu_compute = StreamKind::kQueued}) {
  check_transformer(t);
}

// So that a step can be planned: nothing asks for values.
TESSERA_RANK_TEST_WITH("the Transformer in parts runs on the null device", "[tp]",
                       {.worlds = {2}}) {
  Transformer split(args(0.1));
  ParallelPlan parts = sequence_plan();
  parts.back().style = ColwiseParallel{.input_layout = Shard{1}};
  const DeviceMesh mesh = tp_mesh(t);
  parallelize(split, mesh, parts);
  nn::initialize(split, {.seed = 3, .device = kNull});
  const Tensor tokens = Tensor::empty({4, 8}, {.dtype = DType::kI64, .device = kNull});
  const random::StepScope scope({.seed = 7, .step = 1});
  const Variable loss = parallel_cross_entropy(split(tokens), tokens, mesh, {.classes = 8});
  backward(loss);
  for (const nn::NamedParameter& named : split.named_parameters()) {
    const Tensor grad = named.parameter.grad();
    t.check(grad.defined() && grad.shape() == named.parameter.shape(), "gradient of {}",
            named.name);
  }
}

// Each dropout draws at the places of the whole: of the sequence, and of the heads.
TESSERA_RANK_TEST_WITH("dropout drops what it does on one rank", "[tp]", {.worlds = {1, 2, 4}}) {
  for (const bool sequence : {false, true}) {
    Transformer split(args(0.3)), whole(args(0.3));
    parallelize(split, tp_mesh(t), plan(sequence));
    nn::initialize(split, {.seed = 3});
    nn::initialize(whole, {.seed = 3});
    const Tensor tokens = indices({4, 8}, 8);
    std::uint64_t steps[2] = {};
    const auto loss = [&](Transformer& model, std::uint64_t& step) {
      const random::StepScope scope({.seed = 7, .step = step++, .first_sample = 12});
      return weighed(model(tokens));
    };
    check_same_training(
        t, {split, whole}, [&] { return loss(split, steps[0]); },
        [&] { return loss(whole, steps[1]); }, {.steps = 2});
  }
}

struct CountCase {
  const char* name;
  std::vector<const char*> trained;  // patterns; empty: all
  bool sequence;
  Counts forward, backward;
};

// PyTorch's numbers but for the all-reduces of `sequence`: there the gradients of norms and of the
// biases after a scattered sum are added up in backward, one for each, where PyTorch reduces the
// norms' in the optimizer, three times each.
TESSERA_RANK_TEST_WITH("what the Transformer communicates", "[tp]", {.worlds = {4}}) {
  const Counts plain = {{"all_reduce", 6}, {"all_gather", 1}};
  const Counts scattered = {{"reduce_scatter", 6}, {"all_gather", 6}};
  const auto parts = [](int scatters, int gathers, int sums) {
    Counts counts;
    if (scatters > 0) counts["reduce_scatter"] = scatters;
    if (gathers > 0) counts["all_gather"] = gathers;
    if (sums > 0) counts["all_reduce"] = sums;
    return counts;
  };
  const std::vector<CountCase> cases = {
      {"all", {}, false, plain, parts(0, 0, 9)},
      {"all", {}, true, scattered, parts(5, 6, 12)},
      {"output and norm", {"output.*", "norm.*"}, true, scattered, parts(1, 0, 2)},
      {"both ends", {"tok_embeddings.*", "output.*"}, true, scattered, parts(5, 5, 0)},
      {"and norm", {"tok_embeddings.*", "output.*", "norm.*"}, true, scattered, parts(5, 5, 2)},
      {"and a block's norm",
       {"tok_embeddings.*", "output.*", "norm.*", "layers.1.ffn_norm.*"},
       true,
       scattered,
       parts(5, 5, 4)},
      {"one of each",
       {"tok_embeddings.*", "layers.0.attention.wv.*", "layers.0.feed_forward.w1.bias",
        "layers.1.ffn_norm.bias", "norm.weight", "output.*"},
       true,
       scattered,
       parts(5, 5, 2)},
  };
  for (const CountCase& c : cases) {
    Transformer split(args(0, /*tied=*/false)), whole(args(0, false));
    parallelize(split, tp_mesh(t), plan(c.sequence));
    for (Transformer* model : {&split, &whole}) {
      nn::initialize(*model, {.seed = 3});
      for (nn::NamedParameter& named : model->named_parameters()) {
        bool trained = c.trained.empty();
        for (const char* pattern : c.trained) trained |= nn::matches(named.name, pattern);
        named.parameter.set_requires_grad(trained);
      }
    }
    const Tensor tokens = indices({8, 8}, 8);
    Variable loss;
    check_counts(t, count_collectives([&] { loss = weighed(split(tokens)); }), c.forward,
                 fmt::format("{} forward", c.name));
    check_counts(t, count_collectives([&] { backward(loss); }), c.backward,
                 fmt::format("{} backward", c.name));
    backward(weighed(whole(tokens)));
    check_same_gradients(t, {split, whole}, c.name);
  }
}

TESSERA_RANK_TEST_WITH("a prepared input is reduced once for all projections", "[tp]",
                       {.worlds = {4}}) {
  Transformer split(args()), whole(args());
  ParallelPlan shared = transformer_plan();
  shared.push_back({"layers.*.attention", PrepareModuleInput{{LayoutChange{}}}});
  parallelize(split, tp_mesh(t), shared);
  nn::initialize(split, {.seed = 3});
  nn::initialize(whole, {.seed = 3});
  const Tensor tokens = indices({8, 8}, 8);
  const Variable loss = weighed(split(tokens));
  check_counts(t, count_collectives([&] { backward(loss); }), {{"all_reduce", 5}}, "backward");
  backward(weighed(whole(tokens)));
  check_same_gradients(t, {split, whole}, "shared");
}

TESSERA_RANK_TEST_WITH("tied weights are one, untied ones two", "[tp]", {.worlds = {2, 4}}) {
  const Tensor tokens = indices({4, 8}, 8);
  for (const bool tied : {false, true}) {
    Transformer split(args(0, tied));
    parallelize(split, tp_mesh(t), transformer_plan());
    nn::initialize(split, {.seed = 3});
    backward(weighed(split(tokens)));
    const nn::Parameter in = split.get_parameter("tok_embeddings.weight");
    const nn::Parameter out = split.get_parameter("output.weight");
    t.check(in.same_as(out) == tied, "one parameter");
    t.check(in.shape() == Shape{8 / t.size(), 16} && out.shape() == in.shape(), "both in rows");
    const bool equal = all_equal(in.grad(), out.grad()).ok;
    t.check(equal == tied, "tied {}: equal gradients {}", tied, equal);
  }
}

TESSERA_RANK_TEST_WITH("logits in parts train with the parallel loss", "[tp]",
                       {.worlds = {1, 2, 4}}) {
  ModelArgs options = args();
  options.vocab_size = 9;
  Transformer split(options), whole(options);
  ParallelPlan parts = sequence_plan();
  parts.back().style = ColwiseParallel{.input_layout = Shard{1}};
  const DeviceMesh mesh = tp_mesh(t);
  parallelize(split, mesh, parts);
  nn::initialize(split, {.seed = 3});
  nn::initialize(whole, {.seed = 3});
  const Tensor tokens = indices({4, 8}, 9), targets = indices({4, 8}, 9, 7);
  check_same_training(
      t, {split, whole},
      [&] { return parallel_cross_entropy(split(tokens), targets, mesh, {.classes = 9}); },
      [&] { return cross_entropy(whole(tokens), targets); }, {.steps = 2});
}

TESSERA_RANK_TEST_WITH("the norm of gradients in parts is that of the whole", "[tp]",
                       {.worlds = {1, 2, 4}}) {
  Transformer split(args()), whole(args());
  parallelize(split, tp_mesh(t), sequence_plan());
  nn::initialize(split, {.seed = 3});
  nn::initialize(whole, {.seed = 3});
  const Tensor tokens = indices({4, 8}, 8);
  backward(weighed(split(tokens)));
  backward(weighed(whole(tokens)));
  t.check_close(nn::grad_norm(split.parameters()), nn::grad_norm(whole.parameters()), kExact);
}

TESSERA_RANK_TEST_WITH("heads that ranks cannot share are refused", "[tp]", {.worlds = {3}}) {
  Transformer split(args());
  parallelize(split, tp_mesh(t), transformer_plan());
  nn::initialize(split, {.seed = 3});
  auto& attention = dynamic_cast<models::Attention&>(split.get_submodule("layers.0.attention"));
  if (t.rank() == 2) return;  // has 4 rows, which are a head
  t.check_throws<InvalidArgument>("projections are 6 wide, no multiple of a head's 4", [&] {
    attention(Variable(irregular({2, 3, 16}, 1)));
  });
}

}  // namespace
}  // namespace tessera
