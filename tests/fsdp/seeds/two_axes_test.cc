// test_train_parity_2d_mlp of PyTorch's FSDP tests: MLPStack with tensor parallelism inside data
// parallelism and recomputation, beside the unsharded reference. Odd widths give uneven shards.

#include <catch2/catch.hpp>

#include "tessera/distributed/parameters/parameters.h"
#include "tessera/distributed/tensor_parallel/tensor_parallel.h"
#include "tessera/fsdp/fully_shard.h"
#include "tessera/fsdp/replicate.h"
#include "tessera/fsdp/testing.h"
#include "tessera/nn/optim/adam.h"
#include "tessera/nn/optim/sgd.h"
#include "tessera/nn/recompute.h"
#include "tessera/tensor/random.h"
#include "tessera/tests/support/fsdp/reference_training.h"
#include "tessera/tests/support/models/mlp.h"
#include "tessera/tests/support/models/test_model.h"
#include "tessera/tests/support/ranks.h"
#include "tessera/tests/support/subtests.h"

namespace tessera::testing {
namespace {

using distributed::ColwiseParallel;
using distributed::DeviceMesh;
using distributed::RowwiseParallel;

// PyTorch's init_replicate_tp_mesh; an axis of one rank is not a special case.
DeviceMesh seeds_mesh(RankTest& t) {
  return DeviceMesh({"replicate", "shard", "tp"}, {t.size() / 2, 1, 2}, t.world().group(),
                    t.world().device());
}

void parallelize(MLPStack& model, const DeviceMesh& mesh, bool replicated, bool recomputed) {
  const ColwiseParallel columns{.use_local_output = false};
  const RowwiseParallel rows{.use_local_output = false};
  distributed::parallelize(model, mesh["tp"],
                           {{"*.in_proj", columns},
                            {"0.out_proj", rows},
                            {"1.out_proj", rows},
                            {"2.out_proj", RowwiseParallel{}}});
  std::vector<nn::Module*> modules = model.groups();
  for (nn::Module* module : modules) {
    if (recomputed) nn::recompute(*module);
  }
  modules.push_back(&model);
  for (nn::Module* module : modules) {
    if (replicated) {
      fsdp::replicate(*module, {.mesh = mesh["replicate"]});
    } else {
      fsdp::fully_shard(*module, {.mesh = mesh.submesh({"replicate", "shard"})});
    }
  }
}

UnshardedReference make_reference(const DeviceMesh& mesh, int dim) {
  using Adapted = AdaptedModel<MLPStack>;
  Adapted::Options options{.model = {.dim = dim, .dtype = DType::kF64}};
  options.call = [](MLPStack& m, const std::vector<Variable>& input) { return m(input.at(0)); };
  auto stack = std::make_unique<Adapted>(options);
  stack->initialize({.seed = 1});
  return {std::move(stack), nullptr, {.group = mesh.group("replicate")}};
}

// Equal on the ranks of a tensor-parallel group.
Variable batch(const DeviceMesh& mesh, int dim, int step) {
  const Tensor x = Tensor::empty({2, 3, dim}, {.dtype = DType::kF64});
  const auto seed = static_cast<std::uint64_t>(100 * mesh.coordinate("replicate") + step);
  random::fill_normal(x, random::named_key(seed, "batch"), random::whole(x.shape()), 0, 1);
  return Variable(x);
}

struct Case {
  int dim;
  bool replicated;
  bool recomputed;
};

template <class Optimizer, class Options>
void train(RankTest& t, const Case& c, const Options& options) {
  const DeviceMesh mesh = seeds_mesh(t);
  UnshardedReference reference = make_reference(mesh, c.dim);
  MLPStack model({.dim = c.dim, .dtype = DType::kF64});
  parallelize(model, mesh, c.replicated, c.recomputed);
  nn::initialize(model, {.seed = 1});
  Optimizer of_reference(reference.root().parameters(), options),
      of_model(model.parameters(), options);
  const int steps = t.size() == 4 ? 10 : 3;  // four ranks are the world size of PyTorch's test
  for (int step = 0; step < steps; ++step) {
    const Variable x = batch(mesh, c.dim, step);
    const Variable expected = reference.loss({x}), actual = sum(model(x));
    t.check_close(actual.tensor(), expected.tensor(), {1e-11, 1e-11}, "the loss");
    reference.run_backward(expected);
    backward(actual);
    const std::string report =
        fsdp::check_sharded_parity(reference.root(), model, {.tolerance = 1e-11});
    t.check(report.empty(), "step {}: {}", step, report);
    of_reference.step();
    of_model.step();
    const auto to = step % 2 == 0 ? nn::optim::ZeroGrad::kNone : nn::optim::ZeroGrad::kZero;
    of_reference.zero_grad();
    of_model.zero_grad(to);
  }
}

TESSERA_RANK_TEST_WITH("seeds: MLPStack over data and tensor parallelism", "[fsdp][seeds]",
                       {.worlds = {2, 4, 6}}) {
  run_subtests(
      t,
      [&](int dim, bool replicated, bool recomputed) {
        const Case c{dim, replicated, recomputed};
        train<nn::optim::SGD>(t, c, nn::optim::SgdOptions{.lr = 0.01, .momentum = 0.9});
        train<nn::optim::Adam>(t, c, nn::optim::AdamOptions{.lr = 0.01});
      },
      axis("dim", {3, 16, 17}), axis("replicated", {false, true}),
      axis("recomputed", {false, true}));
}

// The checks of PyTorch's test_replicate_tp_device_mesh on a replicated layer.
TESSERA_RANK_TEST_WITH("seeds: a replicated layer lies whole over its mesh", "[fsdp][seeds]",
                       {.worlds = {4}}) {
  const DeviceMesh mesh = seeds_mesh(t);
  MLPStack model({.dim = 3});
  nn::Module& layer = model.get_submodule("0");
  fsdp::replicate(layer, {.mesh = mesh["replicate"]});
  for (const nn::Parameter& parameter : layer.parameters()) {
    t.check(distributed::mesh_of(parameter).shape() == std::vector<int>{2}, "another mesh");
    t.check(distributed::str(distributed::placements_of(parameter)) == "[Replicate]",
            "another placement");
  }
}

}  // namespace
}  // namespace tessera::testing
