// Bytes, orders and late streams, as tested with threads, also hold for two processes over Gloo.

#include <catch2/catch.hpp>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/fsdp/replicate.h"
#include "tessera/tensor/trace.h"
#include "tessera/tests/fsdp/memory/memory_run.h"
#include "tessera/tests/fsdp/schedule/late.h"

namespace tessera::testing {
namespace {

using distributed::CollectiveKind;

// ---- bytes --------------------------------------------------------------------------------------

TESSERA_RANK_TEST("fsdp processes: peaks of a flat chain, to the byte", "[fsdp]") {
  for (const int buffers : {1, 0}) {
    check_flat_chain(t, "released",
                     {.group = flat_group(world_cut(t)), .groups = 4, .reduce_buffers = buffers},
                     [&](Chain& model) {
                       shard_chain(model, {.mesh = t.world().mesh()});
                       fsdp::of(model).set_reduce_scatter_max_input_buffers(buffers);
                     });
  }
  check_flat_chain(t, "kept",
                   {.group = flat_group(world_cut(t)), .groups = 4, .told_to_stay = true},
                   [&](Chain& model) {
                     shard_chain(model, {.mesh = t.world().mesh(), .reshard_after_forward = false});
                   });
}

TESSERA_RANK_TEST("fsdp processes: all of it goes back with the model", "[fsdp]") {
  const MemoryReading before = t.world().context()->memory().current();
  {
    Chain model(flat_chain(3));
    shard_chain(model, {.mesh = t.world().mesh()});
    nn::initialize(model, {.seed = 1});
    backward(chain_loss(t, model));
    chain_loss(t, model);
  }
  const MemoryReading after = t.world().context()->memory().current();
  t.check(after.total() == before.total(), "{} bytes remain", after.total() - before.total());
}

// ---- orders and traffic -------------------------------------------------------------------------

std::string order_of(const ExecutionTrace& trace) {
  std::string out;
  for (const TraceAnnotation& a : trace.all<TraceAnnotation>()) {
    if (a.domain == "fsdp") out += a.phase + " " + a.name + "; ";
  }
  return out;
}

TESSERA_RANK_TEST("fsdp processes: the order of one iteration, and what it sends", "[fsdp]") {
  Chain model(flat_chain(3));
  shard_chain(model, {.mesh = t.world().mesh()});
  nn::initialize(model, {.seed = 1});
  backward(chain_loss(t, model));
  ExecutionTrace trace;
  {
    const TraceScope recording(trace);
    backward(chain_loss(t, model));
  }
  const std::string expected =
      "unshard block0; unshard block1; reshard block0; unshard block2; reshard block1; "
      "reshard block2; unshard block2; unshard block1; reshard block2; post_backward block2; "
      "unshard block0; reshard block1; post_backward block1; reshard block0; "
      "post_backward block0; ";
  t.check(order_of(trace) == expected, "order: {}", order_of(trace));
  const std::int64_t whole = t.size() * ((kChainWidth + t.size() - 1) / t.size()) *
                             (kChainWidth + 1) * 8;  // padded rows of weight and bias
  int gathers = 0, reduces = 0;
  for (const CollectiveRecord& record : trace.all<CollectiveRecord>()) {
    if (record.op != "all_gather" && record.op != "reduce_scatter") continue;
    ++(record.op == "all_gather" ? gathers : reduces);
    const std::int64_t sent = whole / t.size() * (t.size() - 1);
    t.check(record.bytes_sent == sent, "{} of {} sent {} bytes, expected {}", record.op,
            record.label, record.bytes_sent, sent);
  }
  t.check(gathers == 6 && reduces == 3, "{} gathers and {} reduces, expected 6 and 3", gathers,
          reduces);
}

// ---- late streams -------------------------------------------------------------------------------

/// A chain with late operations between its blocks.
class LateChain final : public nn::Layer<LateChain> {
 public:
  explicit LateChain(double ms) : chain_(flat_chain(3)), ms_(ms) {
    register_module("chain", chain_);
  }
  Variable forward(Variable x) {
    for (const auto& block : chain_.blocks()) x = late((*block)(x), ms_, ms_);
    return x;
  }
  Chain& chain() { return chain_; }

 private:
  Chain chain_;
  double ms_;
};

std::vector<double> train(RankTest& t, bool replicated, double compute_ms,
                          const Lateness& lateness) {
  LateChain model(compute_ms);
  const auto mesh =
      t.world().mesh().with_group("data", std::make_shared<LateGroup>(t.world().group(), lateness));
  const auto wrap = [&](nn::Module& module) {
    if (replicated) return fsdp::replicate(module, {.mesh = mesh});
    return fsdp::fully_shard(module, {.mesh = mesh});
  };
  for (const auto& block : model.chain().blocks()) wrap(*block);
  wrap(model);
  nn::initialize(model, {.seed = 1});
  nn::optim::SGD sgd(model.parameters(), kSgd);
  for (std::uint64_t step = 0; step < 2; ++step) {
    const Tensor x = random_rows(4, kChainWidth, DType::kF64, step);
    backward(sharded_loss(model(Variable(my_rows(x, t.world()))), t.world()));
    sgd.step();
    sgd.zero_grad();
  }
  std::vector<double> out;
  for (const nn::Parameter& parameter : model.parameters()) {
    for (const double value : parameter.local().tensor().to_vector<double>()) out.push_back(value);
  }
  return out;
}

TESSERA_RANK_TEST_WITH("fsdp processes: late streams and collectives change no bit", "[fsdp]",
                       ({.cpu_compute = StreamKind::kQueued})) {
  for (const bool replicated : {false, true}) {
    const std::vector<double> expected = train(t, replicated, 0, {});
    t.check(train(t, replicated, 3, {}) == expected, "bits change when compute is late");
    for (const auto kind :
         {CollectiveKind::kAllGather, CollectiveKind::kReduceScatter, CollectiveKind::kAllReduce}) {
      for (const int rank : {-1, 1}) {
        const Lateness lateness = {.kind = kind, .before_ms = 3, .after_ms = 3, .only_rank = rank};
        t.check(train(t, replicated, 0, lateness) == expected, "bits change when {} is late",
                distributed::collective_name(kind));
      }
    }
  }
}

}  // namespace
}  // namespace tessera::testing
