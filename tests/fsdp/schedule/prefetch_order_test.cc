// The order in which groups are gathered, released and reduced: default, with explicit lists, over
// several forwards, and with modules that are used in part. Nested recomputation:
// recompute_order_test.cc.

#include <catch2/catch.hpp>

#include <iterator>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/grad_mode.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/fsdp/fully_shard.h"
#include "tessera/nn/init.h"
#include "tessera/nn/layer.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/tests/fsdp/reference.h"
#include "tessera/tests/fsdp/schedule/events.h"
#include "tessera/tests/support/models/mlp.h"
#include "tessera/tests/support/models/small_models.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

using models::Transformer;

/// A value of reshard_after_forward, with a name for messages. A number must divide the number of
/// ranks.
struct Setting {
  const char* name;
  fsdp::ReshardAfterForward value;
  bool released_groups;  ///< gathered again in backward
  bool released_root;
  int again_among = 0;  ///< number of ranks in those gathers; 0: all
};
std::vector<Setting> settings(const RankTest& t) {
  std::vector<Setting> out = {{"unset", {}, true, false}, {"true", true, true, true}};
  // On one rank this keeps everything, like false.
  out.push_back({"false", false, false, false});
  if (t.size() <= 1) return out;
  const int n = t.size() % 2 == 0 ? 2 : t.size();  // 1/n for 4 and 6 ranks, otherwise like true
  out.push_back({"number", n, true, true, n});
  return out;
}

/// Checks that every gather of the trace is over `ranks` ranks.
void check_gathers_again(RankTest& t, const std::string& what, const ExecutionTrace& trace,
                         const Setting& setting) {
  const int among = setting.again_among == 0 ? t.size() : setting.again_among;
  for (const CollectiveRecord& record : records_of(trace, "all_gather"))
    t.check(record.group_size == among, "{}: {} is gathered among {} ranks, expected {}", what,
            record.label, record.group_size, among);
}

/// Sharded without forward prefetch, as in PyTorch's tests.
std::unique_ptr<Transformer> sharded_transformer(RankTest& t, int layers,
                                                 const fsdp::ReshardAfterForward& reshard,
                                                 bool recompute = false) {
  models::ModelArgs args = transformer_args(layers);
  args.checkpoint_activations = recompute;
  auto model = std::make_unique<Transformer>(args);
  const fsdp::FullyShardOptions options = {.mesh = t.world().mesh(),
                                           .reshard_after_forward = reshard};
  shard_transformer(*model, options, options);
  fsdp::of(*model).set_prefetch({.forward = 0});
  nn::initialize(*model, {.seed = 1});
  return model;
}

Variable loss_of(Transformer& model) { return local_loss(model(token_rows(2, 5))); }

std::string without_gathers(const std::string& events) {
  std::string out;
  for (std::size_t at = 0; at < events.size();) {
    const std::size_t end = std::min(events.find("; ", at), events.size());
    if (events[at] != 'U') out += (out.empty() ? "" : "; ") + events.substr(at, end - at);
    at = end + 2;
  }
  return out;
}

TESSERA_RANK_TEST_WITH(
    "fsdp order (a): three iterations of three layers, with and without recompute", "[fsdp]",
    {.worlds = {1, 2, 3, 4, 6}}) {
  const std::string layers =
      "U layers.2; U layers.1; P layers.2; U layers.0; P layers.1; P layers.0; P root";
  for (const Setting& setting : settings(t)) {
    for (const bool recompute : {false, true}) {
      const auto model = sharded_transformer(t, 3, setting.value, recompute);
      for (int round = 0; round < 3; ++round) {
        const std::string what =
            fmt::format("reshard {}, recompute {}, round {}, ", setting.name, recompute, round);
        Variable loss;
        check_events(t, what + "forward", traced(t, [&] { loss = loss_of(*model); }),
                     "U root; U layers.0; U layers.1; U layers.2");
        std::string expected = setting.released_groups ? layers : without_gathers(layers);
        if (setting.released_root) expected = "U root; " + expected;
        const ExecutionTrace trace = traced(t, [&] { backward(loss); });
        check_events(t, what + "backward", trace, expected);
        check_gathers_again(t, what + "backward", trace, setting);
      }
    }
  }
}

