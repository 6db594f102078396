// Values that are a cast of all of local(): their memory stays between steps, where Adam writes them,
// and a gather casts only what something else wrote.

#include <catch2/catch.hpp>

#include <memory>
#include <string>
#include <vector>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/grad_mode.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/fsdp/fully_shard.h"
#include "tessera/fsdp/replicate.h"
#include "tessera/nn/init.h"
#include "tessera/nn/optim/adam.h"
#include "tessera/nn/optim/step_in_backward.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tests/fsdp/chain.h"
#include "tessera/tests/fsdp/reference.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

fsdp::MixedPrecision half() { return {.param_dtype = DType::kBF16, .reduce_dtype = DType::kF32}; }

// How the ranks hold the model: every parameter is whole on each of them, or not.
struct Kind {
  std::string name;
  bool replicate = false;
  fsdp::ReshardAfterForward reshard = {};
  bool keeps(int ranks) const { return (replicate || ranks == 1) && reshard.reshard() != true; }
};

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all = {{.name = "sharded"},
                                        {.name = "replicated", .replicate = true},
                                        {.name = "released", .reshard = true},
                                        {.name = "kept after forward", .reshard = false}};
  return all;
}

std::unique_ptr<Chain> make_chain(RankTest& t, const Kind& kind) {
  auto chain = std::make_unique<Chain>(ChainOptions{.stem = true, .dtype = DType::kF32});
  std::vector<nn::Module*> modules;
  for (const auto& block : chain->blocks()) modules.push_back(block.get());
  modules.push_back(chain.get());
  for (nn::Module* module : modules) {
    if (kind.replicate) {
      fsdp::replicate(*module, {.mesh = t.world().mesh(), .mixed_precision = half()});
    } else {
      fsdp::fully_shard(*module, {.mesh = t.world().mesh(),
                                  .reshard_after_forward = kind.reshard,
                                  .mixed_precision = half()});
    }
  }
  nn::initialize(*chain, {.seed = 3});
  return chain;
}

Variable loss_of(RankTest& t, Chain& chain, std::uint64_t seed) {
  const Tensor x = my_rows(random_rows(11, 7, DType::kF32, seed), t.world());
  return sum(square(cast(chain(Variable(x)), DType::kF32)));
}

void train_step(RankTest& t, Chain& chain, nn::optim::Optimizer& optimizer, std::uint64_t seed) {
  backward(loss_of(t, chain, seed));
  optimizer.step();
  optimizer.zero_grad();
}

std::int64_t casts_of(const Chain& chain) { return fsdp::of(chain).copies().cast; }

std::int64_t gathered_bytes() {
  return current_rank_context()->memory().current()[MemoryCategory::kGathered];
}

// Bytes of the parameters' values in the compute dtype, without alignment.
std::int64_t value_bytes(Chain& chain) {
  std::int64_t bytes = 0;
  for (const nn::Parameter& parameter : chain.parameters()) bytes += 2 * parameter.shape().numel();
  return bytes;
}

void check_equal_parameters(RankTest& t, Chain& one, Chain& other, const std::string& what) {
  const auto left = one.named_parameters(), right = other.named_parameters();
  for (std::size_t i = 0; i < left.size(); ++i) {
    t.check_equal(left[i].parameter.local().tensor(), right[i].parameter.local().tensor(),
                  what + " " + left[i].name);
  }
}

TESSERA_RANK_TEST_WITH("cast copies: training has the bits of a model that casts at each gather",
                       "[fsdp]", {.worlds = {1, 2, 3}}) {
  for (const Kind& kind : kinds()) {
    const auto chain = make_chain(t, kind);
    const auto reference =
        make_chain(t, {.name = "reference", .replicate = kind.replicate, .reshard = true});
    nn::optim::AdamW optimizer(chain->parameters(), {.lr = 0.03});
    nn::optim::AdamW reference_optimizer(reference->parameters(), {.lr = 0.03});
    for (std::uint64_t step = 0; step < 4; ++step) {
      if (kind.replicate) fsdp::of(*reference).reshard();
      train_step(t, *chain, optimizer, step);
      train_step(t, *reference, reference_optimizer, step);
      check_equal_parameters(t, *chain, *reference, fmt::format("{}, step {}:", kind.name, step));
    }
  }
}

TESSERA_RANK_TEST_WITH("cast copies: Adam writes the next values, and no gather casts them again",
                       "[fsdp]", {.worlds = {1, 2, 3}}) {
  for (const Kind& kind : kinds()) {
    const std::int64_t before = gathered_bytes();
    const auto chain = make_chain(t, kind);
    nn::optim::Adam optimizer(chain->parameters(), {.lr = 0.03});
    train_step(t, *chain, optimizer, 0);
    const std::int64_t first = casts_of(*chain);
    train_step(t, *chain, optimizer, 1);
    const std::int64_t second = casts_of(*chain) - first;
    const bool keeps = kind.keeps(t.size());
    t.check((second == 0) == keeps, "{}: {} bytes cast in the second step", kind.name, second);
    t.check(first > 0, "{}: nothing was cast in the first step", kind.name);
    for (const nn::NamedParameter& named : chain->named_parameters()) {
      const nn::Parameter& p = named.parameter;
      t.check(p.cast_copy().defined() == keeps && p.has_current_cast_copy() == keeps,
              "{}: {} has a copy?", kind.name, named.name);
      if (!keeps) continue;
      t.check_equal(p.cast_copy(), cast(p.local().tensor(), DType::kBF16),
                    kind.name + " " + named.name);
    }
    const std::int64_t held = gathered_bytes() - before;
    t.check(keeps ? held >= value_bytes(*chain) : held == 0, "{}: {} bytes stay", kind.name, held);
    fsdp::of(*chain).reshard();
    for (const auto& block : chain->blocks()) fsdp::of(*block).reshard();
    t.check(gathered_bytes() == before, "{}: {} bytes after reshard()", kind.name,
            gathered_bytes() - before);
    for (const nn::Parameter& parameter : chain->parameters())
      t.check(!parameter.cast_copy().defined(), "{}: a copy without memory", kind.name);
  }
}

