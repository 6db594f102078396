// The feed-forward part of a mixture of experts over ranks: values, losses and gradients of a split
// batch, with experts on every rank or divided among them, against loops over the whole batch.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/distributed/mesh/device_mesh.h"
#include "tessera/distributed/mesh/placement.h"
#include "tessera/distributed/parameters/mesh_impl.h"
#include "tessera/fsdp/fully_shard.h"
#include "tessera/models/nets/expert_layers.h"
#include "tessera/models/nets/mixture_of_experts.h"
#include "tessera/nn/init.h"
#include "tessera/nn/training/clip_grad.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tensor/random.h"
#include "tessera/tests/models/plain_mixture.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::models {
namespace {

using distributed::DeviceMesh;
using testing::plain_mixture;
using testing::PlainMixture;
using testing::RankTest;

constexpr testing::Tolerance kTight = {1e-12, 1e-12};

MixtureFeedForwardOptions options_of(double capacity_factor) {
  return {.experts = 5,
          .top_k_experts = 2,
          .expert = {.dim = 7, .ffn_dim = 6, .dtype = DType::kF64},
          .capacity_factor = capacity_factor,
          .balance_loss = 0.3,
          .z_loss = 0.2};
}

void start(MixtureFeedForward& model) {
  for (nn::Parameter parameter : model.parameters()) parameter.set_init(nn::init::normal(0, 0.6));
  nn::initialize(model, {.seed = 4});
}

Tensor draw(std::int64_t rows, const char* name) {
  const Tensor x = Tensor::empty({rows, 7}, {.dtype = DType::kF64});
  random::fill_normal(x, random::named_key(5, name), random::whole(x.shape()), 0, 1);
  return x;
}

// The rows of each rank: by the chunk rule, or arbitrary, with ranks that have none.
struct Split {
  std::int64_t begin = 0, end = 0;
};
Split split_of(const RankTest& t, std::int64_t rows, bool even) {
  if (even) {
    const distributed::Chunk chunk = distributed::chunk_of(rows, t.size(), t.rank());
    return {chunk.begin, chunk.end};
  }
  Split split;
  for (int rank = 0; rank <= t.rank(); ++rank) {
    split.begin = split.end;
    split.end = rank + 1 == t.size() ? rows : std::min(rows, split.begin + 3 * ((rank + 1) % 2));
  }
  return split;
}

Tensor rows_of(const Tensor& x, const Split& split) {
  return contiguous(x.slice(0, split.begin, split.end));
}

Tensor tensor_of(const PlainMixture& plain) {
  std::vector<double> values;
  for (const auto& row : plain.output) values.insert(values.end(), row.begin(), row.end());
  return Tensor::from_vector(values, {static_cast<std::int64_t>(plain.output.size()), 7});
}

// A mesh with the axes (copy, expert).
DeviceMesh expert_mesh(RankTest& t, int experts) {
  return DeviceMesh({"copy", "expert"}, {t.size() / experts, experts}, t.world().group(),
                    t.world().device());
}

void share(RankTest& t, MixtureFeedForward& model) {
  model.share_batch({.mesh = distributed::make_mesh(t.world().mesh()), .axis = "data"});
}

// A batch split over ranks, and the same batch on one rank.
struct Halves {
  Halves(RankTest& t, double capacity_factor, const DeviceMesh& mesh)
      : options(options_of(capacity_factor)), model(options), reference(options) {
    share(t, model);
    if (mesh.defined())
      model.split_experts({.mesh = distributed::make_mesh(mesh["expert"]), .axis = "expert"});
    start(model);
    start(reference);
  }
  MixtureFeedForwardOptions options;
  MixtureFeedForward model, reference;
};

void check_values(RankTest& t, Halves& halves, std::int64_t rows, bool even) {
  const Tensor x = draw(rows, "x");
  const Split mine = split_of(t, rows, even);
  const PlainMixture plain = plain_mixture(halves.reference, halves.options, x);
  const MixtureFeedForwardResult result = halves.model(Variable(rows_of(x, mine)));
  t.check_close(result.output.tensor(), rows_of(tensor_of(plain), mine), kTight, "output");
  const double wanted =
      halves.options.balance_loss * plain.balance + halves.options.z_loss * plain.z;
  const double auxiliary = result.auxiliary_loss.item<double>();
  t.check(std::abs(auxiliary - wanted) < 1e-12, "the loss is {}, over the whole batch {}",
          auxiliary, wanted);
}

TESSERA_RANK_TEST("values and losses do not depend on how a batch is split", "[models]") {
  for (const double factor : {0.0, 0.8}) {
    Halves halves(t, factor, {});
    for (const std::int64_t rows : {13, 6, 1}) {
      for (const bool even : {true, false}) {
        const RankTest::NamedCase name(t, fmt::format("{} rows, {}, {}", rows, factor, even));
        check_values(t, halves, rows, even);
      }
    }
  }
}

TESSERA_RANK_TEST_WITH("they do not depend on where the experts are", "[models]",
                       {.worlds = {1, 2, 3, 4, 5, 6, 7}}) {
  for (int experts = 1; experts <= t.size(); ++experts) {
    if (t.size() % experts != 0) continue;
    for (const double factor : {0.0, 0.8}) {
      Halves halves(t, factor, expert_mesh(t, experts));
      for (const bool even : {true, false}) {
        const RankTest::NamedCase name(t, fmt::format("{} ranks, {}, {}", experts, factor, even));
        check_values(t, halves, 13, even);
      }
    }
  }
}

// This rank's elements of the reference's parameter.
Tensor part_of(const Tensor& whole, const nn::Parameter& parameter) {
  const nn::ShardBox& box = parameter.spec().boxes.front();
  Tensor part = whole;
  for (int d = 0; d < whole.ndim(); ++d)
    part = part.slice(d, box.offset[d], box.offset[d] + box.extent[d]);
  return contiguous(part);
}

// The training loss is the mean of the ranks' losses; each of them includes the auxiliary loss.
void check_gradients(RankTest& t, Halves& halves, const DeviceMesh& mesh) {
  const auto all = distributed::make_mesh(t.world().mesh());
  const Tensor x = draw(13, "x"), weights = draw(13, "weights");
  const Split mine = split_of(t, 13, false);
  const Variable whole_x(clone(x), true), my_x(rows_of(x, mine), true);
  const auto whole = halves.reference(whole_x);
  backward(sum(whole.output * Variable(weights)) + whole.auxiliary_loss);
  const auto part = halves.model(my_x);
  const Variable terms = sum(part.output * Variable(rows_of(weights, mine)));
  backward(terms * static_cast<double>(t.size()) + part.auxiliary_loss);
  t.check_close(div(my_x.grad(), t.size()), rows_of(whole_x.grad(), mine), kTight, "x");
  const auto parameters = halves.model.named_parameters();
  const auto references = halves.reference.named_parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const nn::Parameter& parameter = parameters[i].parameter;
    if (parameter.shape().numel() == 0) continue;
    if (!t.check(parameter.grad().defined(), "{} has no gradient", parameters[i].name)) continue;
    const Tensor grad = div(parameter.grad(), t.size());
    const bool is_split = !parameter.spec().sharded_axes.empty();
    if (is_split) {
      distributed::make_mesh(mesh["copy"])->all_reduce(grad, "copy", nn::MeshReduce::kSum);
    } else {
      all->all_reduce(grad, "data", nn::MeshReduce::kSum);
    }
    t.check_close(grad, part_of(references[i].parameter.grad(), parameter), kTight,
                  parameters[i].name);
  }
}

