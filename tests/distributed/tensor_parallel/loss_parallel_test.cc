// The cross entropy of classes in parts against that of all classes on one rank: every reduction,
// weights, ignored rows, smoothing, uneven and empty parts, dtypes, twice; and what it
// communicates.
#include "tessera/distributed/tensor_parallel/loss_parallel.h"

#include <cstdint>
#include <limits>

#include <catch2/catch.hpp>

#include "tessera/autograd/ops/ops.h"
#include "tessera/distributed/mesh/placement.h"
#include "tessera/tensor/memory_counters.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tests/distributed/tensor_parallel/tensor_parallel_support.h"

namespace tessera {
namespace {

using namespace distributed;
using namespace testing;

Variable own_classes(RankTest& t, const Tensor& logits) {
  const Chunk mine = chunk_of(logits.dim(-1), t.size(), t.rank());
  return Variable(contiguous(logits.narrow(logits.ndim() - 1, mine.begin, mine.rows())), true);
}

// Value and gradient of both.
void check_same(RankTest& t, const Tensor& logits, const Tensor& targets,
                const CrossEntropyOptions& options, const std::string& what) {
  const DeviceMesh mesh = tp_mesh(t);
  const std::int64_t classes = logits.dim(-1);
  const Variable mine = own_classes(t, logits), all(logits, true);
  Variable split;
  check_counts(t, count_collectives([&] {
                 split = parallel_cross_entropy(mine, targets, mesh,
                                                {.classes = classes, .loss = options});
               }),
               {{"all_reduce", 2}}, what + " forward");
  const Variable whole = cross_entropy(all, targets, options);
  const Tolerance tolerance =
      logits.dtype() == DType::kF64 ? kExact : default_tolerance(logits.dtype());
  t.check_close(split.tensor(), whole.tensor(), tolerance, what + " loss");
  const auto weights = [](const Variable& loss) {
    return cast(Variable(irregular(loss.shape(), 3)), loss.dtype());
  };
  check_counts(t, count_collectives([&] { backward(sum(mul(split, weights(split)))); }), {},
               what + " backward");
  backward(sum(mul(whole, weights(whole))));
  const Chunk chunk = chunk_of(classes, t.size(), t.rank());
  t.check_close(mine.grad(),
                contiguous(all.grad().narrow(logits.ndim() - 1, chunk.begin, chunk.rows())),
                tolerance, what + " gradient");
}

TESSERA_RANK_TEST("the loss of classes in parts is that of all", "[tp]") {
  for (const Shape& shape : {Shape{8, 16}, Shape{8, 12, 16}, Shape{5, 17}, Shape{3, 2}, Shape{7}}) {
    const std::int64_t classes = shape.back();
    const Tensor logits = mul(irregular(shape, 1), 4.0);
    const Tensor targets = indices(shape.without(shape.ndim() - 1), classes, 3);
    for (const LossReduction reduction :
         {LossReduction::kNone, LossReduction::kMean, LossReduction::kSum}) {
      for (const bool weighted : {false, true}) {
        for (const double smoothing : {0.0, 0.2}) {
          check_same(t, logits, targets,
                     {.reduction = reduction,
                      .ignore_index = 1,
                      .label_smoothing = smoothing,
                      .weight = weighted ? add(irregular({classes}, 2), 1.5) : Tensor()},
                     fmt::format("{} {} {} {}", shape.str(), static_cast<int>(reduction), weighted,
                                 smoothing));
        }
      }
    }
  }
}

TESSERA_RANK_TEST("the loss in other dtypes, and of large logits", "[tp]") {
  const Tensor targets = indices({6}, 9, 4);
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    check_same(t, cast(irregular({6, 9}, 1), dtype), targets, {.reduction = LossReduction::kMean},
               dtype_name(dtype));
  }
  check_same(t, mul(irregular({6, 9}, 1), 1e4), cast(targets, DType::kI32), {}, "large");
  // The difference of large logits is known as well as they are.
  const Tensor large = cast(add(mul(irregular({6, 9}, 1), 3.0), 1e4), DType::kF32);
  for (const double smoothing : {0.0, 0.1}) {
    const CrossEntropyOptions options{.reduction = LossReduction::kNone,
                                      .label_smoothing = smoothing};
    const Variable split = parallel_cross_entropy(own_classes(t, large), targets, tp_mesh(t),
                                                  {.classes = 9, .loss = options});
    t.check_close(cast(split.tensor(), DType::kF64),
                  cross_entropy(cast(large, DType::kF64), targets, options), {0, 4e-6},
                  "large f32");
  }
  check_same(t, zeros({0, 9}, {.dtype = DType::kF64}), zeros({0}, {.dtype = DType::kI64}),
             {.reduction = LossReduction::kSum}, "no rows");
}

TESSERA_RANK_TEST("the loss ignores whatever index it is told", "[tp]") {
  const Tensor logits = irregular({6, 5}, 1);
  constexpr auto kLeast = std::numeric_limits<std::int64_t>::min(),
                 kMost = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t ignored :
       {kLeast, std::int64_t{-1}, std::int64_t{2}, std::int64_t{5}, kMost}) {
    const Tensor targets = Tensor::from_vector<std::int64_t>({ignored, 0, 4, ignored, 3, 1}, {6});
    for (const double smoothing : {0.0, 0.3})
      check_same(t, logits, targets,
                 {.reduction = LossReduction::kMean,
                  .ignore_index = ignored,
                  .label_smoothing = smoothing},
                 fmt::format("{} ignored", ignored));
    if (ignored < -1 || ignored > 5) continue;
    check_same(t, logits, cast(targets, DType::kI32), {.ignore_index = ignored}, "i32");
  }
}

