// Tensor parallel perceptrons: parity with one rank in forward, gradients and training, with uneven
// widths, with the sequence in parts, materialised before or after; what they communicate.
#include <catch2/catch.hpp>

#include "tessera/autograd/grad_mode.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/distributed/tensor_parallel/tensor_parallel.h"
#include "tessera/nn/init.h"
#include "tessera/nn/layers/sequential.h"
#include "tessera/nn/mesh/mesh_ops.h"
#include "tessera/nn/recompute.h"
#include "tessera/tests/distributed/tensor_parallel/tensor_parallel_support.h"
#include "tessera/tests/support/models/mlp.h"

namespace tessera {
namespace {

using namespace distributed;
using namespace testing;

const ParallelPlan kPlan = {{"net1", ColwiseParallel{}}, {"net2", RowwiseParallel{}}};

Variable weighed(const Variable& y) { return sum(mul(y, sin(y))); }

TESSERA_RANK_TEST("MLPModule trains as on one rank, with one all-reduce a step", "[tp]") {
  MLPModule split({.dtype = DType::kF64}), whole({.dtype = DType::kF64});
  parallelize(split, tp_mesh(t), kPlan);
  nn::initialize(split, {.seed = 5});
  nn::initialize(whole, {.seed = 5});
  const References references{split, whole};
  check_same_parameters(t, references, "initialised in parts");
  const Variable x(irregular({8, 10}, 1));
  check_same_training(
      t, references, [&] { return weighed(split(x)); }, [&] { return weighed(whole(x)); },
      {.lr = 0.01});
  Variable y;
  check_counts(t, count_collectives([&] { y = split(x); }), {{"all_reduce", 1}}, "forward");
  check_counts(t, count_collectives([&] { backward(sum(y)); }), {}, "backward");
}

TESSERA_RANK_TEST("MLPModule with rows in parts: two gathers and one reduce-scatter", "[tp]") {
  MLPModule split({.dtype = DType::kF64}), whole({.dtype = DType::kF64});
  parallelize(split, tp_mesh(t),
              {{"net1", ColwiseParallel{.input_layout = Shard{0}}},
               {"net2", RowwiseParallel{.output_layout = Shard{0}}}});
  nn::initialize(split, {.seed = 5});
  nn::initialize(whole, {.seed = 5});
  const Tensor rows = irregular({4 * t.size(), 10}, 1);
  const Variable x(rows), mine(rows.slice(0, 4 * t.rank(), 4 * t.rank() + 4));
  check_same_training(
      t, {split, whole}, [&] { return weighed(split(mine)); }, [&] { return weighed(whole(x)); },
      {.lr = 0.01, .loss_in_parts = true});
  Variable y;
  check_counts(t, count_collectives([&] { y = split(mine); }),
               {{"all_gather", 1}, {"reduce_scatter", 1}}, "forward");
  // Beside the gather of the rows' gradient: net2's bias was added to rows of this rank.
  check_counts(t, count_collectives([&] { backward(sum(y)); }),
               {{"all_gather", 1}, {"all_reduce", 1}}, "backward");
}

TESSERA_RANK_TEST("a materialised model is cut down, gradients too, and infers the same", "[tp]") {
  MLPModule split({.dtype = DType::kF64}), whole({.dtype = DType::kF64});
  nn::initialize(split, {.seed = 5});
  nn::initialize(whole, {.seed = 5});
  const Variable x(irregular({8, 10}, 1));
  backward(weighed(split(x)));
  backward(weighed(whole(x)));
  const auto communicates = count_collectives([&] { parallelize(split, tp_mesh(t), kPlan); });
  check_counts(t, communicates, {}, "parallelize");
  check_same_parameters(t, {split, whole}, "cut");
  check_same_gradients(t, {split, whole}, "cut");
  const NoGradGuard no_grad;
  t.check_close(split(x).tensor(), whole(x).tensor(), kExact, "inference");
  const nn::Parameter weight = split.get_parameter("net1.weight");
  const Chunk chunk = chunk_of(16, t.size(), t.rank());
  t.check(weight.shape() == Shape{chunk.rows(), 10} && weight.local().same_as(weight.value()),
          "net1.weight is {} here", weight.shape().str());
  t.check(weight.spec().global_shape == Shape{16, 10}, "global {}",
          weight.spec().global_shape.str());
}

TESSERA_RANK_TEST("inputs that need gradients get them whole", "[tp]") {
  MLPModule split({.dtype = DType::kF64}), whole({.dtype = DType::kF64});
  parallelize(split, tp_mesh(t),
              {{"net1", ColwiseParallel{.output_layout = Replicate{}}},
               {"net2", RowwiseParallel{.input_layout = Replicate{}, .output_layout = Shard{-2}}},
               {"", PrepareModuleOutput{{LayoutChange{Shard{0}, Replicate{}}}}}});
  nn::initialize(split, {.seed = 5});
  nn::initialize(whole, {.seed = 5});
  const Variable a(irregular({2 * t.size(), 10}, 1), true),
      b(irregular({2 * t.size(), 10}, 1), true);
  const Variable y = split(a), z = whole(b);
  t.check_close(y.tensor(), z.tensor(), kExact, "result");
  backward(weighed(y));
  backward(weighed(z));
  t.check_close(a.grad(), b.grad(), kExact, "gradient of the input");
  check_same_gradients(t, {split, whole}, "all layouts");
}

ParallelPlan stack_plan(bool sequence) {
  const ColwiseParallel up{.use_local_output = false};
  const RowwiseParallel down{.use_local_output = false};
  ParallelPlan plan = {{"?.in_proj", up}, {"0.out_proj", down}, {"1.out_proj", down}};
  plan.push_back(
      {"2.out_proj", sequence ? RowwiseParallel{.output_layout = Shard{1}} : RowwiseParallel{}});
  if (sequence) plan.push_back({"3", SequenceParallel{.sequence_dim = 1}});
  return plan;
}

// 3, 16 and 17 times 3 and 4 over any number of ranks: chunks of several sizes, and empty ones.
TESSERA_RANK_TEST("MLPStack of uneven widths trains as on one rank", "[tp]") {
  for (const std::int64_t dim : {1, 3, 16, 17}) {
    for (const bool recomputed : {false, true}) {
      MLPStack split({.dim = dim, .dtype = DType::kF64}), whole({.dim = dim, .dtype = DType::kF64});
      parallelize(split, tp_mesh(t), stack_plan(false));
      if (recomputed) {
        for (nn::Module* block : split.groups()) nn::recompute(*block);
      }
      nn::initialize(split, {.seed = 2});
      nn::initialize(whole, {.seed = 2});
      const Variable x(irregular({8, dim}, 1));
      check_same_training(
          t, {split, whole}, [&] { return sum(split(x)); }, [&] { return sum(whole(x)); },
          {.steps = 2, .lr = 0.01});
    }
  }
}

TESSERA_RANK_TEST("MLPStack with a norm on parts of the sequence trains as on one rank", "[tp]") {
  for (const std::int64_t dim : {3, 16, 17}) {
    MLPStack split({.dim = dim, .with_seq_parallel = true, .dtype = DType::kF64});
    MLPStack whole({.dim = dim, .with_seq_parallel = true, .dtype = DType::kF64});
    parallelize(split, tp_mesh(t), stack_plan(true));
    nn::initialize(split, {.seed = 2});
    nn::initialize(whole, {.seed = 2});
    const std::int64_t length = 3;
    const Variable x(irregular({2, length * t.size(), dim}, 1));
    const Variable weights(irregular(x.shape(), 4));
    const Variable mine = slice(weights, 1, length * t.rank(), length * (t.rank() + 1));
    check_same_training(
        t, {split, whole}, [&] { return sum(mul(split(x), mine)); },
        [&] { return sum(mul(whole(x), weights)); },
        {.steps = 2, .lr = 0.01, .loss_in_parts = true});
  }
}

TESSERA_RANK_TEST_WITH("MLPStack: an all-reduce for each MLP, and one less in backward", "[tp]",
                       {.worlds = {4}}) {
  MLPStack split({.dim = 16, .dtype = DType::kF64});
  parallelize(split, tp_mesh(t), stack_plan(false));
  nn::initialize(split, {.seed = 2});
  Variable y;
  const Variable x(irregular({8, 16}, 1));
  check_counts(t, count_collectives([&] { y = split(x); }), {{"all_reduce", 3}}, "forward");
  check_counts(t, count_collectives([&] { backward(sum(y)); }), {{"all_reduce", 2}}, "backward");
}

// The result of the first layer is a part of the features. Its layout being remembered, the second
// needs no word about it.
TESSERA_RANK_TEST("a remembered layout goes before input_layout", "[tp]") {
  nn::Sequential split, whole;
  for (nn::Sequential* model : {&split, &whole}) {
    model->add<nn::Linear>({.in = 4, .out = 6 * t.size(), .dtype = DType::kF64});
    model->add<nn::Linear>({.in = 6 * t.size(), .out = 5, .dtype = DType::kF64});
  }
  parallelize(split, tp_mesh(t),
              {{"0", ColwiseParallel{.use_local_output = false}}, {"1", ColwiseParallel{}}});
  nn::initialize(split, {.seed = 2});
  nn::initialize(whole, {.seed = 2});
  const Variable x(irregular({3, 4}, 1));
  const Chunk mine = chunk_of(5, t.size(), t.rank());
  check_same_training(
      t, {split, whole}, [&] { return sum(square(split(x))); },
      [&] { return sum(square(whole(x))); }, {.steps = 2, .lr = 0.01, .loss_in_parts = true});
  t.check_close(split(x).tensor(), slice(whole(x), 1, mine.begin, mine.end).tensor(), kExact,
                "result");
}

}  // namespace
}  // namespace tessera
