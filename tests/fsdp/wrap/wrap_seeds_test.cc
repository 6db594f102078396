// Wrapping models of PyTorch's FSDP tests: encoder and decoder layers by type, and a trained,
// sharded model that becomes part of another.

#include <fmt/format.h>

#include <catch2/catch.hpp>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/grad_mode.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/fsdp/fully_shard.h"
#include "tessera/fsdp/wrap_policy.h"
#include "tessera/nn/init.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/layers/sequential.h"
#include "tessera/nn/layers/transformer/transformer_decoder_layer.h"
#include "tessera/nn/layers/transformer/transformer_encoder_layer.h"
#include "tessera/nn/optim/sgd.h"
#include "tessera/tests/fsdp/chain.h"
#include "tessera/tests/fsdp/reference.h"
#include "tessera/tests/fsdp/wrap/wrap_model.h"
#include "tessera/tests/support/models/transformer_with_shared_params.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

fsdp::WrapPolicy transformer_layers() {
  return fsdp::wrap_types<nn::TransformerEncoderLayer, nn::TransformerDecoderLayer>();
}

/// The records of a step, and its loss's bits.
std::string step_of(RankTest& t, TransformerWithSharedParams& model) {
  model.initialize({.seed = 0});
  const std::vector<Variable> input = model.get_input(default_device(), t.rank());
  ExecutionTrace trace;
  const TraceScope recording(trace);
  const Variable loss = model.get_loss(input, model.call(input));
  model.run_backward(loss);
  return records_text(trace) + fmt::format("loss {:a}\n", loss.item<double>());
}

TESSERA_RANK_TEST("fsdp wrap: the layers of an encoder-decoder, by type", "[fsdp]") {
  const fsdp::FullyShardOptions options = {.mesh = t.world().mesh()};
  const TransformerWithSharedParamsOptions sizes = {.deterministic = true, .dtype = DType::kF64};
  TransformerWithSharedParams by_policy(sizes), by_hand(sizes);
  auto wrapped = fsdp::wrap(by_policy, transformer_layers(), options);
  t.check(wrapped.size() == 4, "wrapped {} layers, expected 2 + 2", wrapped.size());
  fsdp::fully_shard(by_policy, options);
  wrapped.push_back(&by_policy);
  t.check(wrapped == by_policy.groups(), "wrapped {}", names_in(by_policy, wrapped));
  for (nn::Module* group : by_hand.groups()) fsdp::fully_shard(*group, options);
  const std::string left = step_of(t, by_policy), right = step_of(t, by_hand);
  t.check(left == right, "by policy:\n{}\nby hand:\n{}", left, right);
}

TESSERA_RANK_TEST_WITH("fsdp wrap: ignored, the whole transformer stays plain", "[fsdp]",
                       {.worlds = {2}}) {
  TransformerWithSharedParams model({.dtype = DType::kF64});
  const auto wrapped =
      fsdp::wrap(model, transformer_layers(),
                 {.mesh = t.world().mesh(), .ignored_modules = model.get_ignored_modules()});
  t.check(wrapped.empty(), "wrapped {}", names_in(model, wrapped));
}

TESSERA_RANK_TEST("fsdp wrap: a trained model becomes part of another", "[fsdp]") {
  const fsdp::FullyShardOptions options = {.mesh = t.world().mesh()};
  auto inner = std::make_unique<Chain>(ChainOptions{});
  shard_chain(*inner, options);
  nn::initialize(*inner, {.seed = 1});
  const Variable x(random_rows(3, 7, DType::kF64, 1));
  nn::optim::SGD optimizer(inner->parameters(), kSgd);
  backward(sum(square((*inner)(x))));
  optimizer.step();
  optimizer.zero_grad();
  const auto result_of = [&x](auto& module) {
    const NoGradGuard no_grad;
    return module(x).tensor();
  };
  const Tensor before = result_of(*inner);

  nn::Sequential outer;
  Chain& chain = outer.append(std::move(inner));
  t.check(fsdp::wrap(outer, fsdp::wrap_always(), options).empty(), "entered a sharded module");
  fsdp::fully_shard(outer, options);
  t.check_equal(result_of(outer), before, "after wrapping it again");
  t.check(fsdp::of(outer).is_root() && !fsdp::of(chain).is_root(), "the root is another");
  backward(sum(square(outer(x))));
  optimizer.step();
  t.check(fsdp::of(chain).group_name() == "0", "the inner group is called {}",
          fsdp::of(chain).group_name());
}

}  // namespace
}  // namespace tessera::testing
