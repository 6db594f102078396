// Gathers and reductions of a group with odd shapes: values at 128 ranks, parts kept by 8
// neighbours, f32 and f16, with divide factors.

#include <catch2/catch.hpp>

#include <memory>
#include <string>
#include <vector>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/fsdp/fully_shard.h"
#include "tessera/fsdp/runtime/reduction.h"
#include "tessera/nn/init.h"
#include "tessera/nn/layer.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tests/fsdp/reference.h"
#include "tessera/tests/fsdp/schedule/events.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

const std::vector<Shape>& odd_shapes() {
  static const std::vector<Shape> shapes = {Shape{17, 257}, Shape{17},     Shape{64, 312},
                                            Shape{64},      Shape{64, 64}, Shape{512, 64},
                                            Shape{256},     Shape{64, 297}};
  return shapes;
}

/// Parameter i starts with 1000 i, 1000 i + 1, ... in row-major order.
nn::Initializer counting(std::size_t i) {
  return [i](const Tensor& out, random::Key, const random::Box& box) {
    const std::int64_t row = box.global.numel() / box.global[0];
    const double start =
        static_cast<double>(1000 * static_cast<std::int64_t>(i) + box.offset[0] * row);
    copy_(out, add(arange(out.numel(), {.dtype = DType::kF32}), start).view(out.shape()));
  };
}

Holder odd_group() {
  std::vector<nn::ParameterOptions> options;
  for (const Shape& shape : odd_shapes())
    options.push_back({.shape = shape, .init = counting(options.size())});
  return Holder(std::move(options));
}

/// Checks that the open values are the initial values.
void check_values(RankTest& t, const std::string& what, Holder& holder) {
  for (std::size_t i = 0; i < holder.size(); ++i) {
    const Tensor value = holder.at(i).value().tensor();
    const std::vector<float> seen = value.to_vector<float>();
    std::size_t wrong = 0;
    for (std::size_t k = 0; k < seen.size(); ++k)
      wrong += seen[k] == static_cast<float>(1000 * i + k) ? 0U : 1U;
    t.check(wrong == 0 && value.shape() == odd_shapes()[i], "{}: {} elements of p{} {} are wrong",
            what, wrong, i, value.shape().str());
  }
}

/// The number of ranks in another gather.
void check_gather(RankTest& t, const std::string& what, const fsdp::Handle& handle, int ranks,
                  bool async = false) {
  const ExecutionTrace trace = traced(t, [&] { handle.unshard({.async = async}).wait(); });
  const auto records = records_of(trace, "all_gather");
  t.check(records.size() == 1, "{}: {} gathers", what, records.size());
  for (const CollectiveRecord& record : records)
    t.check(record.group_size == ranks, "{}: gathered among {}", what, record.group_size);
}

void check_odd_gathers(RankTest& t, int kept_by) {
  Holder holder = odd_group();
  const fsdp::Handle handle =
      fsdp::fully_shard(holder, {.mesh = t.world().mesh(), .reshard_after_forward = kept_by});
  nn::initialize(holder, {.seed = 1});
  for (const bool async : {false, true}) {
    check_gather(t, "by hand", handle, t.size(), async);
    check_values(t, "by hand", holder);
    handle.reshard();
  }
  holder.inside = [&] { check_values(t, "in forward", holder); };
  const Variable loss = holder(Variable(ones({1})));
  const auto expected =
      kept_by < t.size() ? fsdp::GroupState::kPostForward : fsdp::GroupState::kSharded;
  t.check(handle.state() == expected, "after forward the group is {}",
          fsdp::group_state_name(handle.state()));
  check_gather(t, "after forward", handle, kept_by);
  check_values(t, "after forward", holder);
  backward(loss);
  t.check(handle.state() == fsdp::GroupState::kSharded, "after backward the group is {}",
          fsdp::group_state_name(handle.state()));
}

TESSERA_RANK_TEST_WITH("fsdp collectives: eight odd shapes are gathered over 128 ranks", "[fsdp]",
                       {.worlds = {128}}) {
  check_odd_gathers(t, 128);
  check_odd_gathers(t, 8);
}

TESSERA_RANK_TEST_WITH(
    "fsdp collectives: eight odd shapes are gathered over 128 ranks, compute queued", "[fsdp]",
    ({.worlds = {128}, .cpu_compute = StreamKind::kQueued})) {
  check_odd_gathers(t, 8);
}