/// Blocks of linear layers; the result may be detached inside.
class Detaching final : public nn::Layer<Detaching> {
 public:
  Detaching() {
    for (std::size_t i = 0; i < std::size(linears_); ++i)
      register_module("linear" + std::to_string(i), linears_[i]);
  }
  Variable forward(Variable x) {
    for (nn::Linear& linear : linears_) x = linear(x);
    return detaches ? x.detach() : x;
  }
  void shard(const distributed::DeviceMesh& mesh) {
    for (nn::Linear& linear : linears_) fsdp::fully_shard(linear, {.mesh = mesh});
    fsdp::fully_shard(*this, {.mesh = mesh});
  }
  bool detaches = false;

 private:
  nn::Linear linears_[3] = {nn::Linear({.in = 4, .out = 4}), nn::Linear({.in = 4, .out = 4}),
                            nn::Linear({.in = 4, .out = 4})};
};

// Backward prefetches in the order of its own forward.
TESSERA_RANK_TEST("fsdp order: a forward that no backward follows is forgotten", "[fsdp]") {
  const auto events = [&](bool detaches) {
    Detaching model;
    model.shard(t.world().mesh());
    nn::initialize(model, {.seed = 1});
    const Variable x(random_rows(2, 4, DType::kF32, 1));
    model.detaches = detaches;
    {
      const GradModeGuard grad(detaches);
      model(x);
    }
    model.detaches = false;
    return events_of(traced(t, [&] { backward(sum(model(x))); }));
  };
  const std::string after_detached = events(true), after_no_grad = events(false);
  t.check(after_detached == after_no_grad, "\"{}\", expected \"{}\"", after_detached,
          after_no_grad);
}

TESSERA_RANK_TEST_WITH("fsdp order (b): two forwards, then one backward of the sum", "[fsdp]",
                       {.worlds = {1, 2, 3, 4, 6}}) {
  for (const Setting& setting : settings(t)) {
    const auto model = sharded_transformer(t, 3, setting.value);
    const std::string what = fmt::format("reshard {}, ", setting.name);
    Variable first, second;
    check_events(t, what + "first", traced(t, [&] { first = loss_of(*model); }),
                 "U root; U layers.0; U layers.1; U layers.2");
    std::string again = setting.released_groups ? "U layers.0; U layers.1; U layers.2" : "";
    if (setting.released_root) again = "U root; " + again;
    const ExecutionTrace forward = traced(t, [&] { second = loss_of(*model); });
    check_events(t, what + "second", forward, again);
    check_gathers_again(t, what + "second", forward, setting);
    const std::string half =
        "U layers.2; U layers.1; P layers.2; U layers.0; P layers.1; P layers.0";
    // The first half's backward releases the values that stayed, so the second gathers in any case.
    std::string expected = (setting.released_groups ? half : without_gathers(half)) + "; " + half;
    if (setting.released_root) expected = "U root; " + expected;
    const ExecutionTrace trace = traced(t, [&] { backward(add(first, second)); });
    check_events(t, what + "backward", trace, expected + "; P root");
    // Backward of the second forward finds its kept values; those of the first were released by
    // backward.
    if (setting.again_among == 2 && t.size() > 2) {
      t.check(gather_sizes_of(trace) == fmt::format("2 2 2 2 {0} {0} {0}", t.size()),
              "{}backward gathers among {}", what, gather_sizes_of(trace));
    }
  }
}

/// Two results, of which a loss may use only one.
class Forked final : public nn::Layer<Forked> {
 public:
  Forked()
      : first_({.in = 8, .out = 8, .dtype = DType::kF64}), fork_({.dim = 8, .dtype = DType::kF64}) {
    register_module("0", first_);
    register_module("1", fork_);
  }
  std::tuple<Variable, Variable> forward(const Variable& x) { return fork_(first_(x)); }
  std::vector<nn::Module*> groups() {
    std::vector<nn::Module*> out = fork_.groups();
    out.insert(out.begin(), &first_);
    return out;
  }

