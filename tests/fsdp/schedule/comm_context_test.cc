// Streams and process groups of collectives, and their replacements by users: shared streams, a
// group for reduce-scatters only, custom collectives, hooks on reduced gradients, the optimizer's
// event.

#include <catch2/catch.hpp>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tessera/autograd/engine.h"
#include "tessera/distributed/collectives.h"
#include "tessera/distributed/decorators.h"
#include "tessera/fsdp/fully_shard.h"
#include "tessera/nn/init.h"
#include "tessera/nn/optim/sgd.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tests/fsdp/chain.h"
#include "tessera/tests/fsdp/reference.h"
#include "tessera/tests/fsdp/schedule/events.h"
#include "tessera/tests/support/models/mlp.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

using distributed::ReduceOp;

/// Three models that run one after another, each a root of its own. `width`: of all layers.
struct Stages {
  explicit Stages(RankTest& t, int width = 6) {
    for (auto& stage : stages) {
      stage =
          std::make_unique<Chain>(ChainOptions{.widths = {width, width, width}, .classes = width});
      shard_chain(*stage, {.mesh = t.world().mesh()});
      nn::initialize(*stage, {.seed = 1});
    }
  }
  Variable operator()(Variable x) {
    for (auto& stage : stages) x = (*stage)(x);
    return x;
  }
  std::vector<nn::Module*> roots() { return {stages[0].get(), stages[1].get(), stages[2].get()}; }
  std::unique_ptr<Chain> stages[3];
};

/// The same three, unsharded.
struct PlainStages {
  PlainStages() {
    for (auto& stage : stages) {
      stage = std::make_unique<Chain>(ChainOptions{.widths = {6, 6, 6}, .classes = 6});
      nn::initialize(*stage, {.seed = 1});
    }
  }
  std::unique_ptr<Chain> stages[3];
};

TESSERA_RANK_TEST("fsdp streams: several roots use one set of them", "[fsdp]") {
  for (const bool shared : {false, true}) {
    Stages model(t);
    PlainStages reference;
    if (shared) fsdp::share_comm_context(model.roots());
    for (std::uint64_t step = 0; step < 2; ++step) {
      const Tensor x = random_rows(2 * t.size(), 6, DType::kF64, step);
      const ExecutionTrace trace = traced(t, [&] {
        const Variable y = model(Variable(my_rows(x, t.world())));
        backward(mul(sum(square(y)), 0.5 / static_cast<double>(y.dim(0))));
      });
      const std::size_t expected = t.size() == 1 ? 0 : shared ? 1 : 3;
      t.check(streams_of(trace, "all_gather").size() == expected, "{} streams gather, expected {}",
              streams_of(trace, "all_gather").size(), expected);
      t.check(streams_of(trace, "reduce_scatter").size() == expected,
              "{} streams reduce, expected {}", streams_of(trace, "reduce_scatter").size(),
              expected);
      Variable h{x};
      for (auto& stage : reference.stages) h = (*stage)(h);
      backward(plain_loss(h));
      for (int i = 0; i < 3; ++i) {
        const std::string difference = compare_with_reference(
            *model.stages[i], *reference.stages[i], 1e-12, /*gradients=*/true);
        t.check(difference.empty(), "shared {}, step {}, stage {}: {}", shared, step, i,
                difference);
      }
    }
  }
}

// A limit set on one root applies to the shared streams, and so to all roots.
TESSERA_RANK_TEST_WITH("fsdp streams: roots that share them share the limit of reduces in flight",
                       "[fsdp]", {.worlds = {2, 3}}) {
  const auto peak = [&](const std::function<void(const std::vector<nn::Module*>&)>& tell) {
    // A GPU's blocks are multiples of 512 bytes: narrow layers would hide the buffers in flight.
    Stages model(t, 40);
    tell(model.roots());
    fsdp::share_comm_context(model.roots());
    MemoryCounters& memory = t.world().context()->memory();
    memory.reset_peak();
    backward(sum(model(Variable(random_rows(3, 40, DType::kF64, 1)))));
    return memory.peak()[MemoryCategory::kGradient];
  };
  const auto tell_all = [](const std::vector<nn::Module*>& roots) {
    for (const nn::Module* root : roots) fsdp::of(*root).set_reduce_scatter_max_input_buffers(0);
  };
  const std::int64_t usual = peak([](const std::vector<nn::Module*>&) {}), none = peak(tell_all);
  t.check(none < usual, "{} bytes of gradients, {} with none in flight", usual, none);
  for (std::size_t one = 0; one < 3; ++one) {
    const std::int64_t told_one = peak([&](const std::vector<nn::Module*>& roots) {
      fsdp::of(*roots[one]).set_reduce_scatter_max_input_buffers(0);
    });
    t.check(told_one == none, "told to root {}: {} bytes, to all: {}", one, told_one, none);
  }
}