TESSERA_RANK_TEST("the loss with class weights of 0 and below", "[tp]") {
  const Tensor weight = Tensor::from_vector<double>({0, -0.5, 2, 0, 1, 0.25, 0}, {7});
  for (const double smoothing : {0.0, 0.3, 1.0})
    check_same(t, irregular({9, 7}, 1), indices({9}, 7, 3),
               {.reduction = LossReduction::kSum, .label_smoothing = smoothing, .weight = weight},
               fmt::format("weights, {}", smoothing));
}

// As a vocabulary that is padded: the last rank may have nothing else.
TESSERA_RANK_TEST("the loss where some logits are infinite", "[tp]") {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const Tensor logits = irregular({5, 11}, 1), targets = indices({5}, 6, 2);
  fill_(logits.slice(1, 6, 11), -kInfinity);
  for (const bool weighted : {false, true}) {
    check_same(t, logits, targets,
               {.reduction = LossReduction::kNone,
                .weight = weighted ? add(irregular({11}, 2), 1.5) : Tensor()},
               "padded");
  }
  const Variable mine = own_classes(t, logits);
  const auto loss = [&](const Tensor& wanted, double smoothing) {
    return parallel_cross_entropy(
               mine, wanted, tp_mesh(t),
               {.classes = 11,
                .loss = {.reduction = LossReduction::kNone, .label_smoothing = smoothing}})
        .tensor();
  };
  t.check_equal(loss(full({5}, 9, {.dtype = DType::kI64}), 0),
                full({5}, kInfinity, logits.options()), "a target that is infinitely unlikely");
  t.check_equal(loss(targets, 0.1), full({5}, kInfinity, logits.options()), "smoothed");
}

TESSERA_RANK_TEST("its gradient is written over the logits that nothing else holds", "[tp]") {
  const Tensor logits = irregular({64, 1100}, 1), targets = indices({64}, 1100, 3);
  const Variable source = own_classes(t, logits);
  const std::int64_t bytes = source.tensor().numel() * 8;
  for (const bool held : {false, true}) {
    Variable made = mul(source, 1.0);
    const Variable loss = parallel_cross_entropy(made, targets, tp_mesh(t), {.classes = 1100});
    if (!held) made = Variable();
    MemoryCounters& memory = current_rank_context()->memory();
    memory.reset_peak();
    const std::int64_t before = memory.current()[MemoryCategory::kActivation];
    backward(loss, {.inputs = {source}});
    const std::int64_t growth = memory.peak()[MemoryCategory::kActivation] - before;
    // The gradient of `source` takes `bytes` in any case.
    t.check((growth > bytes * 3 / 2) == held, "{} bytes beside logits of {}, held {}", growth,
            bytes, held);
  }
}

