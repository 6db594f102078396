// The report of describe(): whole texts, and changes of the model that it must follow.

#include <fmt/format.h>

#include <catch2/catch.hpp>

#include <memory>
#include <string>
#include <vector>

#include "tessera/autograd/grad_mode.h"
#include "tessera/fsdp/describe.h"
#include "tessera/fsdp/fully_shard.h"
#include "tessera/fsdp/replicate.h"
#include "tessera/nn/init.h"
#include "tessera/nn/layers/dropout.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/layers/norm.h"
#include "tessera/nn/layers/sequential.h"
#include "tessera/tests/fsdp/chain.h"
#include "tessera/tests/fsdp/reference.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

void check_text(RankTest& t, const std::string& seen, const std::string& expected) {
  t.check(seen == expected, "expected:\n{}\ngot:\n{}", expected, seen);
}

/// Checks that `seen` contains the line.
void check_line(RankTest& t, const std::string& seen, const std::string& line) {
  t.check(("\n" + seen).find("\n" + line + "\n") != std::string::npos, "no line \"{}\" in:\n{}",
          line, seen);
}

const RankTestOptions kTwoRanks = {.worlds = {2}};

TESSERA_RANK_TEST_WITH("fsdp describe: a model of two groups", "[fsdp]", (kTwoRanks)) {
  Chain model({.widths = {3, 5}, .classes = 2, .dtype = DType::kF32});
  shard_chain(model, {.mesh = t.world().mesh(), .reshard_after_forward = true});
  nn::initialize(model, {.seed = 1});
  {
    const NoGradGuard no_grad;
    model(Variable(random_rows(2, 3, DType::kF32, 1)));  // the root is known from then on
  }
  const bool first = t.rank() == 0;
  check_text(
      t, fsdp::describe(model),
      fmt::format(R"(Chain, as rank {} of 2 has it: 2 groups

root: fully_shard of Chain, sharded
  mesh       data 2 over ranks 0,1 on cpu
  options    reshard_after_forward default
  placement  parameter [Shard(0)], kept [Replicate], gradient [Shard(0)], optimizer [Shard(0)]
  prefetch   forward 1 ahead, backward the preceding group
  modules    2
  bytes      24 local, 264 gathered, 48 slots
  parameter    global  local   stored  compute  reduce  placement
  head.weight  [2, 5]  [1, 5]  f32     f32      f32     [Shard(0)]
  head.bias    [2]     [1]     f32     f32      f32     [Shard(0)]

block0: fully_shard of Block, sharded
  mesh       data 2 over ranks 0,1 on cpu
  options    reshard_after_forward true
  placement  parameter [Shard(0)], kept [Shard(0)], gradient [Shard(0)], optimizer [Shard(0)]
  prefetch   forward 1 ahead, backward the preceding group
  modules    2
  bytes      {} local, 280 gathered, 96 slots
  parameter             global  local   stored  compute  reduce  placement
  block0.linear.weight  [5, 3]  {}  f32     f32      f32     [Shard(0)]
  block0.linear.bias    [5]     {}     f32     f32      f32     [Shard(0)]
)",
                  t.rank(), first ? 48 : 32, first ? "[3, 3]" : "[2, 3]", first ? "[3]" : "[2]"));
}

/// "0" and "1" are one group in bf16, whose norm is exempt; "2" is replicated; "3" has no
/// parameters; "4" is ignored.
std::unique_ptr<nn::Sequential> mixed_model(const distributed::DeviceMesh& mesh) {
  auto model = std::make_unique<nn::Sequential>();
  model->add<nn::Linear>({.in = 4, .out = 4});
  model->add<nn::LayerNorm>({.shape = {4}});
  model->add<nn::Linear>({.in = 4, .out = 4, .bias = false});
  model->add<nn::Dropout>({.p = 0.5});
  model->add<nn::Linear>({.in = 4, .out = 1});
  model->get_parameter("0.bias").set_requires_grad(false);
  fsdp::fully_shard({&model->at(0), &model->at(1)},
                    {.mesh = mesh,
                     .reshard_after_forward = false,
                     .mixed_precision = {.param_dtype = DType::kBF16,
                                         .output_dtype = DType::kF32,
                                         .exempt = fsdp::is_norm},
                     .offload = fsdp::CpuOffload{.pin_memory = false}});
  fsdp::replicate(model->at(2), {.mesh = mesh, .mixed_precision = {.reduce_dtype = DType::kF64}});
  fsdp::fully_shard(model->at(3), {.mesh = mesh});
  return model;
}

