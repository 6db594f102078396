// Settings of a handle, and options, that are out of range or can have no effect: each throws,
// naming the module. Calls that are documented to do nothing do not throw.

#include <catch2/catch.hpp>

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "tessera/autograd/engine.h"
#include "tessera/fsdp/fully_shard.h"
#include "tessera/fsdp/replicate.h"
#include "tessera/nn/init.h"
#include "tessera/tests/fsdp/chain.h"
#include "tessera/tests/fsdp/reference.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

/// A sharded or replicated chain: blocks and root.
std::unique_ptr<Chain> sharded(RankTest& t) {
  auto out = std::make_unique<Chain>(ChainOptions{});
  shard_chain(*out, {.mesh = t.world().mesh()});
  nn::initialize(*out, {.seed = 1});
  return out;
}
std::unique_ptr<Chain> replicated(RankTest& t) {
  auto out = std::make_unique<Chain>(ChainOptions{});
  for (const auto& block : out->blocks()) fsdp::replicate(*block, {.mesh = t.world().mesh()});
  fsdp::replicate(*out, {.mesh = t.world().mesh()});
  nn::initialize(*out, {.seed = 1});
  return out;
}
distributed::DeviceMesh hybrid(RankTest& t) {
  return distributed::DeviceMesh({"replicate", "shard"}, {2, t.size() / 2}, t.world().group(),
                                 t.world().device());
}
const Variable& input() {
  static thread_local const Variable x(random_rows(2, 7, DType::kF64, 1));
  return x;
}

TESSERA_RANK_TEST("fsdp setting errors: numbers out of range", "[fsdp]") {
  const auto model = sharded(t);
  const fsdp::Handle root = fsdp::of(*model);
  t.check_throws<InvalidArgument>("forward = -1: expected at least 0 groups ahead",
                                  [&] { root.set_prefetch({.forward = -1}); });
  t.check_throws<InvalidArgument>("expected at least 0, got -1",
                                  [&] { root.set_reduce_scatter_max_input_buffers(-1); });
  root.set_reduce_scatter_max_input_buffers(0);
  for (const double factor :
       {0.0, -2.0, static_cast<double>(INFINITY), std::numeric_limits<double>::quiet_NaN()}) {
    const std::string text = fmt::format("expected a finite factor above 0, got {}", factor);
    t.check_throws<InvalidArgument>(text, [&] { root.set_gradient_divide_factor(factor); });
    t.check_throws<InvalidArgument>(
        text, [&] { root.set_gradient_divide_factor(factor, {.recurse = true}); });
  }
  root.set_gradient_divide_factor(0.25);
}

TESSERA_RANK_TEST_WITH("fsdp setting errors: all-reduce among replicas that are not there",
                       "[fsdp]", {.worlds = {2, 4}}) {
  const auto flat = sharded(t), whole = replicated(t);
  for (Chain* model : {flat.get(), whole.get()}) {
    for (const bool recurse : {true, false})
      t.check_throws<InvalidArgument>(
          "it can never act on Chain: no group has replicas beside shards",
          [&] { fsdp::of(*model).set_requires_all_reduce(false, {.recurse = recurse}); });
  }
  // One group below with replicas is enough.
  Chain mixed({});
  fsdp::fully_shard(*mixed.blocks()[0], {.mesh = hybrid(t)});
  const fsdp::Handle root = fsdp::fully_shard(mixed, {.mesh = t.world().mesh()});
  root.set_requires_all_reduce(false);
  root.set_requires_all_reduce(true);
  t.check_throws<InvalidArgument>("it can never act on Chain: no group has replicas beside shards",
                                  [&] { root.set_requires_all_reduce(false, {.recurse = false}); });
}

