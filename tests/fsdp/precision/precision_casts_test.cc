// Casts of mixed precision at a module's boundary: which arguments and results are cast, integers
// are not cast, and gradients have the dtype of the argument.

#include <catch2/catch.hpp>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/grad_mode.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/fsdp/fully_shard.h"
#include "tessera/fsdp/replicate.h"
#include "tessera/nn/init.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tests/fsdp/reference.h"
#include "tessera/tests/support/models/small_models.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

using fsdp::MixedPrecision;

constexpr DType kHalves[] = {DType::kBF16, DType::kF16};

Variable rows(std::int64_t width, DType dtype = DType::kF32) {
  return Variable(random_rows(3, width, dtype, 1));
}

/// The input dtypes of SaveForwardInputsModel and its parts, the model's own first, and the
/// result's.
using Dtypes = std::vector<DType>;
Dtypes seen(SaveForwardInputsModel& model, const Variable& x) {
  const Variable y = model(x);
  backward(sum(cast(y, DType::kF32)));
  return {model.forward_input().dtype(), model.c1().forward_input().dtype(),
          model.c2().forward_input().dtype(), y.dtype()};
}

struct Borders {
  std::string name;
  std::optional<MixedPrecision> c1, c2;  ///< nullopt: not a group of its own
  MixedPrecision root;
  Dtypes expected;
  bool layers_cast = false;  ///< the layers themselves cast to the dtype of their weight
};

void check_borders(RankTest& t, const Borders& b) {
  for (const bool replicate : {false, true}) {
    SaveForwardInputsModel model({.cast_forward_inputs = b.layers_cast});
    const auto split = [&](nn::Module& module, const MixedPrecision& mixed) {
      const distributed::DeviceMesh& mesh = t.world().mesh();
      if (replicate) {
        fsdp::replicate(module, {.mesh = mesh, .mixed_precision = mixed});
      } else {
        fsdp::fully_shard(module, {.mesh = mesh, .mixed_precision = mixed});
      }
    };
    if (b.c1) split(model.c1(), *b.c1);
    if (b.c2) split(model.c2(), *b.c2);
    split(model, b.root);
    nn::initialize(model, {.seed = 1});
    const Dtypes got = seen(model, rows(100));
    std::string text;
    for (const DType dtype : got) text += std::string(dtype_name(dtype)) + " ";
    t.check(got == b.expected, "{}{}: {}", b.name, replicate ? ", replicated" : "", text);
  }
}

TESSERA_RANK_TEST("casts: every group's inputs are cast to its own dtype", "[fsdp]") {
  constexpr DType f32 = DType::kF32;
  for (const DType half : kHalves) {
    const MixedPrecision low = {.param_dtype = half};
    check_borders(t, {"all in one group", {}, {}, low, {half, half, half, half}});
    check_borders(t, {"a group each", low, low, low, {half, half, half, half}});
    check_borders(t, {"the second alone", {}, low, {}, {f32, f32, half, half}});
    check_borders(t, {"the first, which answers f32",
                      MixedPrecision{.param_dtype = half, .output_dtype = f32},
                      MixedPrecision{},
                      {},
                      {f32, half, f32, f32}});
    check_borders(t, {"the root answers f32",
                      low,
                      low,
                      {.param_dtype = half, .output_dtype = f32},
                      {half, half, half, f32}});
    check_borders(t,
                  {"an output dtype alone", {}, {}, {.output_dtype = half}, {f32, f32, f32, half}});
  }
}

TESSERA_RANK_TEST("casts: none of inputs where it is turned off", "[fsdp]") {
  constexpr DType f32 = DType::kF32;
  for (const DType half : kHalves) {
    const MixedPrecision kept = {.param_dtype = half, .cast_forward_inputs = false};
    check_borders(t, {"the second alone", {}, kept, {}, {f32, f32, f32, half}, true});
    check_borders(t, {"the root alone", {}, {}, kept, {f32, f32, half, half}, true});
    check_borders(t, {"the root keeps, the others cast",
                      MixedPrecision{.param_dtype = half},
                      MixedPrecision{.param_dtype = half},
                      kept,
                      {f32, half, half, half}});
  }
}

/// Two inputs; the second comes from outside the calling model.
class TwoInputs final : public nn::Layer<TwoInputs> {
 public:
  TwoInputs() : linear_({.in = 4, .out = 4}) { register_module("linear", linear_); }
  Variable forward(const Variable& x, const Variable& external) {
    dtypes = {x.dtype(), external.dtype()};
    const DType weight = linear_.weight().value().dtype();
    return linear_(add(cast(x, weight), cast(external, weight)));
  }
  Dtypes dtypes;

 private:
  nn::Linear linear_;
};

class WithExternal final : public nn::Layer<WithExternal> {
 public:
  WithExternal() : first_({.in = 4, .out = 4}) {
    register_module("first", first_);
    register_module("inner", inner_);
  }
  Variable forward(const Variable& x) {
    dtype = x.dtype();
    return inner_(first_(x), Variable(full({3, 4}, 2)));
  }
  TwoInputs& inner() { return inner_; }
  DType dtype = DType::kF64;

 private:
  nn::Linear first_;
  TwoInputs inner_;
};

