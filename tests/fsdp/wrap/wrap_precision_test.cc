// Policies with mixed precision: batch norms become groups of their own that compute in the stored
// dtype.

#include <catch2/catch.hpp>

#include <memory>
#include <string>
#include <vector>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/fsdp/fully_shard.h"
#include "tessera/fsdp/wrap_policy.h"
#include "tessera/nn/init.h"
#include "tessera/nn/layers/batch_norm.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/layers/sequential.h"
#include "tessera/tests/fsdp/reference.h"
#include "tessera/tests/fsdp/wrap/wrap_model.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

/// Two blocks of a linear layer and a batch norm, and a linear layer: names "0", "0.0", "0.1", ...
std::unique_ptr<nn::Sequential> normed_model() {
  auto model = std::make_unique<nn::Sequential>();
  for (int i = 0; i < 2; ++i) {
    auto& block = model->add<nn::Sequential>();
    block.add<nn::Linear>({.in = 5, .out = 5});
    block.add<nn::BatchNorm1d>({.channels = 5});
  }
  model->add<nn::Linear>({.in = 5, .out = 3});
  return model;
}

fsdp::FullyShardOptions in_bf16(RankTest& t) {
  return {.mesh = t.world().mesh(), .mixed_precision = {.param_dtype = DType::kBF16}};
}

TESSERA_RANK_TEST("fsdp wrap: with mixed precision batch norms are groups without it", "[fsdp]") {
  auto model = normed_model();
  const auto wrapped = fsdp::wrap(*model, fsdp::wrap_types<nn::Sequential>(), in_bf16(t));
  fsdp::fully_shard(*model, in_bf16(t));
  t.check(names_in(*model, wrapped) == "0.1 0 1.1 1", "wrapped {}", names_in(*model, wrapped));
  nn::initialize(*model, {.seed = 1});

  std::vector<DType> weights, results;
  for (const char* name : {"0.0", "0.1", "1.1", "2"}) {
    model->get_submodule(name).register_forward_hook(
        [&](nn::Module& module, const nn::VisitVariables* out) {
          weights.push_back(module.own_parameters()[0].parameter.value().dtype());
          (*out)([&](Variable& result) { results.push_back(result.dtype()); });
        },
        {.first = true});
  }
  backward(sum(square((*model)(Variable(random_rows(4, 5, DType::kF32, 1))))));
  const std::vector<DType> expected = {DType::kBF16, DType::kF32, DType::kF32, DType::kBF16};
  t.check(weights == expected, "weights of another dtype than linear layers bf16 and norms f32");
  // Norms return the dtype of their argument.
  t.check(results == std::vector<DType>(4, DType::kBF16), "a layer answered another dtype");
  for (const char* name : {"0.1.running_mean", "1.1.running_var"}) {
    const Tensor statistics = model->get_buffer(name).tensor();
    t.check(statistics.dtype() == DType::kF32, "{} is {}", name, dtype_name(statistics.dtype()));
  }
  for (const nn::NamedParameter& named : model->named_parameters()) {
    t.check(named.parameter.grad().defined(), "{} has no gradient", named.name);
    t.check(named.parameter.grad().dtype() == DType::kF32, "{}: gradient dtype", named.name);
  }
}

TESSERA_RANK_TEST_WITH("fsdp wrap: when batch norms stay with their parents", "[fsdp]",
                       {.worlds = {2}}) {
  const auto wrapped_with = [&](const fsdp::FullyShardOptions& options,
                                const fsdp::WrapPolicy& policy) {
    auto model = normed_model();
    return names_in(*model, fsdp::wrap(*model, policy, options));
  };
  const fsdp::WrapPolicy blocks = fsdp::wrap_types<nn::Sequential>();
  const std::string plain = wrapped_with({.mesh = t.world().mesh()}, blocks);
  t.check(plain == "0 1", "without mixed precision: {}", plain);

  fsdp::FullyShardOptions exempt = in_bf16(t);
  exempt.mixed_precision.exempt = fsdp::is_norm;
  t.check(wrapped_with(exempt, blocks) == "0 1", "exempt: {}", wrapped_with(exempt, blocks));

  fsdp::FullyShardOptions buffers = {.mesh = t.world().mesh(),
                                     .mixed_precision = {.buffer_dtype = DType::kBF16}};
  t.check(wrapped_with(buffers, blocks) == "0.1 0 1.1 1", "buffers alone: {}",
          wrapped_with(buffers, blocks));
}

TESSERA_RANK_TEST_WITH("fsdp wrap: a policy may have options of its own for a batch norm", "[fsdp]",
                       {.worlds = {2}}) {
  auto model = normed_model();
  const fsdp::WrapPolicy own = fsdp::wrap_if([&](const fsdp::WrapCandidate& c) -> fsdp::WrapAnswer {
    if (c.name == "0.1") return in_bf16(t);
    return false;
  });
  fsdp::wrap(*model, own, in_bf16(t));
  const auto dtype_of = [&](const char* name) {
    return fsdp::of(model->get_submodule(name)).options().mixed_precision.param_dtype;
  };
  t.check(dtype_of("0.1") == DType::kBF16, "the policy's own options were replaced");
  t.check(!dtype_of("1.1").has_value(), "a norm that the policy refused has mixed precision");
}

}  // namespace
}  // namespace tessera::testing
