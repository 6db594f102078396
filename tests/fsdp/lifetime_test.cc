// Memory and state at the start and end of a model's life: memory freed while a stream is behind,
// shards written at unusual times, exceptions, models and roots that are destroyed.

#include <malloc.h>

#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tessera/autograd/grad_mode.h"
#include "tessera/distributed/decorators.h"
#include "tessera/fsdp/fully_shard.h"
#include "tessera/nn/init.h"
#include "tessera/tensor/memory/allocator.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tests/fsdp/chain.h"
#include "tessera/tests/fsdp/reference.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

constexpr std::int64_t kLarge = 400;

/// Repeatedly returns cached memory blocks to the operating system, until it is destroyed. Freed
/// memory is overwritten, so a late reader gets wrong numbers.
class CacheEmptier {
 public:
  CacheEmptier() {
    mallopt(M_PERTURB, 0x55);
    thread_ = std::thread([this] {
      while (!stop_) {
        empty_cpu_cache();
        std::this_thread::yield();
      }
    });
  }
  ~CacheEmptier() {
    stop_ = true;
    thread_.join();
    mallopt(M_PERTURB, 0);
  }

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

std::vector<double> train_while_cache_is_emptied(RankTest& t, bool empty) {
  std::unique_ptr<CacheEmptier> emptier = empty ? std::make_unique<CacheEmptier>() : nullptr;
  Chain model({.widths = {kLarge, kLarge, kLarge}, .classes = 0});
  shard_chain(model, {.mesh = t.world().mesh()});
  nn::initialize(model, {.seed = 1});
  nn::optim::SGD sgd(model.parameters(), kSgd);
  for (int step = 0; step < 2; ++step) {
    for (int pass = 0; pass < 2; ++pass) {  // the second adds to the first's gradients
      backward(sharded_loss(model(Variable(random_rows(4, kLarge, DType::kF64, 1))), t.world()));
    }
    stream_sleep(current_stream(default_device()),
                 30);  // compute is behind when the gradients are dropped
    sgd.step();
    sgd.zero_grad();
  }
  current_stream(default_device()).synchronize();
  std::vector<double> out;
  for (const nn::Parameter& parameter : model.parameters()) {
    for (const double value : parameter.local().tensor().to_vector<double>()) out.push_back(value);
  }
  return out;
}

TESSERA_RANK_TEST_WITH(
    "fsdp: gradients dropped while compute is behind live until it has read them", "[fsdp]",
    ({.worlds = {1, 2}, .cpu_compute = StreamKind::kQueued})) {
  const std::vector<double> expected = train_while_cache_is_emptied(t, false);
  t.check(train_while_cache_is_emptied(t, true) == expected, "parameters differ");
}

/// Delays compute when all gathers may already run.
class Sleepy final : public nn::Layer<Sleepy> {
 public:
  Sleepy() : chain_({.widths = {kLarge, kLarge, kLarge, kLarge}, .classes = 0}) {
    register_module("chain", chain_);
  }
  Variable forward(Variable x) {
    stream_sleep(current_stream(default_device()), 30);
    for (const auto& block : chain_.blocks()) x = (*block)(x);
    return x;
  }
  void shard(const fsdp::FullyShardOptions& options) {
    for (const auto& block : chain_.blocks()) fsdp::fully_shard(*block, options);
    fsdp::fully_shard(*this, {.mesh = options.mesh});
  }

