// Mixed precision and the members of groups: buffers, and parameters of several dtypes.

#include <catch2/catch.hpp>

#include <memory>
#include <vector>

#include "tessera/fsdp/fully_shard.h"
#include "tessera/nn/init.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/state/module_state.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tests/fsdp/precision/precision_reference.h"
#include "tessera/tests/fsdp/reference.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

using fsdp::MixedPrecision;

/// y = W x + table + count, with the buffers cast to the activation's dtype where they are used.
class WithBuffers final : public nn::Layer<WithBuffers> {
 public:
  WithBuffers()
      : linear_({.in = 4, .out = 3}),
        table_({.shape = {3}, .init = nn::init::constant(1.0 / 3)}),
        count_({.shape = {3}, .dtype = DType::kI64, .init = nn::init::constant(2)}) {
    register_module("linear", linear_);
    register_buffer("table", table_);
    register_buffer("count", count_);
  }
  Variable forward(const Variable& x) {
    seen = {table_.tensor().dtype(), count_.tensor().dtype()};
    const Variable y = linear_(x);
    const Tensor shift = add(cast(table_.tensor(), y.dtype()), cast(count_.tensor(), y.dtype()));
    return add(y, Variable(shift));
  }
  nn::Buffer& table() { return table_; }
  std::vector<DType> seen;

 private:
  nn::Linear linear_;
  nn::Buffer table_, count_;
};

class TwoWithBuffers final : public nn::Layer<TwoWithBuffers> {
 public:
  TwoWithBuffers() : last_({.in = 3, .out = 2}) {
    register_module("first", first);
    register_module("last", last_);
    register_module("aside", aside);
  }
  Variable forward(const Variable& x) {
    aside(Variable(full({1, 4}, 1)));
    return last_(first(x));
  }
  WithBuffers first, aside;

 private:
  nn::Linear last_;
};

TESSERA_RANK_TEST(
    "mixed precision: buffers have their dtype inside and the stored one in the state", "[fsdp]") {
  for (const bool inner_casts : {false, true}) {
    TwoWithBuffers model;
    const MixedPrecision low = {.param_dtype = DType::kBF16, .buffer_dtype = DType::kBF16};
    const MixedPrecision params = {.param_dtype = DType::kBF16};
    fsdp::fully_shard(model.first,
                      {.mesh = t.world().mesh(), .mixed_precision = inner_casts ? low : params});
    fsdp::fully_shard(model, {.mesh = t.world().mesh(),
                              .mixed_precision = inner_casts ? params : low,
                              .ignored_modules = {&model.aside}});
    nn::initialize(model, {.seed = 1});
    const Variable x(random_rows(2, 4, DType::kF32, 3));
    backward(row_loss(model(x)));
    const DType expected = inner_casts ? DType::kBF16 : DType::kF32;
    t.check(model.first.seen == std::vector{expected, DType::kI64}, "inside: {} and {}",
            dtype_name(model.first.seen[0]), dtype_name(model.first.seen[1]));
    t.check(model.aside.seen == std::vector{DType::kF32, DType::kI64}, "ignored, but cast");
    const nn::StateDict state = nn::state_dict(model);
    const Tensor& saved = state.tensor("first.table");
    t.check(saved.dtype() == DType::kF32, "saved as {}", dtype_name(saved.dtype()));
    t.check(worst_error(saved, full({3}, 1.0 / 3)) < 4e-3, "other values saved");
    t.check(state.tensor("first.count").dtype() == DType::kI64, "count was cast");
    nn::StateDict changed = state.clone();
    changed.set("first.table", full({3}, 0.75));
    nn::load_state_dict(model, changed);
    t.check_equal(cast(model.first.table().tensor(), DType::kF32), full({3}, 0.75), "loaded");
    t.check_equal(nn::state_dict(model).tensor("first.table"), full({3}, 0.75), "saved again");
    model(x);
    t.check(model.first.seen.front() == expected, "after a load: {}",
            dtype_name(model.first.seen.front()));
  }
}

/// A trained layer, and a frozen one of another dtype.
class MixedGroup final : public nn::Layer<MixedGroup> {
 public:
  explicit MixedGroup(DType frozen)
      : trained_({.in = 7, .out = 5}), frozen_({.in = 5, .out = 3, .dtype = frozen}) {
    register_module("trained", trained_);
    register_module("frozen", frozen_);
    frozen_.weight().set_requires_grad(false);
    frozen_.bias().set_requires_grad(false);
  }
  Variable forward(const Variable& x) {
    const Variable y = trained_(x);
    return frozen_(cast(y, frozen_.weight().value().dtype()));
  }

 private:
  nn::Linear trained_, frozen_;
};

TESSERA_RANK_TEST("mixed precision: a frozen parameter of another dtype in the group", "[fsdp]") {
  for (const DType frozen : {DType::kBF16, DType::kF64}) {
    for (const bool low : {false, true}) {
      MixedPrecision mixed;
      if (low) mixed.param_dtype = DType::kBF16;
      MixedGroup sharded(frozen);
      fsdp::fully_shard(sharded, {.mesh = t.world().mesh(), .mixed_precision = mixed});
      nn::initialize(sharded, {.seed = 2});
      const DType computed = low ? DType::kBF16 : DType::kF32;
      ReferencePrecision precision = {.param = computed, .reduce = computed};
      if (!low) precision.exempt = [](const nn::Module&) { return true; };
      const auto make = [&] {
        auto group = std::make_unique<MixedGroup>(frozen);
        nn::initialize(*group, {.seed = 2});
        return group;
      };
      PrecisionReference<MixedGroup> reference(make, precision, {.shards = t.size()});
      for (int rank = 0; rank < t.size(); ++rank) {
        const auto x = [&](int of) { return random_rows(3, 7, DType::kF32, 20 + of); };
        if (rank == t.rank()) backward(row_loss(sharded(Variable(x(rank)))));
        reference.run(rank, [&](MixedGroup& group) {
          return row_loss(group(Variable(cast(x(rank), computed))));
        });
      }
      reference.reduce();
      const std::string difference = compare_with_reference(sharded, reference.master(), 0, true);
      t.check(difference.empty(), "frozen {}, low {}: {}", dtype_name(frozen), low, difference);
    }
  }
}

TESSERA_RANK_TEST("mixed precision: trained parameters of one group have one dtype", "[fsdp]") {
  MixedGroup model(DType::kF64);
  for (nn::Parameter& parameter : model.parameters()) parameter.set_requires_grad(true);
  t.check_throws<InvalidArgument>("trained.weight", [&] {
    fsdp::fully_shard(model,
                      {.mesh = t.world().mesh(), .mixed_precision = {.param_dtype = DType::kBF16}});
  });
}

}  // namespace
}  // namespace tessera::testing
