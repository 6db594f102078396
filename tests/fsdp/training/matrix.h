#pragma once

/// The bundled models after 20 steps, by strategy, accumulation and trained parameters: equal to
/// training on the whole batch within rounding, and bitwise equal to one process that keeps a
/// gradient for each rank.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tessera/fsdp/replicate.h"
#include "tessera/models/nets/mlp_stack.h"
#include "tessera/nn/freeze.h"
#include "tessera/tests/fsdp/training/side_by_side.h"
#include "tessera/tests/fsdp/training/tokens.h"

namespace tessera::testing::matrix {

inline constexpr int kSteps = 20;
/// Rows or sequences per step: uneven over any ranks and passes, some of which have none.
inline constexpr std::int64_t kBatch = 13;

/// One of `parts` parts of the batch.
struct Part {
  int parts = 1;
  int index = 0;
  Tensor of(const Tensor& batch) const { return rows_of_rank(batch, {parts, index}); }
};

struct Mlp {
  using Model = models::MlpStack;
  static constexpr double kF64Tolerance = 1e-13;
  static std::unique_ptr<Model> make(DType dtype) {
    return std::make_unique<Model>(
        models::MlpOptions{.in = 7, .hidden = {13, 9, 6}, .classes = 5, .dtype = dtype});
  }
  static std::vector<nn::Module*> groups(Model& model) {
    std::vector<nn::Module*> out;
    for (int i = 0; i < model.blocks().size(); ++i) out.push_back(&model.blocks().at(i));
    return out;
  }
  static void freeze_some(Model& model) {
    nn::freeze(model, "blocks.0.linear.weight");
    nn::freeze(model, "blocks.2.**");
    nn::freeze(model, "head.bias");
  }
  static Variable loss(Model& model, int step, const Part& part, int ranks) {
    const DType dtype = model.parameters().front().dtype();
    const Tensor x = random_rows(kBatch, 7, dtype, static_cast<std::uint64_t>(step));
    return half_squares(model(Variable(part.of(x))), kBatch, ranks);
  }
};

struct Stack {
  using Model = models::Transformer;
  static constexpr double kF64Tolerance = 1e-12;
  static std::unique_ptr<Model> make(DType dtype) {
    models::ModelArgs args = small_transformer();
    args.dtype = dtype;
    return std::make_unique<Model>(args);
  }
  static std::vector<nn::Module*> groups(Model& model) {
    std::vector<nn::Module*> out;
    for (models::TransformerBlock& block : model.blocks()) out.push_back(&block);
    return out;
  }
  static void freeze_some(Model& model) {
    nn::freeze(model, "layers.0.attention.**");
    nn::freeze(model, "layers.1.*_norm.weight");
    nn::freeze(model, "pos_embeddings.**");
  }
  static Variable loss(Model& model, int step, const Part& part, int ranks) {
    const TokenBatch batch = {.sequences = kBatch, .length = 5, .ranks = {}};
    return token_loss(model(part.of(batch.tokens(step, 0))), part.of(batch.targets(step, 0)),
                      batch.count(), ranks);
  }
};

struct MatrixCase {
  DType dtype = DType::kF64;
  int passes = 1;
  bool frozen = false;
};

template <class Kind>
std::unique_ptr<typename Kind::Model> make_model(const MatrixCase& c) {
  auto model = Kind::make(c.dtype);
  if (c.frozen) Kind::freeze_some(*model);
  return model;
}

/// Steps of SGD; the gradients of the last one are kept.
inline void train(nn::Module& model, const std::function<void(int step)>& make_gradients) {
  nn::optim::SGD sgd(model.parameters(), kSgd);
  for (int step = 0; step < kSteps; ++step) {
    sgd.zero_grad();
    make_gradients(step);
    sgd.step();
  }
}

/// Sends rank 0's parameters and gradients to all ranks.
inline void share(RankTest& t, nn::Module& model) {
  std::vector<Tensor> tensors;
  for (nn::Parameter& parameter : model.parameters()) {
    tensors.push_back(parameter.local().tensor());
    if (!parameter.requires_grad()) continue;
    if (t.rank() != 0) parameter.set_grad(clone(parameter.local().tensor()));
    tensors.push_back(parameter.grad());
  }
  distributed::broadcast(t.group(), tensors, 0, "reference");
}

/// The references for sharded models; rank 0 trains them.
template <class Kind>
struct References {
  References(RankTest& t, const MatrixCase& c)
      : bits(make_model<Kind>(c)), whole(make_model<Kind>(c)) {
    nn::initialize(*bits, {.seed = 3});
    nn::initialize(*whole, {.seed = 3});
    if (t.rank() == 0) {
      OneProcess one({bits.get()}, t.size());
      train(*bits, [&](int step) {
        one.run(c.passes, [&](int rank, int pass) {
          return Kind::loss(*bits, step, {t.size() * c.passes, rank * c.passes + pass}, t.size());
        });
      });
      train(*whole, [&](int step) { backward(Kind::loss(*whole, step, {}, 1)); });
    }
    share(t, *bits);
    share(t, *whole);
  }
  std::unique_ptr<typename Kind::Model> bits, whole;
};

enum class Strategy { kReplicate, kGrad, kFull };
inline constexpr Strategy kStrategies[] = {Strategy::kReplicate, Strategy::kGrad, Strategy::kFull};

template <class Model>
void wrap(RankTest& t, Model& model, const std::vector<nn::Module*>& groups, Strategy strategy) {
  const auto one = [&](nn::Module& module) {
    if (strategy == Strategy::kReplicate) {
      fsdp::replicate(module, {.mesh = t.world().mesh()});
    } else {
      fsdp::fully_shard(
          module, {.mesh = t.world().mesh(), .reshard_after_forward = strategy == Strategy::kFull});
    }
  };
  for (nn::Module* group : groups) one(*group);
  one(model);
}

template <class Kind>
void check_strategy(RankTest& t, const MatrixCase& c, const References<Kind>& references,
                    Strategy strategy) {
  const auto model = make_model<Kind>(c);
  wrap(t, *model, Kind::groups(*model), strategy);
  nn::initialize(*model, {.seed = 3});
  train(*model, [&](int step) {
    for (int pass = 0; pass < c.passes; ++pass) {
      fsdp::of(*model).set_requires_gradient_sync(pass == c.passes - 1);
      const Part mine = {t.size() * c.passes, t.rank() * c.passes + pass};
      backward(Kind::loss(*model, step, mine, t.size()));
    }
  });
  const std::string what =
      fmt::format("strategy {}, {}, {} passes, frozen {}", static_cast<int>(strategy),
                  dtype_name(c.dtype), c.passes, c.frozen);
  const std::string bits = first_difference(*model, *references.bits, 0);
  t.check(bits.empty(), "{}, against one process: {}", what, bits);
  const double tolerance = c.dtype == DType::kF64 ? Kind::kF64Tolerance : 1e-5;
  const std::string whole = first_difference(*model, *references.whole, tolerance);
  t.check(whole.empty(), "{}, against the whole batch: {}", what, whole);
}

template <class Kind>
void check_matrix(RankTest& t, DType dtype) {
  for (const int passes : {1, 4}) {
    for (const bool frozen : {false, true}) {
      const MatrixCase c = {dtype, passes, frozen};
      const References<Kind> references(t, c);
      for (const Strategy strategy : kStrategies) check_strategy(t, c, references, strategy);
    }
  }
}

}  // namespace tessera::testing::matrix
