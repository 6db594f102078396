// Random models with mixed dtypes: frozen layers of other dtypes, groups of several precisions,
// exempt norms, unused layers, sharded and replicated groups, microbatches. Each equals its
// reference bit for bit.

#include <catch2/catch.hpp>

#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tessera/fsdp/fully_shard.h"
#include "tessera/fsdp/replicate.h"
#include "tessera/nn/init.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/layers/norm.h"
#include "tessera/tests/fsdp/precision/precision_reference.h"
#include "tessera/tests/fsdp/reference.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

struct LayerPlan {
  std::int64_t in = 1, out = 1;
  bool has_norm = false;  ///< after the linear layer
  bool frozen = false;
  bool used = true;  ///< false: in == out, so that it can be left out
  DType stored = DType::kF32;
};
struct GroupPlan {
  std::vector<LayerPlan> layers;
  fsdp::MixedPrecision mixed;
  fsdp::ReshardAfterForward reshard;
  bool replicate = false;
  bool exempts_norms = false;

  /// The reduce dtype if the options do not set it: the widest dtype of trained values.
  DType reduce_dtype() const {
    if (mixed.reduce_dtype) return *mixed.reduce_dtype;
    std::optional<DType> widest;
    const auto count = [&](DType dtype) { widest = widest ? promote(*widest, dtype) : dtype; };
    for (const LayerPlan& layer : layers) {
      if (layer.frozen) continue;
      count(mixed.param_dtype.value_or(layer.stored));
      if (layer.has_norm) count(exempts_norms ? layer.stored : computed(layer.stored));
    }
    return widest.value_or(DType::kF32);
  }
  DType computed(DType stored) const { return mixed.param_dtype.value_or(stored); }
};
struct Program {
  std::vector<GroupPlan> groups;
  std::vector<std::vector<bool>> syncs;  ///< by step and microbatch
  std::int64_t rows = 1;
};

class Dice {
 public:
  explicit Dice(unsigned seed) : engine_(seed) {}
  std::int64_t from(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(high - low + 1));
  }
  bool one_in(int n) { return from(1, n) == 1; }
  template <class T>
  T of(const std::vector<T>& choices) {
    return choices[static_cast<std::size_t>(
        from(0, static_cast<std::int64_t>(choices.size()) - 1))];
  }

 private:
  std::mt19937_64 engine_;
};

GroupPlan random_group(Dice& dice, std::int64_t& width) {
  GroupPlan group;
  const std::int64_t layers = dice.from(1, 3);
  for (std::int64_t i = 0; i < layers; ++i) {
    LayerPlan layer = {.in = width, .out = dice.from(1, 17), .has_norm = dice.one_in(3)};
    layer.frozen = dice.one_in(4);
    layer.used = !dice.one_in(6);
    if (!layer.used) layer.out = layer.in;
    if (layer.frozen) layer.stored = dice.of<DType>({DType::kF32, DType::kF64, DType::kBF16});
    width = layer.out;
    group.layers.push_back(layer);
  }
  using Choice = std::optional<DType>;
  fsdp::MixedPrecision& mixed = group.mixed;
  mixed.param_dtype =
      dice.of<Choice>({{}, {}, DType::kF32, DType::kBF16, DType::kBF16, DType::kF16});
  mixed.reduce_dtype = dice.of<Choice>({{}, {}, DType::kF32, DType::kBF16});
  group.exempts_norms = mixed.param_dtype && dice.one_in(2);
  if (group.exempts_norms) mixed.exempt = fsdp::is_norm;
  if (mixed.param_dtype || mixed.reduce_dtype) mixed.keep_low_precision_gradients = dice.one_in(4);
  group.reshard = dice.of<fsdp::ReshardAfterForward>({{}, true, false});
  group.replicate = dice.one_in(4);
  return group;
}

Program random_program(unsigned seed) {
  Dice dice(seed);
  Program program = {.groups = {}, .syncs = {}, .rows = dice.from(1, 9)};
  std::int64_t width = 7;
  const std::int64_t groups = dice.from(1, 4);
  for (std::int64_t i = 0; i < groups; ++i) program.groups.push_back(random_group(dice, width));
  LayerPlan& first = program.groups.front().layers.front();
  first.frozen = false;  // something is trained
  first.used = true;
  first.stored = DType::kF32;
  for (int step = 0; step < 2; ++step) {
    std::vector<bool> syncs;
    const std::int64_t micro_batches = dice.from(1, 3);
    for (std::int64_t i = 0; i + 1 < micro_batches; ++i) syncs.push_back(dice.one_in(2));
    syncs.push_back(true);
    program.syncs.push_back(std::move(syncs));
  }
  return program;
}

