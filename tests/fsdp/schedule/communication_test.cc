// The collectives of a step: how many, in which groups, with which operation, and how many bytes.

#include <catch2/catch.hpp>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/autograd/engine.h"
#include "tessera/distributed/collectives.h"
#include "tessera/fsdp/fully_shard.h"
#include "tessera/fsdp/replicate.h"
#include "tessera/nn/init.h"
#include "tessera/nn/optim/sgd.h"
#include "tessera/tests/fsdp/reference.h"
#include "tessera/tests/fsdp/schedule/events.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

using fsdp::ReshardAfterForward;
using models::Transformer;

constexpr int kBlocks = 2;
constexpr int kGroups = kBlocks + 1;

std::unique_ptr<Transformer> sharded(RankTest& t, const ReshardAfterForward& blocks,
                                     const ReshardAfterForward& root) {
  auto model = std::make_unique<Transformer>(transformer_args(kBlocks, DType::kF32));
  const distributed::DeviceMesh& mesh = t.world().mesh();
  shard_transformer(*model, {.mesh = mesh, .reshard_after_forward = blocks},
                    {.mesh = mesh, .reshard_after_forward = root});
  nn::initialize(*model, {.seed = 1});
  return model;
}

/// One forward and one backward, with `between` in the middle.
struct Step {
  ExecutionTrace forward, backward;
};
template <class Between>
Step traced_step(RankTest& t, Transformer& model, Between&& between) {
  Variable loss;
  Step out;
  out.forward = traced(t, [&] { loss = local_loss(model(token_rows(2, 16))); });
  between();
  out.backward = traced(t, [&] { backward(loss); });
  return out;
}
Step traced_step(RankTest& t, Transformer& model) {
  return traced_step(t, model, [] {});
}

/// Checks for one gather per group in forward, `backward_gathers` in backward, one reduction per
/// group.
void check_step(RankTest& t, const std::string& what, const Step& step, int backward_gathers) {
  check_counts(t, what + ", forward", step.forward, unless_alone(t, {.all_gather = kGroups}));
  check_counts(t, what + ", backward", step.backward,
               unless_alone(t, {.all_gather = backward_gathers, .reduce_scatter = kGroups}));
}

TESSERA_RANK_TEST_WITH("fsdp counts: collectives of a step for each reshard_after_forward",
                       "[fsdp]", {.worlds = {1, 2, 3, 4, 5, 6}}) {
  struct Row {
    const char* name;
    ReshardAfterForward value;
    int backward_gathers;
  };
  std::vector<Row> rows = {
      {"unset", {}, kGroups - 1}, {"true", true, kGroups}, {"false", false, 0}};
  // For 4 and 6 ranks 1/n of the values is kept, and backward gathers among two ranks.
  const int part = t.size() % 2 == 0 ? 2 : t.size();
  if (t.size() > 1) rows.push_back({"number", part, kGroups});
  for (const Row& row : rows) {
    const auto model = sharded(t, row.value, row.value);
    for (int round = 0; round < 3; ++round) {
      const Step step = traced_step(t, *model);
      check_step(t, fmt::format("reshard {}, round {}", row.name, round), step,
                 row.backward_gathers);
      const int among = row.value.ranks() ? part : t.size();
      for (const CollectiveRecord& record : records_of(step.backward, "all_gather"))
        t.check(record.group_size == among, "reshard {}: {} is gathered among {} in backward",
                row.name, record.label, record.group_size);
    }
  }
}

TESSERA_RANK_TEST("fsdp counts: set_reshard_after_forward, with and without recursion", "[fsdp]") {
  struct Row {
    std::optional<bool> set;  ///< for a model whose blocks were built with the opposite
    bool recurse;
    int backward_gathers;
  };
  for (const Row& row : {Row{true, true, kGroups}, Row{true, false, 1}, Row{false, true, 0},
                         Row{false, false, kBlocks}, Row{std::nullopt, true, kBlocks}}) {
    const auto model = sharded(t, !row.set.value_or(false), {});
    if (row.set) fsdp::of(*model).set_reshard_after_forward(*row.set, {.recurse = row.recurse});
    for (int round = 0; round < 2; ++round) {
      const std::string what = fmt::format(
          "set {}, recurse {}", row.set ? *row.set ? "true" : "false" : "not at all", row.recurse);
      check_step(t, what, traced_step(t, *model), row.backward_gathers);
    }
  }
}

TESSERA_RANK_TEST("fsdp counts: reshard() by hand between forward and backward", "[fsdp]") {
  const auto model = sharded(t, false, false);
  for (int round = 0; round < 2; ++round) {
    const Step step = traced_step(t, *model, [&] {
      for (nn::Module* module : fsdp::sharded_modules(*model)) {
        fsdp::of(*module).reshard();
        fsdp::of(*module).reshard();  // nothing is left to do
        const auto state = fsdp::of(*module).state();
        t.check(state == fsdp::GroupState::kSharded, "after reshard() {} is {}",
                module->type_name(), fsdp::group_state_name(state));
      }
    });
    check_step(t, "reshard by hand", step, kGroups);
  }
}

