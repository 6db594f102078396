// Training the mixture of experts over ranks, in every way that parallelize() offers, with dropout
// and a capacity that drops tokens, compared with the same training on one rank.

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/distributed/mesh/device_mesh.h"
#include "tessera/distributed/mesh/placement.h"
#include "tessera/distributed/parameters/mesh_impl.h"
#include "tessera/fsdp/state/state.h"
#include "tessera/models/nets/mixture_of_experts.h"
#include "tessera/models/parallelize/parallelize.h"
#include "tessera/models/parallelize/parallelize_rules.h"
#include "tessera/models/parallelize/precision.h"
#include "tessera/nn/init.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/mesh/shard_boxes.h"
#include "tessera/nn/optim/sgd.h"
#include "tessera/nn/state/module_state.h"
#include "tessera/nn/training/clip_grad.h"
#include "tessera/nn/training/loss.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tensor/random.h"
#include "tessera/tensor/random_scope.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::models {
namespace {

using distributed::DeviceMesh;
using testing::RankTest;

constexpr testing::Tolerance kTight = {1e-12, 1e-13};
constexpr std::int64_t kBatch = 7, kLength = 6;
constexpr std::uint64_t kSeed = 5;

// Processes are slow, so fewer cases run there.
bool has_threads() { return testing::test_transport() == "local"; }

// The numbers of ranks over which the experts can be divided.
std::vector<int> expert_ranks(const RankTest& t, int least) {
  std::vector<int> counts;
  for (int experts = least; experts <= t.size(); ++experts)
    if (t.size() % experts == 0) counts.push_back(experts);
  return has_threads() ? counts : std::vector<int>{counts[counts.size() / 2]};
}

// Only the first mode if ranks are processes.
template <class Mode>
std::vector<Mode> modes(std::vector<Mode> all) {
  if (!has_threads()) all.resize(1);
  return all;
}

MixtureOfExpertsOptions options_of() {
  return {.layers = 2,
          .vocab_size = 11,
          .max_seq_len = kLength,
          .dim = 16,
          .heads = 4,
          .kv_heads = 2,
          .ffn_dim = 6,
          .experts = 5,
          .capacity_factor = 0.9,
          .balance_loss = 0.05,
          .z_loss = 0.01,
          .dropout = 0.1,
          .dtype = DType::kF64};
}

Tensor batch_of(int step) {
  const Tensor tokens = Tensor::empty({kBatch, kLength + 1}, {.dtype = DType::kI64});
  random::fill_integers(tokens, random::named_key(1, "batch " + std::to_string(step)),
                        random::whole(tokens.shape()), 0, 11);
  return tokens;
}

struct Losses {
  Variable sum;  // of the cross entropies
  Variable auxiliary;
};

// The losses of rows [begin, end).
Losses losses_of(MixtureOfExperts& model, const Tensor& batch, std::int64_t begin,
                 std::int64_t end) {
  const Tensor rows = batch.slice(0, begin, end);
  const LanguageModelResult result = model(Variable(contiguous(rows.narrow(1, 0, kLength))));
  return {.sum = cross_entropy(result.logits, contiguous(rows.narrow(1, 1, kLength)),
                               LossReduction::kSum),
          .auxiliary = result.auxiliary_loss};
}

// A model over ranks, and the same model on this rank alone.
class SideBySide {
 public:
  // `data`: one axis of ranks that share the batch.
  SideBySide(RankTest& t, const DeviceMesh& data)
      : model(options_of()), t_(t), data_(data), reference_(options_of()) {}

  MixtureOfExperts model;

  void train(const std::function<void()>& after_backward = [] {}) {
    nn::initialize(model, {.seed = kSeed});
    nn::initialize(reference_, {.seed = kSeed});
    compare("at the start", false);
    const nn::optim::SgdOptions sgd{.lr = 0.3, .momentum = 0.9};
    nn::optim::SGD model_sgd(model.parameters(), sgd), reference_sgd(reference_.parameters(), sgd);
    for (int step = 1; step <= (has_threads() ? 4 : 2); ++step) {
      run_backward(step);
      after_backward();
      compare(fmt::format("step {}", step), true);
      t_.check_close(nn::grad_norm(model.parameters()), nn::grad_norm(reference_.parameters()),
                     kTight, "norm");
      model_sgd.step();
      reference_sgd.step();
      model_sgd.zero_grad();
      reference_sgd.zero_grad();
    }
    compare("at the end", false);
    const fsdp::FullStateOptions whole{.rank0_only = false, .mesh = t_.world().mesh()};
    compare(fsdp::full_state_dict(model, whole), nn::state_dict(reference_));
    compare(fsdp::full_optimizer_state(model_sgd, whole), reference_sgd.state_dict());
  }