/// Trains a chain and its reference for two steps and compares.
void check_training(RankTest& t, const std::string& what, Chain& model) {
  Chain reference({});
  nn::initialize(model, {.seed = 1});
  nn::initialize(reference, {.seed = 1});
  nn::optim::SGD sgd(model.parameters(), kSgd), reference_sgd(reference.parameters(), kSgd);
  for (std::uint64_t step = 0; step < 2; ++step) {
    const Tensor x = random_rows(5, 7, DType::kF64, step);
    backward(sharded_loss(model(Variable(my_rows(x, t.world()))), t.world()));
    backward(plain_loss(reference(Variable(x))));
    const std::string difference =
        compare_with_reference(model, reference, 1e-12, /*gradients=*/true);
    t.check(difference.empty(), "{}, step {}: {}", what, step, difference);
    for (auto* each : {&sgd, &reference_sgd}) {
      each->step();
      each->zero_grad();
    }
  }
}

std::set<std::string> groups_of(const ExecutionTrace& trace, const std::string& op) {
  std::set<std::string> out;
  for (const CollectiveRecord& record : records_of(trace, op)) out.insert(record.group);
  return out;
}

TESSERA_RANK_TEST_WITH("fsdp streams: reduce-scatters in a process group of their own", "[fsdp]",
                       {.worlds = {1, 2, 3}}) {
  for (const bool separate : {false, true}) {
    Chain model({});
    shard_chain(model, {.mesh = t.world().mesh()});
    fsdp::of(model).set_separate_reduce_scatter_group(separate);
    const ExecutionTrace trace =
        traced(t, [&] { check_training(t, fmt::format("separate {}", separate), model); });
    if (t.size() == 1) continue;
    const auto gathers = groups_of(trace, "all_gather"),
               reduces = groups_of(trace, "reduce_scatter");
    t.check(gathers.size() == 1 && reduces.size() == 1 && (gathers == reduces) == !separate,
            "separate {}: gathers in {}, reduces in {}", separate, *gathers.begin(),
            *reduces.begin());
  }
}

TESSERA_RANK_TEST("fsdp streams: custom gathers and reduce-scatters, and back", "[fsdp]") {
  int gathers = 0, reduces = 0;
  const fsdp::CustomCollective gather =
      [&](distributed::ProcessGroup& group, std::span<const Tensor> inputs,
          std::span<const Tensor> outputs, const distributed::Label& label) {
        ++gathers;
        distributed::all_gather(group, inputs, outputs, label);
      };
  const fsdp::CustomCollective reduce =
      [&](distributed::ProcessGroup& group, std::span<const Tensor> inputs,
          std::span<const Tensor> outputs, const distributed::Label& label) {
        ++reduces;
        distributed::reduce_scatter(group, inputs, outputs, ReduceOp::kSum, label);
      };
  Chain model({});
  shard_chain(model, {.mesh = t.world().mesh()});
  const fsdp::Handle block = fsdp::of(*model.blocks()[1]);
  block.set_custom_all_gather(gather);
  block.set_custom_reduce_scatter(reduce);
  check_training(t, "custom", model);
  // On one rank the value is the shard, and the gradient equals its sum: nothing is sent.
  const int gathered = t.size() == 1 ? 0 : 4, reduced = t.size() == 1 ? 0 : 2;
  t.check(gathers == gathered && reduces == reduced, "{} gathers and {} reduces in two steps",
          gathers, reduces);
  block.set_custom_all_gather({});
  block.set_custom_reduce_scatter({});
  backward(local_loss(model(Variable(random_rows(2, 7, DType::kF64, 1)))));
  t.check(gathers == gathered && reduces == reduced, "still called after they were taken back");
}

/// One of two hand-made replicas: the first has weights 0, the second 1 and 2.
void fill_replica(MLP& model, int replica) {
  fill_(model.get_parameter("in_proj.weight").local().tensor(), replica);
  fill_(model.get_parameter("out_proj.weight").local().tensor(), 2.0 * replica);
}