/// Checks every record's bytes by operation: blocks have one number, the root another.
void check_bytes(RankTest& t, const ExecutionTrace& trace, std::int64_t block, std::int64_t root) {
  for (const CollectiveRecord& record : trace.all<CollectiveRecord>()) {
    const std::int64_t expected = record.label == "root" ? root : block;
    t.check(record.bytes_sent == expected, "{} of {} sends {} bytes, expected {}", record.op,
            record.label, record.bytes_sent, expected);
    t.check(record.dtype == DType::kF32, "{} of {} is in {}", record.op, record.label,
            dtype_name(record.dtype));
  }
}

TESSERA_RANK_TEST_WITH("fsdp counts: bytes that each rank sends, as numbers", "[fsdp]",
                       {.worlds = {2, 3, 4, 5}}) {
  // With 16 rows a block has 5 vectors (two norms, w2's bias), 4 matrices of 16 columns and one of
  // 64; with 64 rows it has w1 of 16 columns and its bias. The root has 8 + 16 rows of 16 columns
  // and 2 vectors of 16. A rank sends its chunks, ceil(rows / W), to W - 1 others, 4 bytes per
  // element:
  //       W 2:  block 1608 elements, root 208         W 4:  block 3 * 804, root 3 * 104
  //       W 3:  block 2 * 1172,      root 2 * 156     W 5:  block 4 * 753, root 4 * 104
  struct Row {
    int world;
    std::int64_t block, root;
  };
  const std::vector<Row> rows = {
      {2, 6432, 832}, {3, 9376, 1248}, {4, 9648, 1248}, {5, 12048, 1664}};
  const Row& row =
      *std::find_if(rows.begin(), rows.end(), [&](const Row& r) { return r.world == t.size(); });
  const auto model = sharded(t, true, true);
  const Step step = traced_step(t, *model);
  check_step(t, "bytes", step, kGroups);
  check_bytes(t, step.forward, row.block, row.root);
  check_bytes(t, step.backward, row.block, row.root);
}

TESSERA_RANK_TEST_WITH("fsdp counts: a kept part is gathered among its neighbours only", "[fsdp]",
                       {.worlds = {4, 6}}) {
  const auto model = sharded(t, 2, 2);
  const Step step = traced_step(t, *model);
  for (const CollectiveRecord& record : step.forward.all<CollectiveRecord>())
    t.check(record.group_size == t.size(), "forward gathers {} among {}", record.label,
            record.group_size);
  const int first = t.rank() / 2 * 2;
  for (const CollectiveRecord& record : records_of(step.backward, "all_gather"))
    t.check(record.ranks == std::vector{first, first + 1}, "backward gathers {} among {} of {}",
            record.label, fmt::join(record.ranks, ", "), record.group);
  for (const CollectiveRecord& record : records_of(step.backward, "reduce_scatter"))
    t.check(record.group_size == t.size(), "backward reduces {} among {}", record.label,
            record.group_size);
  // Half of all ranks' padded chunks: 804 elements each on 4 ranks, 586 each on 6.
  const std::int64_t block = t.size() == 4 ? 4 * 804 / 2 : 6 * 586 / 2;
  for (const CollectiveRecord& record : records_of(step.backward, "all_gather")) {
    if (record.label == "root") continue;
    t.check(record.bytes_sent >= block * 4 && record.bytes_sent <= block * 4 + 14 * 256,
            "backward gathers {} with {} bytes, expected {} and at most 256 a parameter more",
            record.label, record.bytes_sent, block * 4);
  }
}

/// Checks the number and the operation of all reductions of a step.
void check_sums(RankTest& t, const ExecutionTrace& trace, const std::string& op, int expected) {
  const auto records = records_of(trace, op);
  t.check(static_cast<int>(records.size()) == expected, "{} records of {}, expected {}",
          records.size(), op, expected);
  for (const CollectiveRecord& record : records)
    t.check(record.reduction == "sum", "{} of {} is a {}", op, record.label, record.reduction);
}

TESSERA_RANK_TEST_WITH("fsdp counts: every reduction is recorded as a sum", "[fsdp]",
                       {.worlds = {1, 2, 3, 4}}) {
  const int groups = t.size() == 1 ? 0 : kGroups;
  check_sums(t, traced_step(t, *sharded(t, {}, {})).backward, "reduce_scatter", groups);
  Transformer whole(transformer_args(kBlocks, DType::kF32));
  for (models::TransformerBlock& block : whole.blocks())
    fsdp::replicate(block, {.mesh = t.world().mesh()});
  fsdp::replicate(whole, {.mesh = t.world().mesh()});
  nn::initialize(whole, {.seed = 1});
  check_sums(t, traced_step(t, whole).backward, "all_reduce", groups);
  if (t.size() != 4) return;
  const distributed::DeviceMesh mesh({"replicate", "shard"}, {2, 2}, t.world().group(),
                                     t.world().device());
  Transformer hybrid(transformer_args(kBlocks, DType::kF32));
  shard_transformer(hybrid, {.mesh = mesh}, {.mesh = mesh});
  nn::initialize(hybrid, {.seed = 1});
  const ExecutionTrace trace = traced_step(t, hybrid).backward;
  check_sums(t, trace, "reduce_scatter", kGroups);
  check_sums(t, trace, "all_reduce", kGroups);
}

