// Experts: modules that differ from rank to rank, sharded over a mesh of their own, inside a model
// that is sharded over all ranks.

#include <catch2/catch.hpp>

#include <memory>
#include <string>
#include <vector>

#include "tessera/distributed/parameters/parameters.h"
#include "tessera/tests/fsdp/chain.h"
#include "tessera/tests/fsdp/training/side_by_side.h"
#include "tessera/tests/support/models/nested.h"

namespace tessera::testing {
namespace {

using distributed::DeviceMesh;

constexpr std::int64_t kWidth = 5;
constexpr std::uint64_t kSeed = 3, kExpertSeed = 45;

/// A shared block, this rank's expert, a shared block.
class WithExpert final : public nn::Layer<WithExpert> {
 public:
  WithExpert()
      : before_(kWidth, 7, DType::kF64), expert_(7, 7, DType::kF64), after_(7, 4, DType::kF64) {
    register_module("before", before_);
    register_module("expert", expert_);
    register_module("after", after_);
  }
  Variable forward(const Variable& x) { return after_(expert_(before_(x))); }
  Block& expert() { return expert_; }
  std::vector<nn::Module*> shared() { return {&before_, &after_}; }

 private:
  Block before_, expert_, after_;
};

/// All of it on one rank: rows of a batch go to the expert of the ranks that have them.
class AllExperts final : public nn::Layer<AllExperts> {
 public:
  explicit AllExperts(int experts) : before_(kWidth, 7, DType::kF64), after_(7, 4, DType::kF64) {
    register_module("before", before_);
    for (int i = 0; i < experts; ++i) {
      experts_.push_back(std::make_unique<Block>(7, 7, DType::kF64));
      register_module("expert" + std::to_string(i), *experts_.back());
    }
    register_module("after", after_);
  }
  /// `parts[i]` goes to expert i.
  Variable forward(const std::vector<Variable>& parts) {
    std::vector<Variable> out;
    for (std::size_t i = 0; i < parts.size(); ++i)
      out.push_back(after_((*experts_.at(i))(before_(parts[i]))));
    return cat(out, 0);
  }
  Block& expert(int i) { return *experts_.at(static_cast<std::size_t>(i)); }