void check_rows(RankTest& t, const nn::Parameter& parameter, const Shape& shape,
                const std::function<double(std::int64_t column)>& expected) {
  t.check(parameter.grad().shape() == shape, "{} has a gradient {}", parameter.name(),
          parameter.grad().shape().str());
  const std::vector<double> seen = cast(parameter.grad(), DType::kF64).to_vector<double>();
  for (std::size_t i = 0; i < seen.size(); ++i) {
    const double wanted = expected(static_cast<std::int64_t>(i) % shape.back());
    if (!t.check(seen[i] == wanted, "element {} of the gradient of {} is {}, expected {}", i,
                 parameter.name(), seen[i], wanted))
      break;
  }
}

// x = 0 ... 9, h = relu(W1 x) = 45 w1 in all 40 elements, y = relu(W2 h), loss = sum(y): d/dW2 = h,
// d/dW1 row = 10 w2 x. Averaged over the replicas (0, 0) and (1, 2): 22.5 and 10 x.
TESSERA_RANK_TEST_WITH("fsdp hooks: replicas by hand through a hook on reduced gradients", "[fsdp]",
                       {.worlds = {4}}) {
  const int replica = t.rank() / 2;
  const auto shards = t.group().subgroup({2 * replica, 2 * replica + 1});
  const auto replicas = t.group().subgroup({t.rank() % 2, t.rank() % 2 + 2});
  for (const bool own_stream : {false, true}) {
    const DeviceStream stream = DeviceStream::create(default_device(), StreamKind::kQueued, "hook");
    int calls = 0;
    const fsdp::AllReduceHook hook = [&](std::span<const Tensor> tensors) {
      ++calls;
      if (own_stream)
        t.check(current_stream(default_device()) == stream, "the hook runs on stream {}",
                current_stream(default_device()).name());
      distributed::all_reduce(*replicas, tensors, ReduceOp::kAverage);
    };
    MLP model({.dim = 10, .bias = false});
    const distributed::DeviceMesh mesh("shard", shards, t.world().device());
    for (const char* name : {"in_proj", "out_proj"}) {
      const fsdp::Handle handle = fsdp::fully_shard(model.get_submodule(name), {.mesh = mesh});
      if (own_stream) {
        handle.set_all_reduce_hook(hook, stream);
      } else {
        handle.set_all_reduce_hook(hook);
      }
    }
    fsdp::fully_shard(model, {.mesh = mesh});
    nn::initialize(model, {.seed = 1});
    fill_replica(model, replica);
    const Variable x(cast(arange(10), DType::kF32).view({1, 10}));
    backward(sum(model(x)));
    t.check(calls == 2, "{} calls of the hook for two groups", calls);
    check_rows(t, model.get_parameter("out_proj.weight"), {5, 40}, [](auto) { return 22.5; });
    check_rows(t, model.get_parameter("in_proj.weight"), {20, 10},
               [](std::int64_t column) { return 10.0 * static_cast<double>(column); });
  }
}

TESSERA_RANK_TEST_WITH("fsdp hooks: gradients of native replicas reach the hook as their sum",
                       "[fsdp]", {.worlds = {2, 4}}) {
  const distributed::DeviceMesh mesh({"replicate", "shard"}, {2, t.size() / 2}, t.world().group(),
                                     t.world().device());
  Chain model({}), reference({});
  shard_chain(model, {.mesh = mesh});
  int calls = 0;
  for (nn::Module* module : fsdp::sharded_modules(model)) {
    const fsdp::Handle handle = fsdp::of(*module);
    handle.set_all_reduce_hook([&, handle](std::span<const Tensor> tensors) {
      ++calls;
      t.check(tensors.size() == handle.parameter_names().size(), "{} tensors of {} parameters",
              tensors.size(), handle.parameter_names().size());
      for (const Tensor& tensor : tensors) copy_(tensor, mul(tensor, 3.0));
    });
  }
  nn::initialize(model, {.seed = 1});
  nn::initialize(reference, {.seed = 1});
  const Tensor x = random_rows(2 * t.size(), 7, DType::kF64, 1);
  backward(sharded_loss(model(Variable(my_rows(x, t.world()))), t.world()));
  backward(mul(plain_loss(reference(Variable(x))), 3.0));
  t.check(calls == 4, "{} calls of 4 groups", calls);
  const std::string difference =
      compare_with_reference(model, reference, 1e-12, /*gradients=*/true);
  t.check(difference.empty(), "{}", difference);
  // Without the hook nothing is tripled.
  for (nn::Module* module : fsdp::sharded_modules(model)) fsdp::of(*module).set_all_reduce_hook({});
  for (nn::Module* each :
       {static_cast<nn::Module*>(&model), static_cast<nn::Module*>(&reference)}) {
    for (nn::Parameter parameter : each->parameters()) parameter.zero_grad();
  }
  backward(sharded_loss(model(Variable(my_rows(x, t.world()))), t.world()));
  backward(plain_loss(reference(Variable(x))));
  t.check(calls == 4, "{} calls after the hooks were removed", calls);
  t.check(compare_with_reference(model, reference, 1e-12, true).empty(), "{}",
          compare_with_reference(model, reference, 1e-12, true));
}

