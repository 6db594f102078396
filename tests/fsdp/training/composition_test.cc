// Sharding together with other features of a model: batch norm, dropout, conversions, autocast.

#include <catch2/catch.hpp>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/autograd/ops/autocast.h"
#include "tessera/distributed/parameters/mesh_impl.h"
#include "tessera/nn/layers/batch_norm.h"
#include "tessera/nn/layers/dropout.h"
#include "tessera/nn/recompute.h"
#include "tessera/tensor/random_scope.h"
#include "tessera/tests/fsdp/chain.h"
#include "tessera/tests/fsdp/training/side_by_side.h"

namespace tessera::testing {
namespace {

struct NormedOptions {
  std::shared_ptr<const nn::Mesh> mesh = nullptr;  ///< ranks of the norm's batch
  double dropout = 0;
  bool recompute = false;
  DType dtype = DType::kF64;
};

/// linear (without a bias, which the norm would cancel), batch norm, gelu, dropout.
class Normed final : public nn::Layer<Normed> {
 public:
  Normed(std::int64_t in, std::int64_t out, const NormedOptions& options)
      : linear_({.in = in, .out = out, .bias = false, .dtype = options.dtype}),
        norm_({.channels = out, .mesh = options.mesh, .dtype = options.dtype}),
        dropout_({.p = options.dropout}) {
    register_module("linear", linear_);
    register_module("norm", norm_);
    register_module("dropout", dropout_);
    if (options.recompute) nn::recompute(*this);
  }
  Variable forward(const Variable& x) { return dropout_(gelu(norm_(linear_(x)))); }

 private:
  nn::Linear linear_;
  nn::BatchNorm1d norm_;
  nn::Dropout dropout_;
};

constexpr std::int64_t kIn = 5;

class NormedChain final : public nn::Layer<NormedChain> {
 public:
  explicit NormedChain(const NormedOptions& options)
      : first_(kIn, 7, options),
        second_(7, 3, options),
        head_({.in = 3, .out = 4, .dtype = options.dtype}) {
    register_module("first", first_);
    register_module("second", second_);
    register_module("head", head_);
  }
  Variable forward(const Variable& x) { return head_(second_(first_(x))); }
  void shard(const fsdp::FullyShardOptions& options) {
    fsdp::fully_shard(first_, options);
    fsdp::fully_shard(second_, options);
    fsdp::fully_shard(*this, options);
  }