 private:
  nn::Linear first_;
  DoubleLinear fork_;
};

TESSERA_RANK_TEST("fsdp order (c): two backwards, each through one branch", "[fsdp]") {
  Forked model, reference;
  for (nn::Module* group : model.groups())
    fsdp::fully_shard(*group, {.mesh = t.world().mesh(), .reshard_after_forward = true});
  const fsdp::Handle root = fsdp::fully_shard(model, {.mesh = t.world().mesh()});
  root.set_prefetch({.forward = 0});
  nn::initialize(model, {.seed = 1});
  nn::initialize(reference, {.seed = 1});
  const Variable x(random_rows(3, 8, DType::kF64, 1), /*requires_grad=*/true);
  Variable loss1, loss2;
  const auto run = [&](Forked& each) {
    const auto [left, right] = each(x);
    loss1 = local_loss(left);
    loss2 = local_loss(right);
  };
  check_events(t, "forward", traced(t, [&] { run(model); }), "U 0; U 1.lin1; U 1.lin2");
  root.set_is_last_backward(false);
  // The prefetch gathers the group that ran before, though this backward does not reach it; the
  // second backward uses it. At the end of each backward the other branch ends, too, with nothing
  // to reduce.
  check_events(t, "first backward", traced(t, [&] { backward(loss2, {.retain_graph = true}); }),
               "U 1.lin2; U 1.lin1; P 1.lin2; U 0; P 0; P 1.lin1");
  root.set_is_last_backward(true);
  check_events(t, "second backward", traced(t, [&] { backward(loss1); }),
               "U 0; P 1.lin1; P 0; P 1.lin2");

  run(reference);
  backward(loss2, {.retain_graph = true});
  backward(loss1);
  const std::string difference =
      compare_with_reference(model, reference, 1e-13, /*gradients=*/true);
  t.check(difference.empty(), "{}", difference);
}

void set_forward_lists(Transformer& model, std::size_t count) {
  const auto blocks = model.blocks();
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    std::vector<nn::Module*> next;
    for (std::size_t j = i + 1; j <= i + count && j < blocks.size(); ++j)
      next.push_back(&blocks[j].get());
    fsdp::of(blocks[i].get()).set_modules_to_forward_prefetch(next);
  }
}
void set_backward_lists(Transformer& model, std::size_t count) {
  const auto blocks = model.blocks();
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    std::vector<nn::Module*> previous;
    for (std::size_t j = 1; j <= count && j <= i; ++j) previous.push_back(&blocks[i - j].get());
    fsdp::of(blocks[i].get()).set_modules_to_backward_prefetch(previous);
  }
}

constexpr const char* kBackwardOfFour =
    "U root; U layers.3; U layers.2; R layers.3; P layers.3; U layers.1; R layers.2; P layers.2; "
    "U layers.0; R layers.1; P layers.1; R layers.0; P layers.0; R root; P root";

TESSERA_RANK_TEST("fsdp order (d): forward lists of one and of two modules", "[fsdp]") {
  for (const std::size_t ahead : {1U, 2U}) {
    const auto model = sharded_transformer(t, 4, true, /*recompute=*/true);
    set_forward_lists(*model, ahead);
    for (int round = 0; round < 2; ++round) {
      Variable loss;
      check_events(
          t, fmt::format("forward, {} ahead", ahead), traced(t, [&] { loss = loss_of(*model); }),
          ahead == 1
              ? "U root; U layers.0; U layers.1; R layers.0; U layers.2; R layers.1; U layers.3; "
                "R layers.2; R layers.3; R root"
              : "U root; U layers.0; U layers.1; U layers.2; R layers.0; U layers.3; R layers.1; "
                "R layers.2; R layers.3; R root",
          kOrderAndReshard);
      check_events(t, "backward", traced(t, [&] { backward(loss); }), kBackwardOfFour,
                   kOrderAndReshard);
    }
  }
}