/// Every element of every gradient is `expected`.
void check_gradients(RankTest& t, const std::string& what, Holder& holder, double expected) {
  for (std::size_t i = 0; i < holder.size(); ++i) {
    const nn::Parameter& parameter = holder.at(i);
    t.check(parameter.grad().defined() && parameter.grad().shape() == parameter.local().shape(),
            "{}: p{} has no gradient of its shard's shape", what, i);
    if (!parameter.grad().defined()) continue;
    for (const double g : cast(parameter.grad(), DType::kF64).to_vector<double>()) {
      if (!t.check(g == expected, "{}: p{} has a gradient of {}, expected {}", what, i, g,
                   expected))
        break;
    }
  }
}

/// One step in which rank r's gradients are `of_rank(r)`.
template <class OfRank>
void run_step(RankTest& t, Holder& holder, DType dtype, OfRank&& of_rank) {
  const Tensor x = full({1}, of_rank(t.rank()), {.dtype = dtype});
  backward(holder(Variable(x)));
}

TESSERA_RANK_TEST_WITH("fsdp collectives: gradients of eight odd shapes over 128 ranks", "[fsdp]",
                       {.worlds = {128}}) {
  for (const DType dtype : {DType::kF32, DType::kF16}) {
    for (const double factor : {0.0, 1024.0}) {
      Holder holder(zeros_of(odd_shapes(), dtype));
      const fsdp::Handle handle = fsdp::fully_shard(holder, {.mesh = t.world().mesh()});
      if (factor != 0) handle.set_gradient_divide_factor(factor);
      nn::initialize(holder, {.seed = 1});
      run_step(t, holder, dtype, [](int rank) { return rank; });
      // 0 + 1 + ... + 127 is 64 * 127: all intermediate numbers are exact in f16, scaled or not.
      check_gradients(t, fmt::format("{}, factor {}", dtype_name(dtype), factor), holder,
                      64 * 127 / (factor == 0 ? 128 : factor));
    }
  }
}

TEST_CASE("fsdp collectives: how a divide factor is split for f16", "[fsdp]") {
  struct Row {
    double factor, pre, post;
  };
  for (const Row& row : {Row{1, 1, 1}, Row{2, 2, 1}, Row{3, 2, 1.5}, Row{4, 2, 2}, Row{6, 4, 1.5},
                         Row{8, 4, 2}, Row{16, 4, 4}, Row{5, 2, 2.5}}) {
    const fsdp::DivideFactors factors = fsdp::split_divide_factor(row.factor);
    INFO("factor " << row.factor);
    CHECK(factors.pre == row.pre);
    CHECK(factors.post == row.post);
  }
}

TESSERA_RANK_TEST_WITH("fsdp collectives: f16 gradients neither overflow nor vanish", "[fsdp]",
                       {.worlds = {1, 2, 3, 4, 6, 8}}) {
  // In f16 the sum of the large gradients overflows (65504 is the largest number) though their mean
  // does not, and an eighth of the small ones is 0. Therefore a part of the factor is applied
  // before the sum, and the rest after.
  for (const double gradient : {28672.0, 0x1p-22}) {
    Holder holder(zeros_of({{5, 3}, {7}, {1}}, DType::kF16));
    fsdp::fully_shard(holder, {.mesh = t.world().mesh()});
    nn::initialize(holder, {.seed = 1});
    run_step(t, holder, DType::kF16, [&](int) { return gradient; });
    check_gradients(t, gradient > 1 ? "large" : "small", holder, gradient);
  }
}

TESSERA_RANK_TEST("fsdp collectives: the mean is one sum in rank order, scaled once", "[fsdp]") {
  Holder holder(zeros_of({{5, 3}, {7}, {1}}, DType::kF64));
  fsdp::fully_shard(holder, {.mesh = t.world().mesh()});
  nn::initialize(holder, {.seed = 1});
  run_step(t, holder, DType::kF64, [](int rank) { return 0.1 * (rank + 1); });
  double total = 0;
  for (int rank = 0; rank < t.size(); ++rank) total += 0.1 * (rank + 1);
  check_gradients(t, "f64", holder, total * (1.0 / t.size()));
}

}  // namespace
}  // namespace tessera::testing