TESSERA_RANK_TEST("casts: an inner group's further inputs as its own option says", "[fsdp]") {
  for (const DType half : kHalves) {
    for (const bool casts : {false, true}) {
      WithExternal model;
      fsdp::fully_shard(model.inner(),
                        {.mesh = t.world().mesh(),
                         .mixed_precision = {.param_dtype = half, .cast_forward_inputs = casts}});
      fsdp::fully_shard(model,
                        {.mesh = t.world().mesh(), .mixed_precision = {.param_dtype = half}});
      nn::initialize(model, {.seed = 1});
      const Variable y = model(rows(4));
      t.check(model.dtype == half, "the root's input is {}", dtype_name(model.dtype));
      t.check(model.inner().dtypes == Dtypes{half, casts ? half : DType::kF32},
              "cast {}: inputs of {} and {}", casts, dtype_name(model.inner().dtypes[0]),
              dtype_name(model.inner().dtypes[1]));
      t.check(y.dtype() == half, "the result is {}", dtype_name(y.dtype()));
      backward(sum(cast(y, DType::kF32)));
    }
  }
}

/// All kinds of arguments.
struct Batch {
  Variable x, index;
  std::vector<Variable> list;
  std::map<std::string, Variable> named;
  std::optional<Variable> maybe;
  Tensor plain;
  template <class F>
  void visit_tensors(F&& f) {
    f(x, index, list, named, maybe, plain);
  }
};

class TakesBatch final : public nn::Layer<TakesBatch> {
 public:
  TakesBatch() : linear_({.in = 4, .out = 4}) { register_module("linear", linear_); }
  Batch forward(Batch batch, bool, const std::vector<Variable>& more) {
    in = {batch.x.dtype(),       batch.index.dtype(),         batch.list[0].dtype(),
          batch.list[1].dtype(), batch.named.at("a").dtype(), batch.maybe->dtype(),
          batch.plain.dtype(),   more.front().dtype()};
    batch.x = linear_(add(batch.x, batch.list[1]));
    batch.maybe.reset();
    return batch;
  }
  Dtypes in;

 private:
  nn::Linear linear_;
};

TESSERA_RANK_TEST("casts: containers and structs are cast inside; whole numbers nowhere",
                  "[fsdp]") {
  TakesBatch model;
  fsdp::fully_shard(
      model, {.mesh = t.world().mesh(),
              .mixed_precision = {.param_dtype = DType::kBF16, .output_dtype = DType::kF64}});
  nn::initialize(model, {.seed = 1});
  const Variable whole(arange(3)), mask(ones({3}, {.dtype = DType::kBool}));
  const Batch batch = {.x = rows(4),
                       .index = whole,
                       .list = {mask, rows(4, DType::kF64)},
                       .named = {{"a", rows(4, DType::kF16)}},
                       .maybe = rows(4),
                       .plain = full({2}, 1)};
  const Batch y = model(batch, true, std::vector{rows(4)});
  constexpr DType low = DType::kBF16;
  t.check(model.in == Dtypes{low, DType::kI64, DType::kBool, low, low, low, DType::kF32, low},
          "arguments were not cast as they should");
  t.check(y.x.dtype() == DType::kF64 && y.named.at("a").dtype() == DType::kF64 &&
              y.list[1].dtype() == DType::kF64,
          "floating results are {}", dtype_name(y.x.dtype()));
  t.check(y.index.dtype() == DType::kI64 && y.list[0].dtype() == DType::kBool &&
              y.plain.dtype() == DType::kF32,
          "others were cast");
  t.check(batch.x.dtype() == DType::kF32, "the caller's own was changed");
  backward(sum(y.x));
}

TESSERA_RANK_TEST("casts: gradients of inputs come back in the dtype given", "[fsdp]") {
  for (const DType given : {DType::kF32, DType::kF64, DType::kBF16}) {
    nn::Linear sharded({.in = 5, .out = 3}), plain({.in = 5, .out = 3});
    fsdp::fully_shard(
        sharded, {.mesh = t.world().mesh(),
                  .mixed_precision = {.param_dtype = DType::kBF16, .output_dtype = DType::kF32}});
    nn::initialize(sharded, {.seed = 1});
    nn::initialize(plain, {.seed = 1});
    plain.to(DType::kBF16);
    const Tensor x = random_rows(3, 5, given, 2);
    const Variable mine(x, true), same(x, true);
    const Variable y = sharded(mine), expected = cast(plain(cast(same, DType::kBF16)), DType::kF32);
    t.check_equal(y.tensor(), expected.tensor(), "result");
    backward(sum(square(y)));
    backward(sum(square(expected)));
    t.check(mine.grad().dtype() == given, "gradient is {}", dtype_name(mine.grad().dtype()));
    t.check_equal(mine.grad(), same.grad(), "gradient");
  }
}

TESSERA_RANK_TEST("casts: also without gradients, and in evaluation", "[fsdp]") {
  SaveForwardInputsModel model;
  fsdp::fully_shard(
      model, {.mesh = t.world().mesh(),
              .mixed_precision = {.param_dtype = DType::kBF16, .output_dtype = DType::kF32}});
  nn::initialize(model, {.seed = 1});
  model.eval();
  const Tensor with = model(rows(100)).tensor();
  const NoGradGuard no_grad;
  const Tensor without = model(rows(100)).tensor();
  t.check(model.c1().forward_input().dtype() == DType::kBF16, "the input was not cast");
  t.check_equal(without, with, "result");
  t.check(with.dtype() == DType::kF32, "the result was not cast");
}

}  // namespace
}  // namespace tessera::testing