 private:
  Chain chain_;
};

std::vector<double> outlive_model(RankTest& t, bool empty) {
  std::unique_ptr<CacheEmptier> emptier = empty ? std::make_unique<CacheEmptier>() : nullptr;
  Variable y;
  {
    const NoGradGuard no_grad;
    Sleepy model;
    model.shard({.mesh = t.world().mesh(), .reshard_after_forward = false});
    nn::initialize(model, {.seed = 1});
    y = model(Variable(random_rows(4, kLarge, DType::kF64, 1)));
  }
  return y.tensor().to_vector<double>();
}

TESSERA_RANK_TEST_WITH("fsdp: a model that goes while compute is behind lives on in its memory",
                       "[fsdp]", ({.worlds = {1, 2}, .cpu_compute = StreamKind::kQueued})) {
  const std::vector<double> expected = outlive_model(t, false);
  for (int round = 0; round < 3; ++round)
    t.check(outlive_model(t, true) == expected, "outputs differ");
}

/// Writes a block's shards in the middle of forward, after their gather may have been prefetched.
class Writer final : public nn::Layer<Writer> {
 public:
  Writer() : chain_({.widths = {6, 6, 6}, .classes = 0}) { register_module("chain", chain_); }
  Variable forward(Variable x) {
    x = (*chain_.blocks()[0])(x);
    stream_sleep(current_stream(default_device()), 5);
    for (const nn::NamedParameter& named : chain_.blocks()[1]->named_parameters()) {
      fill_(named.parameter.local().tensor(), fill_value);
    }
    return (*chain_.blocks()[1])(x);
  }
  void shard(const distributed::DeviceMesh& mesh, const fsdp::PrefetchOptions& prefetch) {
    for (const auto& block : chain_.blocks()) fsdp::fully_shard(*block, {.mesh = mesh});
    fsdp::fully_shard(*this, {.mesh = mesh});
    fsdp::of(*this).set_prefetch(prefetch);
  }
  double fill_value = 0.5;

 private:
  Chain chain_;
};

// A prefetched gather reads the old rows while they are written, and its result is dropped: an
// intended race, which the thread sanitizer reports.
#if defined(__SANITIZE_THREAD__)
constexpr std::array kAhead = {false};
#else
constexpr std::array kAhead = {false, true};
#endif

void check_late_writes(RankTest& t) {
  for (const bool ahead : kAhead) {
    Writer model;
    model.shard(t.world().mesh(), prefetch_of(ahead, ahead));
    nn::initialize(model, {.seed = 1});
    Writer reference;
    nn::initialize(reference, {.seed = 1});
    const Variable x(random_rows(2, 6, DType::kF64, 1));
    for (const double value : {0.5, -0.25, 1.5}) {
      model.fill_value = reference.fill_value = value;
      const Variable y = model(x);
      const double error = worst_error(y.tensor(), reference(x).tensor());
      t.check(error == 0, "gathers ahead {}: outputs differ by {}", ahead, error);
      backward(sum(y));
    }
  }
}

TESSERA_RANK_TEST("fsdp: shards written during forward are gathered as written, compute inline",
                  "[fsdp]") {
  check_late_writes(t);
}

TESSERA_RANK_TEST_WITH(
    "fsdp: shards written during forward are gathered as written, compute queued", "[fsdp]",
    {.cpu_compute = StreamKind::kQueued}) {
  check_late_writes(t);
}

// One rank has nothing to reduce.
TESSERA_RANK_TEST_WITH("fsdp: training goes on after a reduce that threw at the end of backward",
                       "[fsdp]", {.worlds = {2, 3, 5}}) {
  bool fail = false;
  const auto group =
      distributed::call(t.world().group(), {.before = [&](const distributed::Collective& call) {
                          if (!fail || call.kind != distributed::CollectiveKind::kReduceScatter ||
                              call.label.text != "block0")
                            return;
                          fail = false;
                          throw OutOfMemory("on purpose");
                        }});
  Chain model({});
  for (const auto& block : model.blocks())
    fsdp::fully_shard(*block, {.mesh = t.world().mesh().with_group("data", group)});
  fsdp::fully_shard(model, {.mesh = t.world().mesh()});
  nn::initialize(model, {.seed = 1});
  const auto loss = [&] {
    return sharded_loss(model(Variable(random_rows(4, 7, DType::kF64, 1))), t.world());
  };
  backward(loss());
  for (nn::Parameter parameter : model.parameters()) parameter.zero_grad();
  fail = true;
  t.check_throws<OutOfMemory>("on purpose", [&] { backward(loss()); });
  const MemoryReading now = t.world().context()->memory().current();
  t.check(now[MemoryCategory::kGathered] == 0, "{} gathered bytes remain",
          now[MemoryCategory::kGathered]);
  for (nn::Parameter parameter : model.parameters()) parameter.zero_grad();
  backward(loss());
  for (const nn::NamedParameter& named : model.named_parameters()) {
    t.check(named.parameter.grad().defined(), "{} has no gradient after recovery", named.name);
  }
}

/// Runs its blocks on inputs of a wrong width, catches the errors and continues.
class Forgiving final : public nn::Layer<Forgiving> {
 public:
  Forgiving() : chain_({.widths = {24, 24, 24, 24, 24}, .classes = 0}) {
    register_module("chain", chain_);
  }
  Variable forward(Variable x) {
    for (const auto& block : chain_.blocks()) {
      try {
        (*block)(wrong);
      } catch (const InvalidArgument&) {
      }
    }
    for (const auto& block : chain_.blocks()) x = (*block)(x);
    return x;
  }
  const Chain& chain() const { return chain_; }
  Variable wrong{random_rows(2, 23, DType::kF64, 1)};