 private:
  Normed first_, second_;
  nn::Linear head_;
};

std::string buffer_difference(nn::Module& a, nn::Module& b, double tolerance) {
  const auto left = a.named_buffers(), right = b.named_buffers();
  for (std::size_t i = 0; i < left.size(); ++i) {
    const Tensor x = left[i].buffer.tensor(), y = right[i].buffer.tensor();
    const double error = worst_error(x, y);
    if (error > tolerance) return fmt::format("{} differs by {:.2g}", left[i].name, error);
  }
  return {};
}

// Statistics of each rank's own rows: bitwise equal to one process with a model for each rank.
void train_with_own_statistics(RankTest& t, bool recompute) {
  NormedChain sharded({.recompute = recompute});
  sharded.shard({.mesh = t.world().mesh()});
  nn::initialize(sharded, {.seed = 3});
  nn::optim::SGD sharded_sgd(sharded.parameters(), kSgd);
  std::vector<std::unique_ptr<NormedChain>> models;
  std::vector<std::unique_ptr<nn::optim::SGD>> optimizers;
  std::vector<nn::Module*> pointers;
  for (int rank = 0; rank < t.size(); ++rank) {
    models.push_back(std::make_unique<NormedChain>(NormedOptions{}));
    pointers.push_back(models.back().get());
    nn::initialize(*models.back(), {.seed = 3});
    optimizers.push_back(std::make_unique<nn::optim::SGD>(models.back()->parameters(), kSgd));
  }
  OneProcess one_process(pointers, t.size());
  const std::int64_t rows = 3 * t.size();
  NormedChain& reference = *models[static_cast<std::size_t>(t.rank())];
  for (int step = 0; step < 3; ++step) {
    const auto mine = [&](int rank) {
      return RowBatch{.rows = rows, .width = kIn, .ranks = {t.size(), rank}}.mine(step, 0);
    };
    backward(half_squares(sharded(mine(t.rank())), rows, t.size()));
    one_process.run(1, [&](int rank, int) {
      return half_squares((*models[static_cast<std::size_t>(rank)])(mine(rank)), rows, t.size());
    });
    std::string difference = first_difference(sharded, reference, 0);
    if (difference.empty()) difference = buffer_difference(sharded, reference, 0);
    t.check(difference.empty(), "recompute {}, step {}: {}", recompute, step, difference);
    sharded_sgd.step();
    sharded_sgd.zero_grad();
    for (const auto& optimizer : optimizers) {
      optimizer->step();
      optimizer->zero_grad();
    }
  }
}

TESSERA_RANK_TEST("batch norm with statistics of each rank's rows", "[fsdp]") {
  for (const bool recompute : {false, true}) train_with_own_statistics(t, recompute);
}

TESSERA_RANK_TEST("batch norm with statistics of all ranks' rows", "[fsdp]") {
  for (const bool recompute : {false, true}) {
    NormedChain sharded({.mesh = distributed::make_mesh(t.world().mesh()), .recompute = recompute});
    NormedChain reference({});
    sharded.shard({.mesh = t.world().mesh()});
    initialize_both(sharded, reference);
    train_side_by_side(t, over_rows(fmt::format("recompute {}", recompute), sharded, reference,
                                    {.rows = 13, .width = kIn, .ranks = data_rank(t.group())}));
    const std::string difference = buffer_difference(sharded, reference, 1e-12);
    t.check(difference.empty(), "{}", difference);
  }
}

/// Losses in a step scope of their own: `first_sample` is the first row's position in the whole
/// batch.
auto in_step(const std::function<Variable(int, int)>& loss, std::int64_t first_sample) {
  return [loss, first_sample](int step, int pass) {
    const random::StepScope scope(
        {.seed = 7, .step = static_cast<std::uint64_t>(step), .first_sample = first_sample});
    return loss(step, pass);
  };
}

TESSERA_RANK_TEST("ranks do not change what dropout drops", "[fsdp]") {
  for (const bool recompute : {false, true}) {
    const NormedOptions options = {
        .mesh = distributed::make_mesh(t.world().mesh()), .dropout = 0.3, .recompute = recompute};
    NormedChain sharded(options), reference({.dropout = 0.3});
    sharded.shard({.mesh = t.world().mesh()});
    initialize_both(sharded, reference);
    const RowBatch batch = {.rows = 13, .width = kIn, .ranks = data_rank(t.group())};
    SideBySide run = over_rows(fmt::format("recompute {}", recompute), sharded, reference, batch);
    const auto chunk = distributed::chunk_of(batch.rows, t.size(), t.rank());
    run.sharded_loss = in_step(run.sharded_loss, chunk.begin);
    run.reference_loss = in_step(run.reference_loss, 0);
    train_side_by_side(t, run);
  }
}

/// When a model constructed in f64 is converted to f32.
enum class Converted { kBeforeSharding, kBeforeInitialization, kAfter };

std::vector<Tensor> train_converted(RankTest& t, Converted when) {
  Chain model({});
  const auto to_f32_if = [&](Converted here) {
    if (when == here) model.to(DType::kF32);
  };
  if (when == Converted::kBeforeSharding) nn::initialize(model, {.seed = 3});
  to_f32_if(Converted::kBeforeSharding);
  shard_chain(model, {.mesh = t.world().mesh()});
  to_f32_if(Converted::kBeforeInitialization);
  if (when != Converted::kBeforeSharding) nn::initialize(model, {.seed = 3});
  to_f32_if(Converted::kAfter);
  nn::optim::SGD sgd(model.parameters(), kSgd);
  const RowBatch batch = {.width = 7, .ranks = data_rank(t.group()), .dtype = DType::kF32};
  for (int step = 0; step < 3; ++step) {
    backward(half_squares(model(batch.mine(step, 0)), batch.rows, t.size()));
    sgd.step();
    sgd.zero_grad();
  }
  std::vector<Tensor> out;
  for (const nn::Parameter& parameter : model.parameters())
    out.push_back(clone(parameter.local().tensor()));
  return out;
}

// Except for a few, values drawn in f32 differ from values rounded to f32.
TESSERA_RANK_TEST("a model may be converted before it is sharded and after", "[fsdp]") {
  const std::vector<Tensor> before = train_converted(t, Converted::kBeforeSharding);
  const std::vector<Tensor> after = train_converted(t, Converted::kAfter);
  const std::vector<Tensor> born = train_converted(t, Converted::kBeforeInitialization);
  for (std::size_t i = 0; i < before.size(); ++i) {
    t.check_equal(after[i], before[i], "converted after");
    t.check(born[i].dtype() == DType::kF32 && born[i].shape() == before[i].shape(), "born as {} {}",
            dtype_name(born[i].dtype()), born[i].shape().str());
  }
}

// Matrix products run in bf16. Bitwise equal to one process with a gradient for each rank.
TESSERA_RANK_TEST("autocast inside a sharded model", "[fsdp]") {
  Chain sharded({.dtype = DType::kF32}), reference({.dtype = DType::kF32});
  shard_chain(sharded, {.mesh = t.world().mesh()});
  initialize_both(sharded, reference);
  nn::optim::SGD sharded_sgd(sharded.parameters(), kSgd),
      reference_sgd(reference.parameters(), kSgd);
  OneProcess one_process({&reference}, t.size());
  const auto loss = [&](Chain& model, int step, int rank) {
    const RowBatch batch = {.width = 7, .ranks = {t.size(), rank}, .dtype = DType::kF32};
    const AutocastGuard autocast(DType::kBF16);
    const Variable y = model(batch.mine(step, 0));
    t.check(y.dtype() == DType::kBF16, "autocast was off");
    return half_squares(y, batch.rows, t.size());
  };
  for (int step = 0; step < 4; ++step) {
    backward(loss(sharded, step, t.rank()));
    one_process.run(1, [&](int rank, int) { return loss(reference, step, rank); });
    const std::string difference = first_difference(sharded, reference, 0);
    t.check(difference.empty(), "step {}: {}", step, difference);
    sharded_sgd.step();
    reference_sgd.step();
    sharded_sgd.zero_grad();
    reference_sgd.zero_grad();
  }
}

}  // namespace
}  // namespace tessera::testing