TESSERA_RANK_TEST("fsdp order (e): backward lists of one and of two modules", "[fsdp]") {
  for (const std::size_t ahead : {1U, 2U}) {
    const auto model = sharded_transformer(t, 4, true, /*recompute=*/true);
    set_backward_lists(*model, ahead);
    for (int round = 0; round < 2; ++round) {
      Variable loss;
      check_events(t, "forward", traced(t, [&] { loss = loss_of(*model); }),
                   "U root; U layers.0; R layers.0; U layers.1; R layers.1; U layers.2; "
                   "R layers.2; U layers.3; R layers.3; R root",
                   kOrderAndReshard);
      check_events(
          t, fmt::format("backward, {} ahead", ahead), traced(t, [&] { backward(loss); }),
          ahead == 1
              ? kBackwardOfFour
              : "U root; U layers.3; U layers.2; U layers.1; R layers.3; P layers.3; U layers.0; "
                "R layers.2; P layers.2; R layers.1; P layers.1; R layers.0; P layers.0; R root; "
                "P root",
          kOrderAndReshard);
    }
  }
}

TESSERA_RANK_TEST("fsdp order: an empty list turns the implicit rule off for its module",
                  "[fsdp]") {
  const auto model = sharded_transformer(t, 3, true);
  fsdp::of(model->blocks()[2].get()).set_modules_to_backward_prefetch({});
  Variable loss = loss_of(*model);
  check_events(t, "backward", traced(t, [&] { backward(loss); }),
               "U root; U layers.2; P layers.2; U layers.1; U layers.0; P layers.1; P layers.0; "
               "P root");
}

TESSERA_RANK_TEST("fsdp order (g): groups of several modules, backward too", "[fsdp]") {
  models::ModelArgs args = transformer_args(5, DType::kF64, /*weight_tying=*/false);
  args.checkpoint_activations = true;
  Transformer model(args);
  const auto at = [&](const char* name) { return &model.get_submodule(name); };
  const fsdp::FullyShardOptions options = {.mesh = t.world().mesh(), .reshard_after_forward = true};
  fsdp::fully_shard(*at("layers.0"), options);
  fsdp::fully_shard({at("layers.1"), at("layers.2")}, options);
  fsdp::fully_shard({at("layers.3"), at("layers.4")}, options);
  fsdp::fully_shard({at("tok_embeddings"), at("pos_embeddings")}, options);
  fsdp::fully_shard({at("norm"), at("output")},
                    {.mesh = t.world().mesh(), .reshard_after_forward = false});
  fsdp::fully_shard(model, options).set_prefetch({.forward = 0});
  nn::initialize(model, {.seed = 1});
  for (int round = 0; round < 2; ++round) {
    Variable loss;
    check_events(t, "forward", traced(t, [&] { loss = loss_of(model); }),
                 "U tok_embeddings, pos_embeddings; U layers.0; U layers.1, layers.2; "
                 "U layers.3, layers.4; U norm, output");
    check_events(t, "backward", traced(t, [&] { backward(loss); }),
                 "U layers.3, layers.4; P norm, output; U layers.1, layers.2; "
                 "P layers.3, layers.4; U layers.0; P layers.1, layers.2; "
                 "U tok_embeddings, pos_embeddings; P layers.0; "
                 "P tok_embeddings, pos_embeddings");
  }
}

/// Two layers; forward uses the second.
class Half final : public nn::Layer<Half> {
 public:
  Half()
      : unused_({.in = 5, .out = 5, .dtype = DType::kF64}),
        lin_({.in = 5, .out = 5, .dtype = DType::kF64}) {
    register_module("unused_lin", unused_);
    register_module("lin", lin_);
  }
  Variable forward(const Variable& x) { return gelu(lin_(x)); }
  std::vector<nn::Module*> both() { return {&unused_, &lin_}; }