 private:
  Chain chain_;
};

TESSERA_RANK_TEST("fsdp: an exception that the outer module catches keeps nothing gathered",
                  "[fsdp]") {
  Forgiving model;
  for (const auto& block : model.chain().blocks())
    fsdp::fully_shard(*block, {.mesh = t.world().mesh()});
  fsdp::fully_shard(model, {.mesh = t.world().mesh()});
  nn::initialize(model, {.seed = 1});
  MemoryCounters& memory = t.world().context()->memory();
  const NoGradGuard no_grad;
  const Variable x(random_rows(2, 24, DType::kF64, 1));
  model(x);
  memory.reset_peak();
  model(x);
  const auto padded_rows = (24 + t.size() - 1) / t.size() * t.size();
  const auto bytes =
      static_cast<std::size_t>((padded_rows * 24 * 8 + 255) / 256 * 256 + padded_rows * 8);
  const std::int64_t one = t.size() == 1 ? 0 : counted_bytes(default_device().type, bytes);
  t.check(memory.peak()[MemoryCategory::kGathered] <= 2 * one,
          "{} gathered bytes at the peak, {} a block", memory.peak()[MemoryCategory::kGathered],
          one);
  t.check(memory.current()[MemoryCategory::kGathered] == 0, "gathered bytes remain");
}

/// An outer root around a model that outlives it.
class Outer final : public nn::Layer<Outer> {
 public:
  explicit Outer(Chain& inner) : inner_(inner) { register_module("inner", inner_); }
  Variable forward(const Variable& x) { return inner_(x); }

 private:
  Chain& inner_;
};

TESSERA_RANK_TEST("fsdp: a model outlives the root that it ran under", "[fsdp]") {
  Chain reference({});
  nn::initialize(reference, {.seed = 1});
  Chain model({});
  shard_chain(model, {.mesh = t.world().mesh(), .reshard_after_forward = false});
  nn::initialize(model, {.seed = 1});
  const Variable x(random_rows(2, 7, DType::kF64, 1));
  for (const bool run_outer : {false, true}) {
    {
      Outer outer(model);
      fsdp::fully_shard(outer, {.mesh = t.world().mesh()}).set_prefetch({});
      if (run_outer) outer(x);
    }
    const double error = worst_error(model(x).tensor(), reference(x).tensor());
    t.check(error == 0, "outputs differ by {}", error);
  }
}

TESSERA_RANK_TEST("fsdp: a graph that outlives its model throws instead of reading released values",
                  "[fsdp]") {
  Variable loss;
  {
    Chain model({});
    shard_chain(model, {.mesh = t.world().mesh(), .reshard_after_forward = true});
    nn::initialize(model, {.seed = 1});
    loss = sum(model(Variable(random_rows(2, 7, DType::kF64, 1))));
  }
  if (t.size() == 1) return;  // the value is the shard, which the graph keeps alive
  t.check_throws<StateError>(
      "is released for good: the module of group root, which gathers it, is gone: keep the model "
      "until backward has run",
      [&] { backward(loss); });
}

TESSERA_RANK_TEST("fsdp: pending gradients can be discarded in the middle of a backward",
                  "[fsdp]") {
  Chain model({});
  shard_chain(model, {.mesh = t.world().mesh()});
  nn::initialize(model, {.seed = 1});
  nn::Parameter weight = model.parameters().front();
  weight.value_leaf().register_post_accumulate_hook(
      [&](const Variable&) { fsdp::of(*model.blocks().front()).discard_pending_gradients(); });
  backward(sharded_loss(model(Variable(random_rows(2, 7, DType::kF64, 1))), t.world()));
  t.check(!weight.grad().defined(), "the discarded gradient was reduced");
  t.check(model.parameters().back().grad().defined(), "another group's gradient is gone too");
}

}  // namespace
}  // namespace tessera::testing