 private:
  Block before_, after_;
  std::vector<std::unique_ptr<Block>> experts_;
};

/// Axes (expert, copy): the ranks along "copy" share an expert.
struct ExpertAxes {
  ExpertAxes(RankTest& t, int copies)
      : mesh({"expert", "copy"}, {t.size() / copies, copies}, t.world().group(),
             t.world().device()),
        all(mesh.flatten("data")),
        expert(mesh.coordinate("expert")) {}
  DeviceMesh mesh, all;
  int expert;
  int experts() const { return mesh.size("expert"); }
};

void initialize_experts(WithExpert& model, AllExperts& reference, const ExpertAxes& axes) {
  nn::initialize(model, {.seed = kSeed});
  nn::reinitialize(model.expert(), kExpertSeed + static_cast<std::uint64_t>(axes.expert));
  nn::initialize(reference, {.seed = kSeed});
  for (int i = 0; i < axes.experts(); ++i)
    nn::initialize(reference.expert(i),
                   {.seed = kExpertSeed + static_cast<std::uint64_t>(i), .prefix = "expert."});
}

/// The rows of all ranks that share an expert, concatenated in rank order.
std::vector<Variable> parts_of(const Tensor& batch, const ExpertAxes& axes, int ranks) {
  std::vector<Variable> parts;
  for (int i = 0; i < axes.experts(); ++i) {
    const int copies = ranks / axes.experts();
    const auto first = distributed::chunk_of(batch.dim(0), ranks, i * copies);
    const auto last = distributed::chunk_of(batch.dim(0), ranks, (i + 1) * copies - 1);
    parts.emplace_back(contiguous(batch.slice(0, first.begin, last.end)));
  }
  return parts;
}

std::string expert_difference(WithExpert& model, AllExperts& reference, const ExpertAxes& axes) {
  std::string text = first_difference(model.expert(), reference.expert(axes.expert), 1e-12);
  if (!text.empty()) return "the expert: " + text;
  const std::vector<nn::Module*> shared = model.shared();
  text = first_difference(*shared[0], reference.get_submodule("before"), 1e-12);
  return text.empty() ? first_difference(*shared[1], reference.get_submodule("after"), 1e-12)
                      : text;
}

void shard_experts(WithExpert& model, const ExpertAxes& axes, int ranks) {
  fsdp::fully_shard(model.expert(), {.mesh = axes.mesh["copy"]}).set_gradient_divide_factor(ranks);
  for (nn::Module* block : model.shared()) fsdp::fully_shard(*block, {.mesh = axes.all});
  fsdp::fully_shard(model, {.mesh = axes.all});
}

void train_experts(RankTest& t, int copies) {
  const ExpertAxes axes(t, copies);
  WithExpert model;
  AllExperts reference(axes.experts());
  shard_experts(model, axes, t.size());
  initialize_experts(model, reference, axes);
  nn::optim::SGD model_sgd(model.parameters(), kSgd), reference_sgd(reference.parameters(), kSgd);
  const RowBatch batch = {.rows = 13, .width = kWidth, .ranks = data_rank(t.group())};
  for (int step = 0; step < 4; ++step) {
    backward(half_squares(model(batch.mine(step, 0)), batch.rows, t.size()));
    backward(half_squares(reference(parts_of(batch.all(step, 0), axes, t.size())), batch.rows));
    const std::string difference = expert_difference(model, reference, axes);
    t.check(difference.empty(), "{} copies, step {}: {}", copies, step, difference);
    model_sgd.step();
    reference_sgd.step();
    model_sgd.zero_grad();
    reference_sgd.zero_grad();
  }
}

TESSERA_RANK_TEST("an expert on every rank, over a mesh of this rank alone", "[fsdp]") {
  train_experts(t, 1);
}
TESSERA_RANK_TEST_WITH("experts shared by two ranks", "[fsdp]", {.worlds = {2, 4, 6}}) {
  train_experts(t, 2);
}
TESSERA_RANK_TEST_WITH("experts shared by three ranks, with queued compute", "[fsdp]",
                       {.worlds = {6}, .cpu_compute = StreamKind::kQueued}) {
  train_experts(t, 3);
}

// By default gradients are divided by the number of ranks that reduce them: one for an expert on
// its own rank's mesh.
TESSERA_RANK_TEST_WITH("an expert's gradient is divided by the ranks of its own mesh", "[fsdp]",
                       {.worlds = {2, 4}}) {
  for (const int copies : {1, 2}) {
    const ExpertAxes axes(t, copies);
    const RowBatch batch = {.rows = 13, .width = kWidth, .ranks = data_rank(t.group())};
    std::vector<Tensor> seen;
    for (const bool divided : {false, true}) {
      WithExpert model;
      shard_experts(model, axes, t.size());
      if (!divided) fsdp::of(model.expert()).set_gradient_divide_factor(copies);
      nn::initialize(model, {.seed = kSeed});
      backward(half_squares(model(batch.mine(0, 0)), batch.rows, t.size()));
      seen.push_back(model.expert().parameters().front().grad());
    }
    const Tensor scaled = mul(seen[1], static_cast<double>(axes.experts()));
    t.check_close(seen[0], scaled, {1e-12, 1e-12}, "undivided");
  }
}

TESSERA_RANK_TEST_WITH("experts have other values under one name", "[fsdp]", {.worlds = {4}}) {
  const ExpertAxes axes(t, 2);
  WithExpert model;
  shard_experts(model, axes, t.size());
  nn::initialize(model, {.seed = kSeed});
  nn::reinitialize(model.expert(), kExpertSeed + static_cast<std::uint64_t>(axes.expert));
  const nn::Parameter weight = model.expert().parameters().front();
  t.check(weight.name() == "expert.linear.weight", "the name is {}", weight.name());
  const Tensor mine = distributed::full_copy(weight);
  const Tensor all =
      Tensor::empty(mine.shape().with(0, mine.dim(0) * t.size()), {.dtype = mine.dtype()});
  distributed::all_gather(t.group(), std::span(&mine, 1), std::span(&all, 1), "experts");
  for (int rank = 0; rank < t.size(); ++rank) {
    const Tensor theirs = contiguous(all.slice(0, rank * mine.dim(0), (rank + 1) * mine.dim(0)));
    const bool same = rank / 2 == t.rank() / 2;
    t.check(all_equal(mine, theirs).ok == same, "rank {} has the same expert: {}", rank, !same);
  }
}

// A group of one rank gathers and sends nothing.
TESSERA_RANK_TEST_WITH("an expert of this rank alone does not communicate", "[fsdp]",
                       {.worlds = {2, 3}}) {
  const ExpertAxes axes(t, 1);
  WithExpert model;
  shard_experts(model, axes, t.size());
  nn::initialize(model, {.seed = kSeed});
  const RowBatch batch = {.rows = 13, .width = kWidth, .ranks = data_rank(t.group())};
  const StepTrace trace =
      StepTrace::of(t, [&] { backward(half_squares(model(batch.mine(0, 0)), batch.rows)); });
  for (const char* op : {"all_gather", "reduce_scatter", "all_reduce"}) {
    for (const CollectiveRecord& record : trace.collectives(op))
      t.check(record.label != "expert" || record.bytes_sent == 0, "{} of the expert sends {}", op,
              record.bytes_sent);
  }
}

// The model of PyTorch's FSDP tests, compared with gradients averaged by hand.
TESSERA_RANK_TEST("MixtureOfExperts trains as it does with gradients averaged by hand", "[fsdp]") {
  const auto options = MixtureOfExpertsOptions{.mesh = distributed::make_mesh(t.world().mesh()),
                                               .dtype = DType::kF64};
  MixtureOfExperts sharded(options), plain(options);
  const ExpertAxes axes(t, 1);
  fsdp::fully_shard(sharded.expert(), {.mesh = axes.mesh["copy"]});
  fsdp::fully_shard(sharded.shared(), {.mesh = t.world().mesh()});
  fsdp::fully_shard(sharded, {.mesh = t.world().mesh()});
  sharded.initialize({.seed = 0});
  plain.initialize({.seed = 0});
  nn::optim::SGD sharded_sgd(sharded.parameters(), kSgd), plain_sgd(plain.parameters(), kSgd);
  for (int step = 0; step < 4; ++step) {
    for (MixtureOfExperts* model : {&sharded, &plain}) {
      const auto input = model->get_input(default_device(), t.rank());
      model->run_backward(model->get_loss(input, model->call(input)));
    }
    const std::string difference = first_difference(sharded, plain, 1e-12);
    t.check(difference.empty(), "step {}: {}", step, difference);
    sharded_sgd.step();
    plain_sgd.step();
    sharded_sgd.zero_grad();
    plain_sgd.zero_grad();
  }
}

}  // namespace
}  // namespace tessera::testing
