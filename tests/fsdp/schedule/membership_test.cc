// The modules and parameters that a call takes: nested calls, lists, modules reached twice, shared
// weights, replicate beside fully_shard, ignored modules; roots and names.

#include <catch2/catch.hpp>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tessera/autograd/engine.h"
#include "tessera/fsdp/fully_shard.h"
#include "tessera/fsdp/replicate.h"
#include "tessera/nn/init.h"
#include "tessera/nn/layers/sequential.h"
#include "tessera/tests/fsdp/chain.h"
#include "tessera/tests/fsdp/reference.h"
#include "tessera/tests/fsdp/schedule/events.h"
#include "tessera/tests/support/models/mlp.h"
#include "tessera/tests/support/models/plain.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

using Names = std::vector<std::string>;

std::string text_of(const Names& names) {
  std::string out;
  for (const std::string& name : names) out += "\"" + name + "\" ";
  return out;
}

void check_names(RankTest& t, const std::string& what, const Names& seen, const Names& expected) {
  t.check(seen == expected, "{}: {}, expected {}", what, text_of(seen), text_of(expected));
}

/// Three MLPs in sequence.
std::unique_ptr<nn::Sequential> three_mlps(std::int64_t dim) {
  auto out = std::make_unique<nn::Sequential>();
  for (int i = 0; i < 3; ++i) out->add<MLP>({.dim = dim, .dtype = DType::kF64});
  return out;
}

TESSERA_RANK_TEST("fsdp members: modules of the transformer, all and what inner calls leave",
                  "[fsdp]") {
  const distributed::DeviceMesh& mesh = t.world().mesh();
  models::Transformer whole(transformer_args(3)), part(transformer_args(3));
  const std::size_t all = fsdp::fully_shard(whole, {.mesh = mesh}).managed_modules().size();
  t.check(all == 49, "{} managed modules, expected 49", all);
  const auto blocks = part.blocks();
  const auto first = fsdp::replicate(blocks[0].get(), {.mesh = mesh});
  const auto second = fsdp::fully_shard(blocks[1].get(), {.mesh = mesh});
  t.check(first.managed_modules().size() == 14 && second.managed_modules().size() == 14,
          "{} and {} modules of a block", first.managed_modules().size(),
          second.managed_modules().size());
  const fsdp::Handle root = fsdp::fully_shard(part, {.mesh = mesh});
  t.check(root.managed_modules().size() == 21, "{} managed modules, expected 21",
          root.managed_modules().size());
  t.check(first.kind() == fsdp::Kind::kReplicate && root.kind() == fsdp::Kind::kFullyShard &&
              std::string(fsdp::kind_name(first.kind())) == "replicate",
          "kinds are mixed up");
  t.check(root.managed_modules().front() == &part, "the root does not come first");
}

TESSERA_RANK_TEST("fsdp members: one call, nested calls, a list with a part of another", "[fsdp]") {
  const fsdp::FullyShardOptions options = {.mesh = t.world().mesh()};
  const auto one = three_mlps(4);
  check_names(t, "one call", names_of(*one, fsdp::fully_shard(*one, options).managed_modules()),
              module_names(*one));

  const auto nested = three_mlps(4);
  fsdp::fully_shard(nested->at(1), options);
  fsdp::fully_shard(nested->get_submodule("2.in_proj"), options);
  const fsdp::Handle root = fsdp::fully_shard(*nested, options);
  check_names(t, "nested", names_of(*nested, root.managed_modules()),
              {"", "0", "0.in_proj", "0.out_proj", "2", "2.out_proj"});
  check_names(t, "nested", root.parameter_names(),
              {"0.in_proj.weight", "0.in_proj.bias", "0.out_proj.weight", "0.out_proj.bias",
               "2.out_proj.weight", "2.out_proj.bias"});

  // in_proj is inside the first MLP, so it is a part of it.
  const auto listed = three_mlps(4);
  nn::Module& inner = listed->get_submodule("0.in_proj");
  const fsdp::Handle list = fsdp::fully_shard({&listed->at(0), &inner, &listed->at(2)}, options);
  check_names(t, "list", names_of(*listed, list.managed_modules()),
              {"0", "0.in_proj", "0.out_proj", "2", "2.in_proj", "2.out_proj"});
  t.check(fsdp::has_state(listed->at(0)) && fsdp::has_state(listed->at(2)) &&
              !fsdp::has_state(inner) && !fsdp::has_state(listed->at(1)),
          "another set of modules has a state");
  t.check(fsdp::of(listed->at(2)).parameter_names().size() == 8, "the two have not one group");
}

/// The same module under two names.
class Doubled final : public nn::Layer<Doubled> {
 public:
  Doubled() : mlp_({.dim = 4, .dtype = DType::kF64}) {
    register_module("a", mlp_);
    register_module("b", mlp_);
  }
  Variable forward(const Variable& x) { return mlp_(mlp_(x)); }

