// A group takes one launch for all that it copies, casts, adds or scales, whatever the number of its
// parameters.

#include <catch2/catch.hpp>

#include <memory>
#include <string>
#include <vector>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/fsdp/fully_shard.h"
#include "tessera/nn/init.h"
#include "tessera/nn/layer.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/layers/norm.h"
#include "tessera/tensor/trace.h"
#include "tessera/tests/fsdp/reference.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

constexpr std::int64_t kFeatures = 6;
constexpr int kUnits = 3;

/// A norm, whose gradients wait to be added, and a layer that writes its own into the slots.
class Unit final : public nn::Layer<Unit> {
 public:
  explicit Unit(DType dtype)
      : norm_({.shape = {kFeatures}, .dtype = dtype}),
        linear_({.in = kFeatures, .out = kFeatures, .dtype = dtype}) {
    register_module("norm", norm_);
    register_module("linear", linear_);
  }
  Variable forward(Variable x) {
    for (int i = 0; i < passes; ++i) x = linear_(norm_(x));
    if (squares_weight) x = x + sum(square(linear_.weight().value()), {1});
    return x;
  }
  int passes = 1;  ///< how often the parameters are used
  /// Uses the weight where its gradient is not written into the slot, but waits.
  bool squares_weight = false;

 private:
  nn::LayerNorm norm_;
  nn::Linear linear_;
};

class Units final : public nn::Layer<Units> {
 public:
  explicit Units(DType dtype) {
    for (int i = 0; i < kUnits; ++i) {
      units_.push_back(std::make_unique<Unit>(dtype));
      register_module(std::to_string(i), *units_.back());
    }
  }
  Variable forward(Variable x) {
    for (const auto& unit : units_) x = (*unit)(x);
    return x;
  }
  const std::vector<std::unique_ptr<Unit>>& units() const { return units_; }

 private:
  std::vector<std::unique_ptr<Unit>> units_;
};

void shard(Units& model, const fsdp::FullyShardOptions& options) {
  for (const auto& unit : model.units()) fsdp::fully_shard(*unit, options);
  fsdp::fully_shard(model, options);
}

/// The launches on `stream` (0: on any) that read one dtype and write another. -1: a tensor has one
/// to itself.
int lists_of(const std::vector<KernelRecord>& kernels, DType from, DType to,
             std::uint64_t stream = 0) {
  int count = 0;
  for (const KernelRecord& kernel : kernels) {
    if (!kernel.name.starts_with("axpby") || kernel.reads.empty()) continue;
    if (stream != 0 && kernel.stream != stream) continue;
    if (kernel.reads.front().dtype != from || kernel.writes.front().dtype != to) continue;
    if (kernel.name == "axpby") return -1;
    ++count;
  }
  return count;
}

TESSERA_RANK_TEST_WITH("launches: one for the casts, sums and results of a group's parameters",
                       "[fsdp]", {.worlds = {1, 2, 3}}) {
  Units model(DType::kF32);
  // Dtypes by which the steps can be told apart.
  shard(model, {.mesh = t.world().mesh(),
                .mixed_precision = {.param_dtype = DType::kF16, .reduce_dtype = DType::kF64}});
  nn::initialize(model, {.seed = 3});
  const Variable x(random_rows(5, kFeatures, DType::kF32, 1));
  const auto step = [&] { backward(sum(cast(model(x), DType::kF32))); };
  step();
  for (nn::Parameter parameter : model.parameters()) parameter.zero_grad();
  ExecutionTrace trace;
  {
    const TraceScope recording(trace);
    step();
  }
  const auto kernels = trace.all<KernelRecord>();
  int gathers = 0;
  std::uint64_t stream = 0;
  for (const CollectiveRecord& record : trace.all<CollectiveRecord>()) {
    if (record.op != "all_gather") continue;
    ++gathers;
    stream = record.stream;
  }
  t.check(gathers >= kUnits, "{} gathers", gathers);
  const int casts = lists_of(kernels, DType::kF32, DType::kF16, stream);
  // One rank has the values of the first step.
  const int expected = t.size() == 1 ? 0 : gathers;
  t.check(casts == expected, "{} launches cast for {} gathers", casts, gathers);
  const int sums = lists_of(kernels, DType::kF16, DType::kF64);
  t.check(sums == kUnits, "{} launches add gradients", sums);
  const int results = lists_of(kernels, DType::kF64, DType::kF32);
  t.check(results == kUnits, "{} launches deliver gradients", results);
}

// The weight's first gradient waits; the next one is written into its slot, and must not be lost or counted
// as the first.
TESSERA_RANK_TEST_WITH("launches: a kernel writes to a slot whose first gradient waits", "[fsdp]",
                       {.worlds = {1, 2, 3}}) {
  Units model(DType::kF64), reference(DType::kF64);
  shard(model, {.mesh = t.world().mesh()});
  for (Units* each : {&model, &reference}) nn::initialize(*each, {.seed = 3});
  const Variable x(random_rows(5, kFeatures, DType::kF64, 1));
  for (const bool last : {false, true}) {
    fsdp::of(model).set_requires_gradient_sync(last);
    for (Units* each : {&model, &reference}) {
      for (const auto& unit : each->units()) {
        unit->passes = last ? 1 : 0;
        unit->squares_weight = !last;
      }
      backward(sum(square((*each)(x))));
    }
  }
  const std::string difference = compare_with_reference(model, reference, 1e-12, true);
  t.check(difference.empty(), "{}", difference);
}

// A gradient that waits comes before those that follow it, in the pass and in later ones.
TESSERA_RANK_TEST_WITH("launches: gradients that wait and gradients in slots add up", "[fsdp]",
                       {.worlds = {1, 2, 3}}) {
  Units model(DType::kF64), reference(DType::kF64);
  shard(model, {.mesh = t.world().mesh()});
  for (Units* each : {&model, &reference}) {
    nn::initialize(*each, {.seed = 3});
    for (const auto& unit : each->units()) unit->passes = 3;
  }
  for (const bool last : {false, true}) {
    fsdp::of(model).set_requires_gradient_sync(last);
    const Variable x(random_rows(5, kFeatures, DType::kF64, last ? 1 : 2));
    for (Units* each : {&model, &reference}) backward(sum(square((*each)(x))));
  }
  const std::string difference = compare_with_reference(model, reference, 1e-12, true);
  t.check(difference.empty(), "{}", difference);
  // What waits is dropped with the rest.
  fsdp::of(model).set_requires_gradient_sync(false);
  const Variable x(random_rows(5, kFeatures, DType::kF64, 4));
  backward(sum(square(model(x))));
  fsdp::of(model).discard_pending_gradients();
  fsdp::of(model).set_requires_gradient_sync(true);
  for (Units* each : {&model, &reference}) {
    for (nn::Parameter parameter : each->parameters()) parameter.zero_grad();
    backward(sum(square((*each)(x))));
  }
  const std::string after = compare_with_reference(model, reference, 1e-12, true);
  t.check(after.empty(), "after dropped gradients: {}", after);
}

}  // namespace
}  // namespace tessera::testing