TESSERA_RANK_TEST_WITH("fsdp setting errors: what replicate has not", "[fsdp]",
                       {.worlds = {2, 3}}) {
  const auto model = replicated(t);
  const fsdp::Handle root = fsdp::of(*model);
  const char* released = "it can never act on Chain: replicated values are never released";
  const char* gathered = "it can never act on Chain: replicated values are not gathered";
  const char* scattered =
      "it can never act on Chain: replicated gradients are not reduce-scattered";
  t.check_throws<InvalidArgument>(released, [&] { root.set_reshard_after_forward(true); });
  t.check_throws<InvalidArgument>(gathered, [&] {
    root.set_custom_all_gather([](distributed::ProcessGroup&, std::span<const Tensor>,
                                  std::span<const Tensor>, const distributed::Label&) {});
  });
  t.check_throws<InvalidArgument>(scattered, [&] {
    root.set_custom_reduce_scatter([](distributed::ProcessGroup&, std::span<const Tensor>,
                                      std::span<const Tensor>, const distributed::Label&) {});
  });
  t.check_throws<InvalidArgument>(gathered, [&] { root.set_unshard_in_backward(false); });
  t.check_throws<InvalidArgument>(scattered, [&] { root.set_separate_reduce_scatter_group(true); });
  // One sharded module below is enough for a recursive setting, but not without recursion.
  Chain mixed({});
  fsdp::fully_shard(*mixed.blocks()[0], {.mesh = t.world().mesh()});
  const fsdp::Handle outer = fsdp::replicate(mixed, {.mesh = t.world().mesh()});
  outer.set_reshard_after_forward(false);
  t.check_throws<InvalidArgument>(
      released, [&] { outer.set_reshard_after_forward(false, {.recurse = false}); });
}

TESSERA_RANK_TEST("fsdp setting errors: lists of modules that are not sharded", "[fsdp]") {
  const auto model = sharded(t);
  const fsdp::Handle root = fsdp::of(*model);
  nn::Module& plain = model->get_submodule("block0.linear");
  const char* not_sharded = "Linear is not sharded: call fully_shard on it first";
  t.check_throws<InvalidArgument>(not_sharded,
                                  [&] { root.set_modules_to_forward_prefetch({&plain}); });
  t.check_throws<InvalidArgument>(not_sharded,
                                  [&] { root.set_modules_to_backward_prefetch({&plain}); });
  t.check_throws<InvalidArgument>("a module of the list is null",
                                  [&] { root.set_modules_to_forward_prefetch({nullptr}); });
  // A list that throws changes nothing; an empty list is legal.
  root.set_modules_to_forward_prefetch({});
  backward(sum((*model)(input())));
}

TESSERA_RANK_TEST("fsdp setting errors: what only the root has", "[fsdp]") {
  const auto model = sharded(t);
  (*model)(input());
  const fsdp::Handle root = fsdp::of(*model), block = fsdp::of(*model->blocks()[0]);
  t.check_throws<StateError>("Block is not the root: reset the root",
                             [&] { block.reset_iter_state(); });
  DeviceEvent recorded("step done");
  recorded.record(current_stream(default_device()));
  t.check_throws<Error>("Block is not the root: set the event there",
                        [&] { block.set_post_optim_event(recorded); });
  t.check_throws<Error>("never recorded",
                        [&] { root.set_post_optim_event(DeviceEvent("never happened")); });
  root.set_post_optim_event(recorded);
  (*model)(input());
}

TESSERA_RANK_TEST_WITH("fsdp setting errors: a hook's stream beside native replicas", "[fsdp]",
                       {.worlds = {4}}) {
  const DeviceStream stream = DeviceStream::create(default_device(), StreamKind::kQueued, "hook");
  const fsdp::AllReduceHook hook = [](std::span<const Tensor>) {};
  Chain native({}), flat({});
  const fsdp::Handle of_native = fsdp::fully_shard(native, {.mesh = hybrid(t)});
  t.check_throws<InvalidArgument>("Chain has native replicas: its hook runs on the stream of their",
                                  [&] { of_native.set_all_reduce_hook(hook, stream); });
  of_native.set_all_reduce_hook(hook);
  of_native.set_all_reduce_hook({});
  fsdp::fully_shard(flat, {.mesh = t.world().mesh()}).set_all_reduce_hook(hook, stream);
}

