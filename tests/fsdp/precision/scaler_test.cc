// Loss scaling of sharded models: an infinity on one rank skips the step on all, for any
// placements; f16 from a scale that is too large down to one that fits.

#include "tessera/nn/training/grad_scaler.h"

#include <catch2/catch.hpp>

#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "tessera/distributed/tensor_parallel/tensor_parallel.h"
#include "tessera/fsdp/fully_shard.h"
#include "tessera/fsdp/replicate.h"
#include "tessera/nn/init.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/layers/sequential.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tests/fsdp/precision/precision_reference.h"
#include "tessera/tests/fsdp/reference.h"
#include "tessera/tests/support/collective_records.h"
#include "tessera/tests/support/models/nested.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

using distributed::DeviceMesh;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// This rank's elements of all parameters, or of all gradients.
std::vector<std::vector<float>> values_of(const nn::Module& model, bool gradients) {
  std::vector<std::vector<float>> out;
  for (const nn::Parameter& parameter : model.parameters()) {
    const Tensor x = gradients ? parameter.grad() : parameter.local().tensor();
    out.push_back(x.defined() ? x.to_vector<float>() : std::vector<float>{});
  }
  return out;
}

/// Writes one element on the last rank that has any.
void put_infinity(RankTest& t, nn::Module& model) {
  nn::Parameter parameter = model.parameters().back();
  const std::int64_t mine = parameter.grad().defined() ? parameter.grad().numel() : 0;
  const std::vector<std::string> have = t.gather_text(mine > 0 ? "yes" : "");
  int last = 0;
  for (int rank = 0; rank < t.size(); ++rank) {
    if (!have[static_cast<std::size_t>(rank)].empty()) last = rank;
  }
  if (t.rank() == last) fill_(parameter.grad().view({mine}).slice(0, mine - 1, mine), kInfinity);
}

struct Layout {
  std::string name;
  int axes = 1;  ///< of all meshes together
};

/// Scales by 2, possibly damages one gradient, steps and updates; checks the result.
void check_one_step(RankTest& t, const Layout& layout, nn::Module& model,
                    const std::function<Variable()>& loss) {
  const std::string& name = layout.name;
  nn::optim::SGD optimizer(model.parameters(), kSgd);
  for (const bool spoiled : {false, true, false}) {
    nn::GradScaler scaler({.init_scale = 2});
    optimizer.zero_grad();
    backward(scaler.scale(loss()));
    if (spoiled) put_infinity(t, model);
    const auto scaled = values_of(model, true), before = values_of(model, false);
    const auto records = collectives_of([&] { scaler.unscale(optimizer); });
    t.check(count_of(records, "all_reduce") == layout.axes, "{}: {} all-reduces, expected {}", name,
            count_of(records, "all_reduce"), layout.axes);
    auto expected = scaled;
    for (auto& gradient : expected) {
      for (float& value : gradient) value /= 2;
    }
    t.check(values_of(model, true) == expected, "{}: gradients are not divided by 2", name);
    const std::int64_t steps = optimizer.steps(model.parameters().front());
    const bool stepped = scaler.step(optimizer);
    t.check(stepped != spoiled, "{}, spoiled {}: stepped {}", name, spoiled, stepped);
    t.check(optimizer.steps(model.parameters().front()) == steps + (spoiled ? 0 : 1),
            "{}: the optimizer's count moved", name);
    bool moved = values_of(model, false) != before;
    bool has_elements = false;
    for (const auto& values : before) has_elements = has_elements || !values.empty();
    t.check(moved == (!spoiled && has_elements), "{}, spoiled {}: moved {}", name, spoiled, moved);
    scaler.update();
    t.check(scaler.get_scale() == (spoiled ? 1 : 2), "{}: scale {}", name, scaler.get_scale());
  }
}

/// Two layers; the second has fewer rows than most worlds have ranks.
struct TwoLayers {
  TwoLayers() {
    model.add<nn::Linear>({.in = 4, .out = 4, .bias = false});
    model.add<nn::Linear>({.in = 4, .out = 2, .bias = false});
  }
  Variable loss(int rank) {
    return row_loss(model(Variable(random_rows(3, 4, DType::kF32, 7 + rank))));
  }
  std::vector<nn::Module*> groups() {
    return {model.children()[0].module, model.children()[1].module, &model};
  }
  nn::Sequential model;
};

TESSERA_RANK_TEST("scaler: infinity on one rank leaves the step out on all", "[fsdp]") {
  const DeviceMesh& mesh = t.world().mesh();
  TwoLayers sharded, replicated, mixed;
  for (nn::Module* group : sharded.groups()) fsdp::fully_shard(*group, {.mesh = mesh});
  for (nn::Module* group : replicated.groups()) fsdp::replicate(*group, {.mesh = mesh});
  fsdp::replicate(*mixed.groups()[0], {.mesh = mesh});
  fsdp::fully_shard(mixed.model, {.mesh = mesh});
  for (TwoLayers* layers : {&sharded, &replicated, &mixed}) {
    nn::initialize(layers->model, {.seed = 1});
    check_one_step(t, {"one axis", 1}, layers->model, [&] { return layers->loss(t.rank()); });
  }
}

