// The dtypes of sent tensors under mixed precision, from the trace, and the counts of casts.

#include <catch2/catch.hpp>

#include <set>
#include <span>
#include <string>
#include <vector>

#include "tessera/distributed/collectives.h"
#include "tessera/fsdp/fully_shard.h"
#include "tessera/fsdp/replicate.h"
#include "tessera/nn/init.h"
#include "tessera/tests/fsdp/chain.h"
#include "tessera/tests/fsdp/precision/precision_reference.h"
#include "tessera/tests/fsdp/reference.h"
#include "tessera/tests/support/collective_records.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

using fsdp::MixedPrecision;

std::vector<nn::Module*> groups_of(Chain& chain) {
  std::vector<nn::Module*> groups;
  for (const auto& block : chain.blocks()) groups.push_back(block.get());
  groups.push_back(&chain);
  return groups;
}

struct Travel {
  MixedPrecision mixed;
  DType gathered, reduced;
  bool casts;
};

TESSERA_RANK_TEST("mixed precision: what travels has the dtypes asked for", "[fsdp]") {
  const std::vector<Travel> cases = {
      {{}, DType::kF32, DType::kF32, false},
      {{.param_dtype = DType::kF32}, DType::kF32, DType::kF32, false},
      {{.param_dtype = DType::kBF16}, DType::kBF16, DType::kBF16, true},
      {{.param_dtype = DType::kF16}, DType::kF16, DType::kF16, true},
      {{.param_dtype = DType::kBF16, .reduce_dtype = DType::kF32}, DType::kBF16, DType::kF32, true},
      {{.reduce_dtype = DType::kBF16}, DType::kF32, DType::kBF16, false}};
  for (const Travel& travel : cases) {
    for (const bool replicate : {false, true}) {
      Chain model({.stem = true, .dtype = DType::kF32});
      for (nn::Module* group : groups_of(model)) {
        if (replicate) {
          fsdp::replicate(*group, {.mesh = t.world().mesh(), .mixed_precision = travel.mixed});
        } else {
          fsdp::fully_shard(*group, {.mesh = t.world().mesh(), .mixed_precision = travel.mixed});
        }
      }
      nn::initialize(model, {.seed = 3});
      const Variable x(my_rows(random_rows(5, 7, DType::kF32, 1), t.world()));
      const auto records = collectives_of([&] { backward(row_loss(model(x))); });
      const std::string reduce = replicate ? "all_reduce" : "reduce_scatter";
      // One rank's gradient equals its sum.
      const bool reduces = replicate || t.size() > 1;
      t.check(
          dtypes_of(records, reduce) == (reduces ? std::set{travel.reduced} : std::set<DType>()),
          "not reduced in {}", dtype_name(travel.reduced));
      t.check(count_of(records, reduce) == (reduces ? 4 : 0), "{} reduces",
              count_of(records, reduce));
      for (const CollectiveRecord& record : records)
        t.check(record.op != reduce || record.reduction == "sum", "{}", record.reduction);
      // One rank's value is its shard, unless it is cast.
      const bool gathers = !replicate && (t.size() > 1 || travel.casts);
      t.check(dtypes_of(records, "all_gather") ==
                  (gathers ? std::set{travel.gathered} : std::set<DType>()),
              "not gathered in {}", dtype_name(travel.gathered));
      t.check((fsdp::of(model).copies().cast > 0) == travel.casts, "{} bytes were cast",
              fsdp::of(model).copies().cast);
    }
  }
}

struct Hooked {
  MixedPrecision mixed;
  DType computed, reduced, kept;  ///< kept: of grad()
};

/// The dtypes that hooks have seen.
struct Seen {
  std::set<DType> arguments, results, gathered, scattered, reduced, gradients;
};

void hook_forward(nn::Module& module, Seen& seen) {
  module.register_forward_pre_hook([&seen](nn::Module&, const nn::VisitVariables& arguments) {
    arguments([&](Variable& x) { seen.arguments.insert(x.dtype()); });
  });
  module.register_forward_hook([&seen](nn::Module&, const nn::VisitVariables* results) {
    (*results)([&](Variable& y) { seen.results.insert(y.dtype()); });
  });
}

void hook_communication(nn::Module& module, Seen& seen) {
  const fsdp::Handle handle = fsdp::of(module);
  handle.set_custom_all_gather(
      [&seen](distributed::ProcessGroup& group, std::span<const Tensor> inputs,
              std::span<const Tensor> outputs, const distributed::Label& label) {
        for (const Tensor& input : inputs) seen.gathered.insert(input.dtype());
        distributed::all_gather(group, inputs, outputs, label);
      });
  handle.set_custom_reduce_scatter(
      [&seen](distributed::ProcessGroup& group, std::span<const Tensor> inputs,
              std::span<const Tensor> outputs, const distributed::Label& label) {
        for (const Tensor& input : inputs) seen.scattered.insert(input.dtype());
        distributed::reduce_scatter(group, inputs, outputs, distributed::ReduceOp::kSum, label);
      });
  handle.set_all_reduce_hook([&seen](std::span<const Tensor> tensors) {
    for (const Tensor& tensor : tensors) seen.reduced.insert(tensor.dtype());
  });
}

TESSERA_RANK_TEST_WITH("mixed precision: hooks see values as computed, gradients as reduced",
                       "[fsdp]", {.worlds = {2, 3}}) {
  const std::vector<Hooked> cases = {
      {{}, DType::kF32, DType::kF32, DType::kF32},
      {{.param_dtype = DType::kBF16}, DType::kBF16, DType::kBF16, DType::kF32},
      {{.param_dtype = DType::kBF16, .reduce_dtype = DType::kF32, .output_dtype = DType::kF64},
       DType::kBF16,
       DType::kF32,
       DType::kF32},
      {{.reduce_dtype = DType::kF16}, DType::kF32, DType::kF16, DType::kF32},
      {{.param_dtype = DType::kBF16, .keep_low_precision_gradients = true},
       DType::kBF16,
       DType::kBF16,
       DType::kBF16}};
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const Hooked& c = cases[i];
    Seen seen;
    Chain model({.stem = true, .dtype = DType::kF32});
    for (nn::Module* group : groups_of(model)) {
      hook_forward(*group, seen);
      MixedPrecision mixed = c.mixed;
      if (group != &model) mixed.output_dtype.reset();
      fsdp::fully_shard(*group, {.mesh = t.world().mesh(), .mixed_precision = mixed});
      hook_communication(*group, seen);
    }
    nn::initialize(model, {.seed = 3});
    for (const nn::NamedParameter& named : model.named_parameters()) {
      Variable local = named.parameter.local();
      // By name: a parameter that its own hook holds is never freed.
      local.register_post_accumulate_hook([&seen, &model, name = named.name](const Variable&) {
        seen.gradients.insert(model.get_parameter(name).grad().dtype());
      });
    }
    backward(row_loss(model(Variable(my_rows(random_rows(5, 7, DType::kF32, 1), t.world())))));
    const auto check = [&](const char* what, const std::set<DType>& found, DType expected) {
      t.check(found == std::set{expected}, "case {}: {} {} of {} dtypes, expected {}", i, what,
              found.empty() ? "none" : dtype_name(*found.begin()), found.size(),
              dtype_name(expected));
    };
    check("arguments", seen.arguments, c.computed);
    check("results", seen.results, c.computed);
    check("gathers", seen.gathered, c.computed);
    check("reduce-scatters", seen.scattered, c.reduced);
    check("the all-reduce hook", seen.reduced, c.reduced);
    check("gradients", seen.gradients, c.kept);
  }
}

}  // namespace
}  // namespace tessera::testing