TESSERA_RANK_TEST("fsdp setting errors: one set of streams comes before the first forward",
                  "[fsdp]") {
  const auto early = sharded(t), late = sharded(t);
  (*late)(input());
  t.check_throws<StateError>("Chain has run already: share the context before the first forward",
                             [&] {
                               fsdp::share_comm_context({early.get(), late.get()});
                             });
  Chain plain({});
  t.check_throws<InvalidArgument>("Chain has no FSDP state: shard the roots first", [&] {
    fsdp::share_comm_context({early.get(), &plain});
  });
  const auto one = sharded(t), other = sharded(t);
  fsdp::of(*one).set_reduce_scatter_max_input_buffers(0);
  fsdp::of(*other).set_reduce_scatter_max_input_buffers(2);
  t.check_throws<StateError>(
      "set_reduce_scatter_max_input_buffers() was called with 0 for one root and with 2", [&] {
        fsdp::share_comm_context({one.get(), other.get()});
      });
  fsdp::of(*other).set_reduce_scatter_max_input_buffers(0);
  fsdp::share_comm_context({one.get(), other.get()});
}

/// Calls fully_shard on a new chain; it must throw.
template <class E = InvalidArgument>
void check_refused(RankTest& t, const std::string& part, const fsdp::FullyShardOptions& options) {
  t.check_throws<E>(part, [&] {
    Chain model({});
    fsdp::fully_shard(model, options);
  });
}

TESSERA_RANK_TEST("fsdp setting errors: options that can never act", "[fsdp]") {
  const distributed::DeviceMesh& mesh = t.world().mesh();
  check_refused(t, "Chain: shard_optimizer_over_replicas needs a mesh of 2 axes",
                {.mesh = mesh, .shard_optimizer_over_replicas = true});
  check_refused(t, "ignored_modules has a null module",
                {.mesh = mesh, .ignored_modules = {nullptr}});
  check_refused(t, "mixed precision takes floating dtypes, not i64",
                {.mesh = mesh, .mixed_precision = {.param_dtype = DType::kI64}});
  check_refused(t, "mixed precision takes floating dtypes, not i64",
                {.mesh = mesh, .mixed_precision = {.reduce_dtype = DType::kI64}});
  check_refused(t, "mixed precision takes floating dtypes, not i64",
                {.mesh = mesh, .mixed_precision = {.output_dtype = DType::kI64}});
  check_refused(t, "mixed precision takes floating dtypes, not i64",
                {.mesh = mesh, .mixed_precision = {.buffer_dtype = DType::kI64}});
  check_refused(t, "mixed_precision.exempt has nothing to exempt from: set param_dtype",
                {.mesh = mesh, .mixed_precision = {.exempt = &fsdp::is_norm}});
  check_refused(t,
                "keep_low_precision_gradients has nothing to keep: set param_dtype or reduce_dtype",
                {.mesh = mesh, .mixed_precision = {.keep_low_precision_gradients = true}});
}

TESSERA_RANK_TEST("fsdp settings: legal where they do nothing", "[fsdp]") {
  Chain model({.classes = 0});
  for (const auto& block : model.blocks()) fsdp::fully_shard(*block, {.mesh = t.world().mesh()});
  const fsdp::Handle root = fsdp::fully_shard(model, {.mesh = t.world().mesh()});
  nn::initialize(model, {.seed = 1});
  // The root has no group.
  root.set_gradient_divide_factor(2);
  root.set_unshard_in_backward(false);
  root.set_all_reduce_hook([](std::span<const Tensor>) {});
  root.set_reshard_after_forward(true, {.recurse = false});
  root.set_custom_all_gather({});
  root.set_custom_reduce_scatter({});
  root.unshard();
  root.reshard();
  root.discard_pending_gradients();
  Variable loss = sum(model(input()));
  backward(loss);
  for (const nn::NamedParameter& named : model.named_parameters())
    t.check(named.parameter.grad().defined(), "{} has no gradient", named.name);
}

}  // namespace
}  // namespace tessera::testing