/// The events that the gather stream waits for at the beginning of a forward.
std::vector<std::string> waited_before_gathers(const ExecutionTrace& trace, std::uint64_t stream) {
  std::vector<std::string> out;
  for (const TraceRecord& record : trace.records()) {
    if (const auto* collective = std::get_if<CollectiveRecord>(&record)) {
      if (collective->op == "all_gather") break;
    }
    const auto* event = std::get_if<EventRecord>(&record);
    if (event != nullptr && event->action == EventAction::kWait && event->stream == stream)
      out.push_back(event->name);
  }
  return out;
}

TESSERA_RANK_TEST_WITH("fsdp streams: gathers wait for the optimizer's event, once", "[fsdp]",
                       {.worlds = {1, 2, 3}}) {
  Chain model({}), reference({});
  shard_chain(model, {.mesh = t.world().mesh()});
  nn::initialize(model, {.seed = 1});
  nn::initialize(reference, {.seed = 1});
  nn::optim::SGD sgd(model.parameters(), kSgd), reference_sgd(reference.parameters(), kSgd);
  const auto has = [](const std::vector<std::string>& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  for (std::uint64_t step = 0; step < 4; ++step) {
    const Tensor x = random_rows(2 * t.size(), 7, DType::kF64, step);
    const bool given = step == 1 || step == 2;
    Variable loss;
    const ExecutionTrace trace =
        traced(t, [&] { loss = sharded_loss(model(Variable(my_rows(x, t.world()))), t.world()); });
    if (t.size() > 1) {
      const auto waited = waited_before_gathers(trace, *streams_of(trace, "all_gather").begin());
      t.check(has(waited, "optimizer done") == given, "step {}: the gather stream waits for {}",
              step, waited.empty() ? "nothing" : waited.front());
    }
    backward(loss);
    backward(plain_loss(reference(Variable(x))));
    for (auto* each : {&sgd, &reference_sgd}) {
      each->step();
      each->zero_grad();
    }
    if (step < 2) {  // used once, then cleared
      DeviceEvent done("optimizer done");
      done.record(current_stream(default_device()));
      fsdp::of(model).set_post_optim_event(done);
    }
  }
  const std::string difference = compare_with_reference(model, reference, 1e-12);
  t.check(difference.empty(), "{}", difference);
}

TESSERA_RANK_TEST_WITH("fsdp streams: with the event a gather does not wait for later compute",
                       "[fsdp]", ({.worlds = {2}, .cpu_compute = StreamKind::kQueued})) {
  for (const bool given : {false, true}) {
    DeviceEvent slept("slept");
    std::atomic<bool> watch{false}, early{false};
    const auto group = distributed::call(
        t.world().group(), {.after = [&](const distributed::Collective& call) {
          if (call.kind == distributed::CollectiveKind::kAllGather && watch.exchange(false))
            early = !slept.is_ready();
        }});
    Chain model({});
    shard_chain(model, {.mesh = t.world().mesh().with_group("data", group)});
    nn::initialize(model, {.seed = 1});
    const Variable x(random_rows(2, 7, DType::kF64, 1));
    backward(local_loss(model(x)));
    current_stream(default_device()).synchronize();  // no gather is in flight
    DeviceEvent done("optimizer done");
    done.record(current_stream(default_device()));
    if (given) fsdp::of(model).set_post_optim_event(done);
    stream_sleep(current_stream(default_device()), 100);
    slept.record(current_stream(default_device()));
    watch = true;
    model(x);
    current_stream(default_device()).synchronize();
    t.check(early == given, "event given: {}; the first gather was done before compute: {}", given,
            early.load());
  }
}

}  // namespace
}  // namespace tessera::testing