 private:
  MLP mlp_;
};

TESSERA_RANK_TEST("fsdp members: a module met twice and a shared weight count once", "[fsdp]") {
  Doubled doubled, doubled_reference;
  const fsdp::Handle handle = fsdp::fully_shard(doubled, {.mesh = t.world().mesh()});
  check_names(t, "twice", names_of(doubled, handle.managed_modules()),
              {"", "a", "a.in_proj", "a.out_proj"});
  t.check(handle.parameter_names().size() == 4, "{} parameters", handle.parameter_names().size());

  const auto tied = three_mlps(4), tied_reference = three_mlps(4);
  for (nn::Sequential* each : {tied.get(), tied_reference.get()}) {
    auto& first = dynamic_cast<nn::Linear&>(each->get_submodule("0.in_proj"));
    auto& last = dynamic_cast<nn::Linear&>(each->get_submodule("2.in_proj"));
    nn::tie(first.weight(), last.weight());
  }
  const fsdp::Handle of_tied =
      fsdp::fully_shard({&tied->at(0), &tied->at(2)}, {.mesh = t.world().mesh()});
  fsdp::fully_shard(*tied, {.mesh = t.world().mesh()});
  t.check(of_tied.parameter_names().size() == 7, "{} parameters of the tied group, expected 7",
          of_tied.parameter_names().size());
  const auto train = [&](nn::Module& model, nn::Module& reference, auto&& run,
                         auto&& run_reference) {
    nn::initialize(model, {.seed = 1});
    nn::initialize(reference, {.seed = 1});
    const Tensor x = random_rows(6, 4, DType::kF64, 1);
    backward(sharded_loss(run(Variable(my_rows(x, t.world()))), t.world()));
    backward(plain_loss(run_reference(Variable(x))));
    const std::string difference =
        compare_with_reference(model, reference, 1e-13, /*gradients=*/true);
    t.check(difference.empty(), "{}", difference);
  };
  train(doubled, doubled_reference, doubled, doubled_reference);
  train(*tied, *tied_reference, *tied, *tied_reference);
}

TESSERA_RANK_TEST("fsdp members: only the outermost is the root, and the order of states",
                  "[fsdp]") {
  const auto model = three_mlps(4);
  const fsdp::FullyShardOptions options = {.mesh = t.world().mesh()};
  nn::Module &in = model->get_submodule("0.in_proj"), &out = model->get_submodule("0.out_proj");
  const fsdp::Handle of_in = fsdp::fully_shard(in, options);
  const fsdp::Handle of_out = fsdp::fully_shard(out, options);
  const fsdp::Handle root = fsdp::fully_shard(*model, options);
  nn::initialize(*model, {.seed = 1});
  check_names(t, "states", names_of(*model, fsdp::sharded_modules(*model)),
              {"", "0.in_proj", "0.out_proj"});
  check_names(t, "root", names_of(*model, fsdp::sharded_modules(*model, {.root_only = true})),
              {""});
  check_names(t, "below",
              names_of(*model, fsdp::sharded_modules(model->at(0), {.root_only = true})),
              {"0.in_proj", "0.out_proj"});
  t.check(!root.is_root(), "the root is known before a forward");
  (*model)(Variable(random_rows(2, 4, DType::kF64, 1)));
  t.check(root.is_root() && !of_in.is_root() && !of_out.is_root(), "roots: {} {} {}",
          root.is_root(), of_in.is_root(), of_out.is_root());
  t.check(root.group_name() == "root" && of_in.group_name() == "0.in_proj" &&
              of_out.group_name() == "0.out_proj",
          "groups are named {}, {}, {}", root.group_name(), of_in.group_name(),
          of_out.group_name());
  check_names(t, "in_proj", of_in.parameter_names(), {"0.in_proj.weight", "0.in_proj.bias"});
  check_names(t, "root", root.parameter_names(),
              {"1.in_proj.weight", "1.in_proj.bias", "1.out_proj.weight", "1.out_proj.bias",
               "2.in_proj.weight", "2.in_proj.bias", "2.out_proj.weight", "2.out_proj.bias"});
}

TESSERA_RANK_TEST("fsdp members: a group of several modules has joined names", "[fsdp]") {
  const auto model = three_mlps(4);
  const fsdp::Handle list =
      fsdp::fully_shard({&model->at(0), &model->at(2)}, {.mesh = t.world().mesh()});
  fsdp::fully_shard(*model, {.mesh = t.world().mesh()});
  nn::initialize(*model, {.seed = 1});
  (*model)(Variable(random_rows(2, 4, DType::kF64, 1)));
  t.check(list.group_name() == "0, 2", "the group is {}", list.group_name());
}