/// A group. `border`: makes the casts of mixed precision by hand, as the reference does.
class Cell final : public nn::Layer<Cell> {
 public:
  Cell(const GroupPlan& plan, bool border) : plan_(plan) {
    if (border) border_ = plan.mixed.param_dtype;
    for (std::size_t i = 0; i < plan.layers.size(); ++i) {
      const LayerPlan& layer = plan.layers[i];
      linears_.push_back(std::make_unique<nn::Linear>(
          nn::LinearOptions{.in = layer.in, .out = layer.out, .dtype = layer.stored}));
      register_module("linear" + std::to_string(i), *linears_.back());
      norms_.push_back(std::make_unique<nn::LayerNorm>(
          nn::LayerNormOptions{.shape = {layer.out}, .dtype = layer.stored}));
      if (layer.has_norm) register_module("norm" + std::to_string(i), *norms_.back());
      if (!layer.frozen) continue;
      for (nn::Parameter& each : linears_.back()->parameters()) each.set_requires_grad(false);
      for (nn::Parameter& each : norms_.back()->parameters()) each.set_requires_grad(false);
    }
  }
  Variable forward(Variable x) {
    if (border_) x = cast(x, *border_);
    for (std::size_t i = 0; i < linears_.size(); ++i) {
      if (!plan_.layers[i].used) continue;
      x = gelu((*linears_[i])(cast(x, linears_[i]->weight().value().dtype())));
      if (!plan_.layers[i].has_norm) continue;
      x = (*norms_[i])(cast(x, norms_[i]->weight().value().dtype()));
      if (border_ && plan_.exempts_norms) x = cast(x, *border_);
    }
    return x;
  }

 private:
  GroupPlan plan_;
  std::optional<DType> border_;
  std::vector<std::unique_ptr<nn::Linear>> linears_;
  std::vector<std::unique_ptr<nn::LayerNorm>> norms_;
};

class Cells final : public nn::Layer<Cells> {
 public:
  Cells(const Program& program, bool border) {
    for (std::size_t i = 0; i < program.groups.size(); ++i) {
      cells_.push_back(std::make_unique<Cell>(program.groups[i], border));
      register_module(std::to_string(i), *cells_.back());
    }
  }
  Variable forward(Variable x) {
    for (const auto& cell : cells_) x = (*cell)(x);
    return x;
  }
  Cell& cell(std::size_t i) { return *cells_[i]; }

 private:
  std::vector<std::unique_ptr<Cell>> cells_;
};

void split(Cells& cells, const Program& program, const distributed::DeviceMesh& mesh) {
  for (std::size_t i = 0; i < program.groups.size(); ++i) {
    const GroupPlan& group = program.groups[i];
    if (group.replicate) {
      fsdp::replicate(cells.cell(i), {.mesh = mesh, .mixed_precision = group.mixed});
    } else {
      fsdp::fully_shard(
          cells.cell(i),
          {.mesh = mesh, .reshard_after_forward = group.reshard, .mixed_precision = group.mixed});
    }
  }
  fsdp::fully_shard(cells, {.mesh = mesh});
}

ReferencePrecision precision_of(const Program& program, const std::string& module) {
  if (module.empty()) return {};
  const GroupPlan& group = program.groups[static_cast<std::size_t>(module.front() - '0')];
  ReferencePrecision precision = {.param = group.mixed.param_dtype.value_or(DType::kF32),
                                  .reduce = group.reduce_dtype(),
                                  .keep = group.mixed.keep_low_precision_gradients};
  if (!group.mixed.param_dtype) {
    precision.exempt = [](const nn::Module&) { return true; };
  } else if (group.exempts_norms) {
    precision.exempt = fsdp::is_norm;
  }
  return precision;
}

void run(RankTest& t, unsigned seed) {
  const Program program = random_program(seed);
  Cells sharded(program, /*border=*/false);
  split(sharded, program, t.world().mesh());
  nn::initialize(sharded, {.seed = seed});
  const auto make = [&] {
    auto cells = std::make_unique<Cells>(program, /*border=*/true);
    nn::initialize(*cells, {.seed = seed});
    return cells;
  };
  const PrecisionOf precision = [&](const std::string& name) {
    return precision_of(program, name);
  };
  PrecisionReference<Cells> reference(make, precision, {.shards = t.size()});
  nn::optim::SGD sharded_sgd(sharded.parameters(), kSgd);
  nn::optim::SGD reference_sgd(reference.master().parameters(), kSgd);
  for (std::size_t step = 0; step < program.syncs.size(); ++step) {
    for (std::size_t micro = 0; micro < program.syncs[step].size(); ++micro) {
      fsdp::of(sharded).set_requires_gradient_sync(program.syncs[step][micro]);
      const auto rows = [&](int rank) {
        return random_rows(program.rows, 7, DType::kF32,
                           1000 * step + 100 * micro + static_cast<std::uint64_t>(rank));
      };
      backward(row_loss(sharded(Variable(rows(t.rank())))));
      for (int rank = 0; rank < t.size(); ++rank) {
        const Variable x(rows(rank));
        reference.run(rank, [&](Cells& cells) { return row_loss(cells(x)); });
      }
      if (program.syncs[step][micro]) reference.reduce();
    }
    const std::string difference = compare_with_reference(sharded, reference.master(), 0, true);
    t.check(difference.empty(), "program {}, step {}: {}", seed, step, difference);
    sharded_sgd.step();
    reference_sgd.step();
    sharded_sgd.zero_grad();
    reference_sgd.zero_grad();
    reference.refresh();
  }
  const std::string difference = compare_with_reference(sharded, reference.master(), 0);
  t.check(difference.empty(), "program {}, at the end: {}", seed, difference);
}

TESSERA_RANK_TEST("mixed precision: random programs equal their reference", "[fsdp]") {
  // Processes are slow, and programs do not depend on the transport.
  const unsigned programs = test_transport() == "local" ? 40 : 5;
  for (unsigned seed = 1; seed <= programs; ++seed) run(t, seed);
}

}  // namespace
}  // namespace tessera::testing