 private:
  void run_backward(int step) {
    const Tensor batch = batch_of(step);
    const auto number = static_cast<std::uint64_t>(step);
    const auto mesh = distributed::make_mesh(data_);
    const distributed::Chunk mine =
        distributed::chunk_of(kBatch, data_.size(), data_.coordinates().front());
    Losses whole, part;
    {
      const random::StepScope scope({.seed = kSeed, .step = number});
      whole = losses_of(reference_, batch, 0, kBatch);
      backward(whole.sum * (1.0 / (kBatch * kLength)) + whole.auxiliary);
    }
    {
      const random::StepScope scope({.seed = kSeed, .step = number, .first_sample = mine.begin});
      part = losses_of(model, batch, mine.begin, mine.end);
      backward(nn::global_mean(part.sum, mine.rows() * kLength, mesh, mesh->axes().front()) +
               part.auxiliary);
    }
    t_.check_close(part.auxiliary.tensor(), whole.auxiliary.tensor(), kTight, "auxiliary loss");
    const Tensor sum = clone(part.sum.tensor());
    mesh->all_reduce(sum, mesh->axes().front(), nn::MeshReduce::kSum);
    t_.check_close(sum, whole.sum.tensor(), kTight, "loss");
  }

  void compare(const std::string& when, bool gradients) {
    const auto mine = model.named_parameters(), references = reference_.named_parameters();
    for (std::size_t i = 0; i < mine.size(); ++i) {
      const nn::Parameter &a = mine[i].parameter, &b = references[i].parameter;
      t_.check(mine[i].name == references[i].name, "{} against {}", mine[i].name,
               references[i].name);
      if (a.local().numel() == 0) continue;
      const std::string what = when + ", " + mine[i].name;
      compare_boxes(a.local().tensor(), a.spec(), b.local().tensor(), what);
      if (gradients) compare_boxes(a.grad(), a.spec(), b.grad(), what + ".grad");
    }
  }

  // Compares full states, as they are saved.
  void compare(const nn::StateDict& state, const nn::StateDict& wanted) {
    t_.check(state.size() == wanted.size(), "{} entries, {} wanted", state.size(), wanted.size());
    for (const auto& [name, value] : wanted) {
      if (!t_.check(state.contains(name), "{} is missing", name)) continue;
      const auto* tensor = std::get_if<Tensor>(&value);
      if (tensor != nullptr) t_.check_close(state.tensor(name), *tensor, kTight, name);
    }
  }

  void compare_boxes(const Tensor& rows, const nn::ShardSpec& spec, const Tensor& whole,
                     const std::string& what) {
    if (!t_.check(rows.defined() && whole.defined(), "{} is missing", what)) return;
    nn::detail::for_each_box(rows, spec, [&](const Tensor& part, const nn::ShardBox& box) {
      Tensor wanted = whole;
      for (int d = 0; d < whole.ndim(); ++d)
        wanted = wanted.narrow(d, box.offset[d], box.extent[d]);
      t_.check_close(contiguous(part), contiguous(wanted), kTight, what);
    });
  }