TESSERA_RANK_TEST_WITH("cast copies: what others write is cast, and only that", "[fsdp]",
                       {.worlds = {1}}) {
  const auto chain = make_chain(t, kinds()[0]);
  const auto reference = make_chain(t, {.name = "reference", .reshard = true});
  nn::optim::SGD optimizer(chain->parameters(), kSgd), other(reference->parameters(), kSgd);
  for (std::uint64_t step = 0; step < 3; ++step) {
    const std::int64_t before = casts_of(*chain);
    train_step(t, *chain, optimizer, step);
    train_step(t, *reference, other, step);
    const std::int64_t casts = casts_of(*chain) - before;
    t.check(casts == value_bytes(*chain), "step {}: {} bytes are cast", step, casts);
    check_equal_parameters(t, *chain, *reference, fmt::format("step {}:", step));
  }
  // Two passes of one step, and an evaluation, read what is there.
  loss_of(t, *chain, 7);
  const std::int64_t before = casts_of(*chain);
  backward(loss_of(t, *chain, 8));
  {
    const NoGradGuard no_grad;
    loss_of(t, *chain, 9);
  }
  backward(loss_of(t, *chain, 10));
  t.check(casts_of(*chain) == before, "{} bytes are cast again", casts_of(*chain) - before);
  const nn::Parameter bias = chain->named_parameters().back().parameter;
  fill_(bias.local().tensor(), 0.5);
  loss_of(t, *chain, 11);
  const std::int64_t casts = casts_of(*chain) - before;
  t.check(casts == 2 * bias.shape().numel(), "{} bytes for one bias", casts);
}

TESSERA_RANK_TEST_WITH("cast copies: a step in backward writes them too", "[fsdp]",
                       {.worlds = {1, 3}}) {
  const Kind kind = {.name = "replicated", .replicate = true};
  const auto chain = make_chain(t, kind), reference = make_chain(t, kind);
  nn::optim::AdamW optimizer(chain->parameters(), {.lr = 0.03});
  nn::optim::AdamW other(reference->parameters(), {.lr = 0.03});
  const nn::optim::StepInBackward in_backward(optimizer);
  for (std::uint64_t step = 0; step < 3; ++step) {
    const std::int64_t before = casts_of(*chain);
    backward(loss_of(t, *chain, step));
    train_step(t, *reference, other, step);
    check_equal_parameters(t, *chain, *reference, fmt::format("step {}:", step));
    t.check(step == 0 || casts_of(*chain) == before, "step {} casts", step);
  }
}

TESSERA_RANK_TEST_WITH("cast copies: Adam's write counts as overwriting what a graph saved",
                       "[fsdp]", {.worlds = {1}}) {
  const auto chain = make_chain(t, kinds()[0]);
  nn::optim::Adam optimizer(chain->parameters(), {.lr = 0.03});
  backward(loss_of(t, *chain, 0));
  const Variable& value = chain->named_parameters().front().parameter.value_leaf();
  const std::uint64_t version = value.tensor().version();
  optimizer.step();
  t.check(value.tensor().version() != version, "the value's version stayed");
}

TESSERA_RANK_TEST_WITH("cast copies: what was written to a value does not outlast its step",
                       "[fsdp]", {.worlds = {1}}) {
  const auto chain = make_chain(t, kinds()[0]);
  loss_of(t, *chain, 0);
  const nn::Parameter bias = chain->named_parameters().back().parameter;
  fsdp::of(*chain).unshard().wait();
  fill_(bias.value().tensor(), 7);
  {
    const NoGradGuard no_grad;
    loss_of(t, *chain, 0);
    loss_of(t, *chain, 0);
  }
  fsdp::of(*chain).unshard().wait();
  t.check_equal(bias.value().tensor(), cast(bias.local().tensor(), DType::kBF16), "bias");
}

TESSERA_RANK_TEST_WITH("cast copies: a converted model has none of before", "[fsdp]",
                       {.worlds = {1, 2}}) {
  const auto chain = make_chain(t, kinds()[1]);
  const auto reference = make_chain(t, kinds()[1]);
  nn::optim::Adam optimizer(chain->parameters(), {.lr = 0.03});
  backward(loss_of(t, *chain, 0));
  for (const nn::Parameter& parameter : chain->parameters()) parameter.zero_grad();
  chain->to(DType::kF64);
  for (const nn::Parameter& parameter : chain->parameters())
    t.check(!parameter.cast_copy().defined(), "a copy from before");
  chain->to(DType::kF32);
  train_step(t, *chain, optimizer, 1);
  nn::optim::Adam other(reference->parameters(), {.lr = 0.03});
  train_step(t, *reference, other, 1);
  check_equal_parameters(t, *chain, *reference, "after conversion:");
}

}  // namespace
}  // namespace tessera::testing