TESSERA_RANK_TEST("the gradient of its gradient knows what scaled the loss", "[tp]") {
  const Tensor logits = irregular({4, 7}, 1), targets = indices({4}, 7, 4);
  const Variable mine = own_classes(t, logits), all(logits, true);
  const auto of_scale = [](const Variable& loss, const Variable& x, const Variable& scale) {
    const Variable scaled = mul(loss, scale);
    const Variable first = grad({&scaled, 1}, {&x, 1}, {.create_graph = true})[0];
    backward(sum(mul(square(first), first)));
    return scale.grad();
  };
  const Variable one(full({}, 1.5, logits.options()), true),
      other(full({}, 1.5, logits.options()), true);
  const Tensor split =
      of_scale(parallel_cross_entropy(mine, targets, tp_mesh(t), {.classes = 7}), mine, one);
  t.check_close(split, of_scale(cross_entropy(all, targets), all, other), kExact);
}

TESSERA_RANK_TEST("its gradient can be differentiated", "[tp]") {
  const Tensor logits = irregular({4, 7}, 1), targets = indices({4}, 7, 4);
  const Variable mine = own_classes(t, logits), all(logits, true);
  const auto second = [](const Variable& loss, const Variable& x) {
    const Variable first = grad({&loss, 1}, {&x, 1}, {.create_graph = true})[0];
    backward(sum(mul(square(first), first)));
  };
  second(parallel_cross_entropy(mine, targets, tp_mesh(t), {.classes = 7}), mine);
  second(cross_entropy(all, targets), all);
  const Chunk chunk = chunk_of(7, t.size(), t.rank());
  t.check_close(mine.grad(), contiguous(all.grad().narrow(1, chunk.begin, chunk.rows())), kExact);
}

TESSERA_RANK_TEST_WITH("the parallel loss names what is wrong", "[tp]", {.worlds = {2}}) {
  const DeviceMesh mesh = tp_mesh(t);
  const Variable logits(ones({4, 8}));
  const Tensor targets = zeros({4}, {.dtype = DType::kI64});
  const auto refused = [&](const std::string& text, const Variable& x, const Tensor& y,
                           const LossParallelOptions& options) {
    check_refused(t, text, [&] { parallel_cross_entropy(x, y, mesh, options); });
  };
  refused("classes is 0; it is the number of all classes", logits, targets, {});
  refused(fmt::format("expected floating logits [..., 4], rank {}'s part of 8 classes over 2 "
                      "ranks; got f32 [4, 8]: the parts must be of the last dim",
                      t.rank()),
          logits, targets, {.classes = 8});
  refused("expected floating logits", Variable(targets), targets, {.classes = 8});
  refused("needs logits [..., classes] and i64 or i32 targets [...], got [4, 8] and i64 [3]",
          logits, targets.slice(0, 0, 3), {.classes = 16});
  refused("targets [...], got [4, 8] and f32 [4]", logits, ones({4}), {.classes = 16});
  refused("the weight is f32 [8]; it is floating and has all 16 classes", logits, targets,
          {.classes = 16, .loss = {.weight = ones({8})}});
  refused("label_smoothing is 2; it must lie in [0, 1]", logits, targets,
          {.classes = 16, .loss = {.label_smoothing = 2}});
  refused("target 16 in row 0 is outside [0, 16)", logits, full({4}, 16, {.dtype = DType::kI64}),
          {.classes = 16});
  // A rank without classes too.
  refused("target 1 in row 0 is outside [0, 1)", Variable(ones({4, t.rank() == 0 ? 1 : 0})),
          full({4}, 1, {.dtype = DType::kI64}), {.classes = 1});
  t.check_throws<InvalidArgument>("choose one: mesh[\"tp\"]", [&] {
    const DeviceMesh two({"dp", "tp"}, {1, 2}, t.world().group(), t.world().device());
    parallel_cross_entropy(logits, targets, two, {.classes = 16});
  });
}

}  // namespace
}  // namespace tessera