  RankTest& t_;
  DeviceMesh data_;
  MixtureOfExperts reference_;
};

// Trains with the options of a run over `mesh`, which has one axis or two.
void train(RankTest& t, ParallelizeOptions options) {
  options.precision = precision_named("f64");
  SideBySide both(t, options.mesh.ndim() == 1 ? options.mesh : options.mesh.flatten("all"));
  parallelize(both.model, options);
  both.train();
}

// The axes (copy, expert), and all their ranks as "all".
struct ExpertAxes {
  ExpertAxes(RankTest& t, int experts)
      : mesh({"copy", "expert"}, {t.size() / experts, experts}, t.world().group(),
             t.world().device()),
        all(mesh.flatten("all")) {}
  DeviceMesh mesh, all;
};

TESSERA_RANK_TEST("a mixture of experts on every rank trains as on one", "[models]") {
  for (const ShardMode mode :
       modes<ShardMode>({ShardMode::kFull, ShardMode::kGrad, ShardMode::kReplicate})) {
    const RankTest::NamedCase name(t, shard_mode_names()[static_cast<std::size_t>(mode)]);
    train(t, {.mesh = t.world().mesh(), .shard = mode});
  }
}

TESSERA_RANK_TEST("the same, recomputed", "[models]") {
  for (const RecomputeMode mode :
       modes<RecomputeMode>({RecomputeMode::kSelective, RecomputeMode::kFull})) {
    const RankTest::NamedCase name(t, recompute_mode_names()[static_cast<std::size_t>(mode)]);
    train(t, {.mesh = t.world().mesh(), .recompute = mode});
  }
}

TESSERA_RANK_TEST_WITH("the same, over two axes", "[models]", {.worlds = {4, 6}}) {
  const DeviceMesh mesh({"replicate", "shard"}, {2, t.size() / 2}, t.world().group(),
                        t.world().device());
  train(t, {.mesh = mesh, .shard = ShardMode::kHybrid});
  train(t, {.mesh = mesh, .shard = ShardMode::kHybrid, .expert_mesh = mesh});
}

TESSERA_RANK_TEST_WITH("the same, with heads divided", "[models]", {.worlds = {2, 4}}) {
  const DeviceMesh mesh({"data", "tensor"}, {t.size() / 2, 2}, t.world().group(),
                        t.world().device());
  train(t, {.mesh = mesh["data"], .tensor_mesh = mesh["tensor"]});
}

// 5 experts over 2, 3, 4, 6 and 7 ranks, including ranks without an expert.
TESSERA_RANK_TEST_WITH("experts divided among ranks train as on one", "[models]",
                       {.worlds = {1, 2, 3, 4, 6, 7}}) {
  for (const int experts : expert_ranks(t, 1)) {
    const RankTest::NamedCase name(t, fmt::format("over {} ranks", experts));
    const ExpertAxes axes(t, experts);
    train(t, {.mesh = axes.all, .expert_mesh = axes.mesh});
  }
}

TESSERA_RANK_TEST_WITH("the same in other modes, recomputed", "[models]", {.worlds = {4}}) {
  const ExpertAxes axes(t, 2);
  for (const ShardMode mode : modes<ShardMode>({ShardMode::kReplicate, ShardMode::kGrad})) {
    const RankTest::NamedCase name(t, shard_mode_names()[static_cast<std::size_t>(mode)]);
    train(t, {.mesh = axes.all, .shard = mode, .expert_mesh = axes.mesh});
  }
  for (const RecomputeMode mode :
       modes<RecomputeMode>({RecomputeMode::kSelective, RecomputeMode::kFull})) {
    const RankTest::NamedCase name(t, recompute_mode_names()[static_cast<std::size_t>(mode)]);
    train(t, {.mesh = axes.all, .recompute = mode, .expert_mesh = axes.mesh});
  }
}

TESSERA_RANK_TEST_WITH("the same with queued compute", "[models]",
                       {.worlds = {4}, .cpu_compute = StreamKind::kQueued}) {
  const ExpertAxes axes(t, 2);
  train(t, {.mesh = axes.all, .expert_mesh = axes.mesh});
}

// The test combines gradients by hand.
TESSERA_RANK_TEST_WITH("experts divided among ranks train as on one, not sharded", "[models]",
                       {.worlds = {2, 3, 4, 6}}) {
  for (const int experts : expert_ranks(t, 2)) {
    const ExpertAxes axes(t, experts);
    const auto all = distributed::make_mesh(axes.all);
    const auto copies = distributed::make_mesh(axes.mesh["copy"]);
    SideBySide both(t, axes.all);
    both.model.share_batch(all);
    both.model.split_experts(distributed::make_mesh(axes.mesh["expert"]));
    both.train([&] {
      for (const nn::Parameter& parameter : both.model.parameters()) {
        if (parameter.shape().numel() == 0) continue;
        const bool is_split = !parameter.spec().sharded_axes.empty();
        (is_split ? copies : all)
            ->all_reduce(parameter.grad(), is_split ? "copy" : "all", nn::MeshReduce::kSum);
        div_(parameter.grad(), t.size());
      }
    });
  }
}

TESSERA_RANK_TEST_WITH("meshes that do not fit are refused", "[models]", {.worlds = {4}}) {
  const ExpertAxes axes(t, 2);
  const auto refused = [&](const std::string& text, const ParallelizeOptions& options) {
    MixtureOfExperts model(options_of());
    t.check_throws<InvalidArgument>(text, [&] { parallelize(model, options); });
  };
  refused("a mesh is needed", {});
  refused("it needs two axes, of copies and of experts, over the ranks of mesh",
          {.mesh = axes.all, .expert_mesh = axes.mesh["expert"]});
  refused("it needs two axes, of copies and of experts, over the ranks of mesh",
          {.mesh = axes.mesh["copy"], .expert_mesh = axes.mesh});
  refused("hybrid needs a mesh of 2 axes", {.mesh = axes.all, .shard = ShardMode::kHybrid});
  // Before anything is sharded.
  MixtureOfExperts model(options_of());
  const ParallelizeOptions wrong{.mesh = axes.mesh, .tensor_mesh = axes.mesh["expert"]};
  t.check_throws<InvalidArgument>("full needs a mesh of 1 axes",
                                  [&] { parallelize(model, wrong); });
  for (const nn::NamedParameter& each : model.named_parameters())
    t.check(each.parameter.spec().is_whole(), "{} was cut", each.name);
  nn::Linear block({.in = 2, .out = 2});
  t.check_throws<InvalidArgument>("a Linear has no \"feed_forward\" to recompute", [&] {
    shard_block(block, "feed_forward", {.mesh = axes.all, .recompute = RecomputeMode::kSelective});
  });
}

}  // namespace
}  // namespace tessera::models