TESSERA_RANK_TEST_WITH("fsdp counts: one rank communicates nothing and trains like the reference",
                       "[fsdp]", {.worlds = {1}}) {
  Transformer model(transformer_args(kBlocks)), reference(transformer_args(kBlocks));
  shard_transformer(model, {.mesh = t.world().mesh()}, {.mesh = t.world().mesh()});
  nn::initialize(model, {.seed = 1});
  nn::initialize(reference, {.seed = 1});
  nn::optim::SGD sgd(model.parameters(), kSgd), reference_sgd(reference.parameters(), kSgd);
  for (std::int64_t step = 0; step < 3; ++step) {
    const Tensor tokens = token_rows(3, 7, 8, step);
    const std::int64_t before = distributed::collective_counters().collectives;
    backward(local_loss(model(tokens)));
    sgd.step();
    sgd.zero_grad();
    const std::int64_t collectives = distributed::collective_counters().collectives - before;
    t.check(collectives == 0, "{} collectives in a step", collectives);
    backward(local_loss(reference(tokens)));
    reference_sgd.step();
    reference_sgd.zero_grad();
    const std::string difference = compare_with_reference(model, reference, 0);
    t.check(difference.empty(), "step {}: {}", step, difference);
  }
}

TESSERA_RANK_TEST("fsdp: the divide factor holds for gradients reduced in another dtype",
                  "[fsdp]") {
  // bf16 values, f32 sums: the losses differ by powers of two, so the gradients do, too, bit for
  // bit.
  std::vector<std::vector<Tensor>> gradients;
  for (const double factor : {1.0, 2.0}) {
    Transformer model(transformer_args(1, DType::kF32));
    shard_transformer(model,
                      {.mesh = t.world().mesh(),
                       .mixed_precision = {.param_dtype = DType::kBF16,
                                           .reduce_dtype = DType::kF32,
                                           .output_dtype = DType::kF32}},
                      {.mesh = t.world().mesh()});
    fsdp::of(model).set_gradient_divide_factor(factor * t.size(), {.recurse = true});
    nn::initialize(model, {.seed = 1});
    const ExecutionTrace trace = traced(t, [&] { backward(local_loss(model(token_rows(2, 5)))); });
    for (const CollectiveRecord& record : records_of(trace, "reduce_scatter"))
      t.check(record.dtype == DType::kF32, "{} is reduced in {}", record.label,
              dtype_name(record.dtype));
    gradients.emplace_back();
    for (const nn::Parameter& parameter : model.parameters())
      gradients.back().push_back(mul(parameter.grad(), factor));
  }
  for (std::size_t i = 0; i < gradients[0].size(); ++i)
    t.check_equal(gradients[1][i], gradients[0][i], "twice the factor, half the gradient");
}

TESSERA_RANK_TEST_WITH("fsdp: gradients are divided by the factor of each group", "[fsdp]",
                       {.worlds = {1, 2, 3, 4}}) {
  const double world = t.size();
  for (const double factor : {world, 2 * world, 1.5}) {
    for (const bool all : {true, false}) {
      Transformer model(transformer_args(kBlocks)), reference(transformer_args(kBlocks));
      shard_transformer(model, {.mesh = t.world().mesh(), .reshard_after_forward = false},
                        {.mesh = t.world().mesh()});
      fsdp::of(model).set_gradient_divide_factor(factor, {.recurse = all});
      nn::initialize(model, {.seed = 1});
      nn::initialize(reference, {.seed = 1});
      nn::optim::SGD sgd(model.parameters(), kSgd), reference_sgd(reference.parameters(), kSgd);
      for (std::int64_t step = 0; step < 3; ++step) {
        const Tensor tokens = token_rows(12, 5, 8, step);
        backward(mul(local_loss(model(my_rows(tokens, t.world()))), 0.01));
        // The sum over all ranks' rows, divided by the factor; in the other groups by the number of
        // ranks.
        backward(mul(local_loss(reference(tokens)), 0.01));
        for (const nn::NamedParameter& named : reference.named_parameters()) {
          const bool own = all || !named.name.starts_with("layers.");
          nn::Parameter parameter = named.parameter;
          parameter.set_grad(mul(parameter.grad(), 1 / (own ? factor : world)));
        }
        const std::string difference = compare_with_reference(model, reference, 1e-11, true);
        t.check(difference.empty(), "factor {}, all {}, step {}: {}", factor, all, step,
                difference);
        for (auto* each : {&sgd, &reference_sgd}) {
          each->step();
          each->zero_grad();
        }
      }
    }
  }
}

}  // namespace
}  // namespace tessera::testing