TESSERA_RANK_TEST_WITH("fsdp describe: kinds, options and lists", "[fsdp]", (kTwoRanks)) {
  auto model = mixed_model(t.world().mesh());
  fsdp::of(model->at(0)).set_modules_to_forward_prefetch({&model->at(2)});
  fsdp::of(model->at(0)).set_modules_to_backward_prefetch({});
  fsdp::of(model->at(2)).set_requires_gradient_sync(false);
  check_text(t, fsdp::describe(*model),
             fmt::format(R"(Sequential, as rank {} of 2 has it: 2 groups

0, 1: fully_shard of Linear, LayerNorm, sharded
  mesh       data 2 over ranks 0,1 on cpu
  options    reshard_after_forward false, compute in bf16, results in f32, some modules exempt, offloaded
  placement  parameter [Shard(0)], kept [Replicate], gradient [Shard(0)], optimizer [Shard(0)]
  prefetch   forward 2, backward nothing
  modules    2
  bytes      56 local, 784 gathered, 96 slots
  parameter  global  local   stored  compute  reduce  placement
  0.weight   [4, 4]  [2, 4]  f32     bf16     f32     [Shard(0)]
  0.bias     [4]     [2]     f32     bf16     frozen  [Shard(0)]
  1.weight   [4]     [2]     f32     f32      f32     [Shard(0)]
  1.bias     [4]     [2]     f32     f32      f32     [Shard(0)]

2: replicate of Linear, sharded
  mesh       data 2 over ranks 0,1 on cpu
  options    reduce in f64, gradient sync off
  placement  parameter [Replicate], kept [Replicate], gradient [Replicate], optimizer [Replicate]
  prefetch   forward 1 ahead, backward the preceding group
  modules    1
  bytes      64 local, 0 gathered, 128 slots
  parameter  global  local   stored  compute  reduce  placement
  2.weight   [4, 4]  [4, 4]  f32     f32      f64     [Replicate]

3: fully_shard of Dropout, no group

in no group: 2
  4.weight [1, 4] f32
  4.bias [1] f32
)",
                         t.rank()));
}

TESSERA_RANK_TEST_WITH("fsdp describe: hybrid sharding", "[fsdp]", {.worlds = {4}}) {
  const distributed::DeviceMesh mesh({"replicate", "shard"}, {2, 2}, t.world().group(),
                                     default_device());
  Chain model({.widths = {3, 5}, .classes = 0});
  fsdp::fully_shard(model, {.mesh = mesh,
                            .reshard_after_forward = true,
                            .ignored_parameters = {model.get_parameter("block0.linear.bias")}});
  const std::string text = fsdp::describe(model);
  check_line(t, text, "  mesh       replicate 2, shard 2 over ranks 0,1,2,3 on cpu");
  check_line(t, text, "  options    reshard_after_forward true, ignored parameters: 1");
  check_line(t, text,
             "  placement  parameter [Replicate, Shard(0)], kept [Replicate, Shard(0)], gradient "
             "[Replicate, Shard(0)], optimizer [Replicate, Shard(0)]");
  check_line(t, text, "in no group: 1");
  check_line(t, text, "  block0.linear.bias [5] f64");
  t.check(text.find("block0.linear.bias") == text.rfind("block0.linear.bias"),
          "an ignored parameter stands in a group:\n{}", text);
}

TESSERA_RANK_TEST("fsdp describe: follows what is set, and the state", "[fsdp]") {
  Chain model({.widths = {3, 5, 4}});
  shard_chain(model, {.mesh = t.world().mesh(), .reshard_after_forward = 1});
  const fsdp::Handle block = fsdp::of(*model.blocks()[0]);
  check_line(t, fsdp::describe(*model.blocks()[0]), "  options    reshard_after_forward 1");
  fsdp::of(model).set_prefetch({.forward = 2, .backward = fsdp::BackwardPrefetch::kNone});
  block.set_reshard_after_forward(true);
  block.set_reshard_after_backward(false);
  const std::string text = fsdp::describe(*model.blocks()[0]);
  check_line(t, text, "  prefetch   forward 2 ahead, backward none");
  check_line(t, text, "  options    reshard_after_forward true, kept after backward");
  nn::initialize(model, {.seed = 1});
  std::string inside;
  model.blocks()[0]->children()[0].module->register_forward_hook(
      [&](nn::Module&, const nn::VisitVariables*) { inside = fsdp::describe(model); });
  model(Variable(random_rows(2, 3, DType::kF64, 1)));
  check_line(t, inside, "block0: fully_shard of Block, full, in forward");
  check_line(t, inside, "block1: fully_shard of Block, sharded");
}

TEST_CASE("fsdp describe: nothing is sharded", "[fsdp]") {
  Chain model({});
  CHECK(fsdp::describe(model) == "Chain: nothing is sharded\n");
}

}  // namespace
}  // namespace tessera::testing
