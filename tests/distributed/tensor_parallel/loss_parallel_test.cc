// The cross entropy of classes in parts against that of all classes on one rank: every reduction,
// weights, ignored rows, smoothing, uneven and empty parts, dtypes, twice; and what it
// communicates.
#include "tessera/distributed/tensor_parallel/loss_parallel.h"

#include <catch2/catch.hpp>

#include "tessera/autograd/ops/ops.h"
#include "tessera/distributed/mesh/placement.h"
#include "tessera/tensor/ops/create.h"
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
               {{"all_reduce", 3}}, what + " forward");
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
  check_same(t, zeros({0, 9}, {.dtype = DType::kF64}), zeros({0}, {.dtype = DType::kI64}),
             {.reduction = LossReduction::kSum}, "no rows");
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
  refused("16", logits, full({4}, 16, {.dtype = DType::kI64}), {.classes = 16});
  t.check_throws<InvalidArgument>("choose one: mesh[\"tp\"]", [&] {
    const DeviceMesh two({"dp", "tp"}, {1, 2}, t.world().group(), t.world().device());
    parallel_cross_entropy(logits, targets, two, {.classes = 16});
  });
}

}  // namespace
}  // namespace tessera