TESSERA_RANK_TEST("fsdp members: options are read back, settings included", "[fsdp]") {
  const auto model = three_mlps(4);
  const fsdp::Handle handle =
      fsdp::fully_shard(*model, {.mesh = t.world().mesh(), .reshard_after_forward = true});
  t.check(handle.options().mesh == t.world().mesh(), "another mesh");
  t.check(handle.options().reshard_after_forward == fsdp::ReshardAfterForward(true),
          "another reshard_after_forward");
  t.check(handle.has_group() && handle.state() == fsdp::GroupState::kSharded &&
              handle.phase() == fsdp::Phase::kIdle,
          "the state is not that of the beginning");
  // Alignment of the 12 parameters and padding rows are added to the elements.
  const std::int64_t bytes = handle.gathered_bytes(), real = (3 * (2 * 16 * 4 + 16 + 4)) * 8;
  t.check(t.size() == 1 ? bytes >= 0 : bytes >= real && bytes < 2 * real + 12 * 256,
          "{} gathered bytes of {} real ones", bytes, real);
}

/// Gradients of ignored parameters are the rank's own; the others are means over all ranks.
void check_ignored(RankTest& t, nn::Sequential& model, const std::string& ignored) {
  const auto reference = three_mlps(4), alone = three_mlps(4);
  for (nn::Module* each :
       {static_cast<nn::Module*>(&model), static_cast<nn::Module*>(reference.get()),
        static_cast<nn::Module*>(alone.get())})
    nn::initialize(*each, {.seed = 1});
  const Tensor x = random_rows(2 * t.size(), 4, DType::kF64, 1), mine = my_rows(x, t.world());
  backward(plain_loss(model(Variable(mine))));
  backward(plain_loss((*reference)(Variable(x))));
  backward(plain_loss((*alone)(Variable(mine))));
  for (const nn::NamedParameter& named : model.named_parameters()) {
    const bool is_ignored = named.name.starts_with(ignored);
    t.check((named.parameter.owner() == nullptr) == is_ignored, "{} is owned by the wrong one",
            named.name);
    const nn::Parameter expected = (is_ignored ? *alone : *reference).get_parameter(named.name);
    const double error =
        worst_error(named.parameter.grad(), box_rows(expected.grad(), named.parameter));
    t.check(error < 1e-13, "ignored \"{}\": the gradient of {} differs by {}", ignored, named.name,
            error);
  }
}

TESSERA_RANK_TEST("fsdp members: ignored parameters and modules are the caller's", "[fsdp]") {
  const auto of_module = three_mlps(4), of_parameter = three_mlps(4);
  const fsdp::Handle handle = fsdp::fully_shard(
      *of_module, {.mesh = t.world().mesh(), .ignored_modules = {&of_module->at(1)}});
  check_names(t, "without the ignored", names_of(*of_module, handle.managed_modules()),
              {"", "0", "0.in_proj", "0.out_proj", "2", "2.in_proj", "2.out_proj"});
  check_ignored(t, *of_module, "1.");
  fsdp::fully_shard(*of_parameter,
                    {.mesh = t.world().mesh(),
                     .ignored_parameters = {of_parameter->get_parameter("2.in_proj.weight")}});
  check_ignored(t, *of_parameter, "2.in_proj.weight");
}

TESSERA_RANK_TEST("fsdp members: replicate around fully_shard, and inside it", "[fsdp]") {
  for (const bool inside : {true, false}) {
    const auto model = three_mlps(4), reference = three_mlps(4);
    const distributed::DeviceMesh& mesh = t.world().mesh();
    nn::Module& inner = model->get_submodule("1.in_proj");
    // The outer call does not take the replicated subtree, including the shards nested in it.
    if (inside) fsdp::fully_shard(inner, {.mesh = mesh});
    const fsdp::Handle middle = inside ? fsdp::replicate(model->at(1), {.mesh = mesh})
                                       : fsdp::fully_shard(model->at(1), {.mesh = mesh});
    const fsdp::Handle outer = inside ? fsdp::fully_shard(*model, {.mesh = mesh})
                                      : fsdp::replicate(*model, {.mesh = mesh});
    check_names(t, "outer", names_of(*model, outer.managed_modules()),
                {"", "0", "0.in_proj", "0.out_proj", "2", "2.in_proj", "2.out_proj"});
    t.check(middle.parameter_names().size() == (inside ? 2 : 4), "{} parameters in the middle",
            middle.parameter_names().size());
    nn::initialize(*model, {.seed = 1});
    nn::initialize(*reference, {.seed = 1});
    const Tensor x = random_rows(6, 4, DType::kF64, 1);
    backward(sharded_loss((*model)(Variable(my_rows(x, t.world()))), t.world()));
    backward(plain_loss((*reference)(Variable(x))));
    const std::string difference =
        compare_with_reference(*model, *reference, 1e-13, /*gradients=*/true);
    t.check(difference.empty(), "inside {}: {}", inside, difference);
  }
}

}  // namespace
}  // namespace tessera::testing