TESSERA_RANK_TEST("gradients are those of the whole batch", "[models]") {
  for (const double factor : {0.0, 0.8}) {
    Halves halves(t, factor, {});
    check_gradients(t, halves, {});
  }
}

TESSERA_RANK_TEST_WITH("gradients of experts on other ranks are those of the whole batch",
                       "[models]", {.worlds = {2, 3, 4, 6, 7}}) {
  for (int experts = 2; experts <= t.size(); ++experts) {
    if (t.size() % experts != 0) continue;
    const DeviceMesh mesh = expert_mesh(t, experts);
    Halves halves(t, 0.8, mesh);
    check_gradients(t, halves, mesh);
  }
}

TESSERA_RANK_TEST_WITH("parameters have one name and value wherever they are", "[models]",
                       {.worlds = {1, 3, 6}}) {
  Halves halves(t, 0, expert_mesh(t, t.size()));
  const auto parameters = halves.model.named_parameters(),
             references = halves.reference.named_parameters();
  std::int64_t elements = 0, whole = 0;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const nn::Parameter& mine = parameters[i].parameter;
    t.check(parameters[i].name == references[i].name, "{} against {}", parameters[i].name,
            references[i].name);
    const Tensor& value = references[i].parameter.local().tensor();
    t.check_equal(mine.local().tensor(), part_of(value, mine), parameters[i].name);
    if (parameters[i].name == "router.weight") continue;
    elements += mine.shape().numel();
    whole += value.numel();
  }
  const Tensor sum = full({}, static_cast<double>(elements), {.dtype = DType::kF64});
  distributed::make_mesh(t.world().mesh())->all_reduce(sum, "data", nn::MeshReduce::kSum);
  t.check(sum.item<double>() == static_cast<double>(whole), "{} elements of experts, {} wanted",
          sum.item<double>(), whole);
}

TESSERA_RANK_TEST_WITH("the norm of all gradients counts every expert once", "[models]",
                       {.worlds = {2, 3, 6}}) {
  Halves halves(t, 0, expert_mesh(t, t.size()));
  for (MixtureFeedForward* model : {&halves.model, &halves.reference}) {
    for (nn::Parameter parameter : model->parameters())
      if (parameter.shape().numel() > 0) parameter.set_grad(clone(parameter.local().tensor()));
  }
  t.check_close(nn::grad_norm(halves.model.parameters()),
                nn::grad_norm(halves.reference.parameters()), kTight, "norm");
}

TESSERA_RANK_TEST_WITH("meshes of several axes, experts that are sharded or split: refused",
                       "[models]", {.worlds = {2}}) {
  const DeviceMesh mesh = expert_mesh(t, 2);
  MixtureOfExperts model(mixture_of_experts_preset("tiny").options);
  t.check_throws<InvalidArgument>("the mesh has the axes copy, expert; name one of them",
                                  [&] { model.share_batch(distributed::make_mesh(mesh)); });
  t.check_throws<InvalidArgument>("the mesh has the axes copy, expert; name one of them",
                                  [&] { model.split_experts(distributed::make_mesh(mesh)); });
  fsdp::fully_shard(model, {.mesh = t.world().mesh()});
  t.check_throws<StateError>("is sharded (group",
                             [&] { model.split_experts(distributed::make_mesh(mesh["expert"])); });
  MixtureOfExperts split(mixture_of_experts_preset("tiny").options);
  split.split_experts(distributed::make_mesh(mesh), "expert");
  t.check_throws<StateError>("the experts are split over 2 ranks already",
                             [&] { split.split_experts(distributed::make_mesh(mesh["expert"])); });
}

}  // namespace
}  // namespace tessera::models