TESSERA_RANK_TEST_WITH("scaler: the same over two axes", "[fsdp]", {.worlds = {4}}) {
  const auto mesh = [&](const std::string& outer, const std::string& inner) {
    return DeviceMesh({outer, inner}, {2, 2}, t.world().group(), t.world().device());
  };
  const DeviceMesh hybrid = mesh("replica", "shard"), both = mesh("dp", "tp");
  TwoLayers layers, over_all, tensor;
  for (nn::Module* group : layers.groups()) fsdp::fully_shard(*group, {.mesh = hybrid});
  for (nn::Module* group : over_all.groups())
    fsdp::fully_shard(*group, {.mesh = hybrid, .shard_optimizer_over_replicas = true});
  distributed::parallelize(
      tensor.model, both["tp"],
      {{"0", distributed::ColwiseParallel{}}, {"1", distributed::RowwiseParallel{}}});
  for (nn::Module* group : tensor.groups()) fsdp::fully_shard(*group, {.mesh = both["dp"]});
  for (TwoLayers* each : {&layers, &over_all, &tensor}) {
    nn::initialize(each->model, {.seed = 1});
    // Ranks along "tp" have the same rows.
    const int rows = each == &tensor ? both.coordinate("dp") : t.rank();
    check_one_step(t, {"two axes", 2}, each->model, [&] { return each->loss(rows); });
  }
}

TESSERA_RANK_TEST("scaler: ranks without a trainable row agree with the others", "[fsdp]") {
  for (const bool replicate : {false, true}) {
    NonUniformReqGradNWM model;
    for (nn::Module* group : model.groups()) {
      if (replicate) {
        fsdp::replicate(*group, {.mesh = t.world().mesh()});
      } else {
        fsdp::fully_shard(*group, {.mesh = t.world().mesh()});
      }
    }
    if (replicate) {
      fsdp::replicate(model, {.mesh = t.world().mesh()});
    } else {
      fsdp::fully_shard(model, {.mesh = t.world().mesh()});
    }
    model.initialize({.seed = 0});
    const std::vector<Variable> input = model.get_input(default_device(), t.rank());
    nn::optim::SGD optimizer(model.parameters(), kSgd);
    nn::GradScaler scaler({.init_scale = 2048, .growth_interval = 2});
    std::vector<double> scales;
    for (const bool spoiled : {false, true, false, false, true, true}) {
      optimizer.zero_grad();
      backward(scaler.scale(model.get_loss(input, model.call(input))));
      if (spoiled) put_infinity(t, model);
      t.check(scaler.step(optimizer) != spoiled, "spoiled {}", spoiled);
      scaler.update();
      scales.push_back(scaler.get_scale());
    }
    t.check(scales == std::vector<double>{2048, 1024, 1024, 2048, 1024, 512}, "other scales");
  }
}

std::unique_ptr<nn::Sequential> make_layers() {
  auto layers = std::make_unique<nn::Sequential>();
  layers->add<nn::Linear>({.in = 6, .out = 9});
  layers->add<nn::Linear>({.in = 9, .out = 3});
  nn::initialize(*layers, {.seed = 8});
  return layers;
}

TESSERA_RANK_TEST("scaler: f16 finds the scale that the reference finds, and trains alike",
                  "[fsdp]") {
  for (const DType reduce : {DType::kF16, DType::kF32}) {
    const std::unique_ptr<nn::Sequential> sharded = make_layers();
    const fsdp::FullyShardOptions options = {
        .mesh = t.world().mesh(),
        .mixed_precision = {.param_dtype = DType::kF16, .reduce_dtype = reduce}};
    for (const nn::NamedModule& child : sharded->children())
      fsdp::fully_shard(*child.module, options);
    fsdp::fully_shard(*sharded, options);
    PrecisionReference<nn::Sequential> reference(
        make_layers, {.param = DType::kF16, .reduce = reduce}, {.shards = t.size()});
    nn::optim::SGD sharded_sgd(sharded->parameters(), kSgd),
        reference_sgd(reference.master().parameters(), kSgd);
    nn::GradScaler scaler({.init_scale = 1 << 20, .growth_interval = 3}), reference_scaler(scaler);
    int skipped = 0, stepped = 0;
    for (int step = 0; step < 14; ++step) {
      const auto rows = [&](int rank) {
        return random_rows(3, 6, DType::kF32, static_cast<std::uint64_t>(100 * step + rank));
      };
      backward(scaler.scale(row_loss((*sharded)(Variable(rows(t.rank()))))));
      for (int rank = 0; rank < t.size(); ++rank) {
        const Variable x(cast(rows(rank), DType::kF16));
        reference.run(rank, [&](nn::Sequential& model) {
          return reference_scaler.scale(row_loss(model(x)));
        });
      }
      reference.reduce();
      const bool mine = scaler.step(sharded_sgd), its = reference_scaler.step(reference_sgd);
      t.check(mine == its, "step {}: stepped {}, the reference {}", step, mine, its);
      ++(mine ? stepped : skipped);
      scaler.update();
      reference_scaler.update();
      t.check(scaler.get_scale() == reference_scaler.get_scale(), "scales differ");
      const double rounding = test_transport() == "nccl" ? 1e-3 : 0;  // it adds in its own order
      const std::string difference = compare_with_reference(*sharded, reference.master(), rounding);
      t.check(difference.empty(), "step {}: {}", step, difference);
      sharded_sgd.zero_grad();
      reference_sgd.zero_grad();
      reference.refresh();
    }
    t.check(skipped >= 2 && stepped >= 3, "{} steps were left out, {} done", skipped, stepped);
  }
}

}  // namespace
}  // namespace tessera::testing