 private:
  nn::Linear unused_, lin_;
};

/// A layer of its own, then two halves.
class Halves final : public nn::Layer<Halves> {
 public:
  Halves() : stem_({.in = 5, .out = 5, .dtype = DType::kF64}) {
    register_module("stem", stem_);
    register_module("0", first_);
    register_module("1", second_);
  }
  Variable forward(const Variable& x) { return second_(first_(stem_(x))); }
  std::vector<Half*> halves() { return {&first_, &second_}; }

 private:
  nn::Linear stem_;
  Half first_, second_;
};

TESSERA_RANK_TEST("fsdp order (h): a group of which one module never ran keeps its value",
                  "[fsdp]") {
  Halves model, reference;
  for (Half* half : model.halves())
    fsdp::fully_shard(half->both(), {.mesh = t.world().mesh(), .reshard_after_forward = true});
  fsdp::fully_shard(model, {.mesh = t.world().mesh()}).set_prefetch({.forward = 0});
  nn::initialize(model, {.seed = 1});
  nn::initialize(reference, {.seed = 1});
  const Tensor x = random_rows(6, 5, DType::kF64, 1);
  for (int round = 0; round < 2; ++round) {
    Variable loss;
    check_events(
        t, "forward",
        traced(t, [&] { loss = sharded_loss(model(Variable(my_rows(x, t.world()))), t.world()); }),
        "U root; U 0.unused_lin, 0.lin; U 1.unused_lin, 1.lin", kOrderAndReshard);
    check_events(t, "backward", traced(t, [&] { backward(loss); }),
                 "P 1.unused_lin, 1.lin; P 0.unused_lin, 0.lin; P root");
    backward(plain_loss(reference(Variable(x))));
    const std::string difference =
        compare_with_reference(model, reference, 1e-13, /*gradients=*/true);
    t.check(difference.empty(), "{}", difference);
  }
  const auto state = fsdp::of(*model.halves()[0]->both()[0]).state();
  t.check(state == fsdp::GroupState::kSharded, "after backward the group is {}",
          fsdp::group_state_name(state));
}

TESSERA_RANK_TEST("fsdp order (i): a gather ahead of what backward is done with does no harm",
                  "[fsdp]") {
  MLP model({.dim = 16, .dtype = DType::kF64}), reference({.dim = 16, .dtype = DType::kF64});
  nn::Module &in = model.get_submodule("in_proj"), &out = model.get_submodule("out_proj");
  for (nn::Module* each : {&in, &out}) fsdp::fully_shard(*each, {.mesh = t.world().mesh()});
  fsdp::fully_shard(model, {.mesh = t.world().mesh()}).set_prefetch({.forward = 0});
  fsdp::of(in).set_modules_to_backward_prefetch({&out});
  nn::initialize(model, {.seed = 1});
  nn::initialize(reference, {.seed = 1});
  nn::optim::SGD sgd(model.parameters(), kSgd), reference_sgd(reference.parameters(), kSgd);
  for (std::uint64_t step = 0; step < 3; ++step) {
    const Tensor x = random_rows(6, 16, DType::kF64, step);
    Variable loss = sharded_loss(model(Variable(my_rows(x, t.world()), true)), t.world());
    check_events(t, "backward", traced(t, [&] { backward(loss); }),
                 "U out_proj; U in_proj; P out_proj; U out_proj; P in_proj");
    backward(plain_loss(reference(Variable(x))));
    const std::string difference =
        compare_with_reference(model, reference, 1e-13, /*gradients=*/true);
    t.check(difference.empty(), "step {}: {}", step, difference);
    for (auto* each : {&sgd, &reference_sgd}) {
      each->step();
      each->zero_grad();
    }
    const auto state = fsdp::of(out).state();
    t.check(state == fsdp::GroupState::kSharded, "out_proj is {} after the step",
            fsdp::group_state_name(state));
  }
}

}  // namespace
}  // namespace tessera::testing
