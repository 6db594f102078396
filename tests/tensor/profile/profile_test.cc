// A profile of tensor operations: calls, bytes and FLOPs compared with formulas; on each thread the
// rows add up to the steps; errors; the table.
#include "tessera/tensor/profile/profile.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdint>
#include <future>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tessera/tensor/error.h"
#include "tessera/tensor/ops/attention.h"
#include "tessera/tensor/ops/conv.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tensor/scope_name.h"
#include "tessera/tensor/streams/stream.h"
#include "tessera/tensor/tensor.h"
#include "tessera/tensor/trace.h"

namespace tessera {
namespace {

using Catch::Matchers::Contains;

// All rows of a name together.
ProfileFigures figures_of(const Profile& profile, const std::string& name) {
  ProfileFigures out;
  for (const ProfileRow& row : profile.rows()) {
    if (row.name == name) out += row.figures;
  }
  return out;
}

std::int64_t self_time_on(const Profile& profile, const std::string& thread) {
  std::int64_t sum = 0;
  for (const ProfileRow& row : profile.rows()) {
    if (row.thread == thread) sum += row.figures.self_ns;
  }
  return sum;
}

void check_sums(const Profile& profile) {
  for (const std::string& thread : profile.threads()) {
    INFO(thread);
    CHECK(self_time_on(profile, thread) == profile.wall_ns());
  }
  CHECK(self_time_on(profile, kUntimedThread) == 0);
}

TEST_CASE("profile: names, calls, bytes and FLOPs of known operations") {
  const std::int64_t steps = 2;
  const Tensor a = full({3, 5}, 0.5), b = full({5, 7}, 0.5), row = full({7}, 1);
  Profile profile;
  for (int step = 0; step < steps; ++step) {
    const Profile::Scope measured(profile);
    const Tensor c = matmul(a, b);
    const Tensor y = gelu(add(c, row));
    sum(y);
    cast(y, DType::kF64);
  }
  CHECK(profile.steps() == steps);
  CHECK(profile.dropped() == 0);
  const ProfileFigures product = figures_of(profile, "matmul");
  CHECK(product.calls == steps);
  CHECK(product.untimed_calls == 0);
  CHECK(product.flops == steps * 2 * 3 * 5 * 7);
  CHECK(product.bytes_read == steps * 4 * (3 * 5 + 5 * 7));
  CHECK(product.bytes_written == steps * 4 * 3 * 7);
  CHECK(product.self_ns > 0);
  CHECK(product.total_ns == product.self_ns);
  const ProfileFigures sum_of_both = figures_of(profile, "add");
  CHECK(sum_of_both.bytes_read == steps * 4 * (3 * 7 + 7));  // a repeated row is read once
  CHECK(sum_of_both.flops == 0);
  CHECK(figures_of(profile, "gelu").bytes_read == steps * 4 * 3 * 7);
  CHECK(figures_of(profile, "sum").bytes_written == steps * 4);
  CHECK(figures_of(profile, "cast").bytes_written == steps * 8 * 3 * 7);
  CHECK(figures_of(profile, "unary").calls == 0);
  check_sums(profile);
}

TEST_CASE("profile: FLOPs of convolutions and attention") {
  const Tensor x = full({2, 6, 5, 7}, 1), weight = full({9, 2, 3, 3}, 1);
  const Tensor q = full({2, 4, 5, 3}, 0.1), k = full({2, 2, 6, 3}, 0.1), v = full({2, 2, 6, 7}, 1);
  const auto run = [](const auto& operation) {
    Profile profile;
    {
      const Profile::Scope measured(profile);
      operation();
    }
    return profile.rows();
  };
  const auto flops = [](const std::vector<ProfileRow>& rows) {
    std::int64_t sum = 0;
    for (const ProfileRow& row : rows) sum += row.figures.flops;
    return sum;
  };
  // Each of 2 x 9 x 5 x 7 results is a sum over 2 channels and 9 taps.
  CHECK(flops(run([&] { conv2d(x, weight, {}, {.padding = 1, .groups = 3}); })) ==
        2 * (2 * 9 * 5 * 7) * (2 * 9));
  std::int64_t pairs = 0;
  for (int query = 0; query < 5; ++query) {
    for (int key = 0; key < 6; ++key) pairs += key <= query ? 1 : 0;
  }
  const std::int64_t heads = 2 * 4;
  CHECK(flops(run([&] { scaled_dot_product_attention(q, k, v, {.causal = true}); })) ==
        heads * pairs * 2 * (3 + 7));
  CHECK(flops(run([&] { scaled_dot_product_attention(q, k, v); })) == heads * 5 * 6 * 2 * (3 + 7));
}

TEST_CASE("profile: on each thread the rows add up to the steps") {
  const auto kind = GENERATE(StreamKind::kInline, StreamKind::kQueued);
  const StreamGuard guard(DeviceStream::create(kCpu, kind, "compute"));
  // Two streams of one name, of which the second has work in the second step only.
  const DeviceStream first = DeviceStream::create(kCpu, StreamKind::kQueued, "side");
  const DeviceStream second = DeviceStream::create(kCpu, StreamKind::kQueued, "side");
  Profile profile;
  for (int step = 0; step < 3; ++step) {
    const Profile::Scope measured(profile);
    const Tensor x = full({31, 17}, 1);
    // Long enough that the wait begins before its end, also on a busy machine.
    stream_sleep(first, 30);
    if (step == 1) stream_sleep(second, 2);
    current_stream(kCpu).wait(first.record("slept"));
    matmul(x, x.transpose(0, 1)).to_vector<float>();
  }
  CHECK(profile.steps() == 3);
  CHECK(profile.wall_ns() >= 3 * 30'000'000);
  std::vector<std::string> threads = {"host", "side", "side 2"};
  if (kind == StreamKind::kQueued) threads.push_back("compute");
  std::vector<std::string> found = profile.threads();
  std::sort(found.begin(), found.end());
  std::sort(threads.begin(), threads.end());
  CHECK(found == threads);
  CHECK(profile.threads().front() == "host");
  check_sums(profile);
  CHECK(figures_of(profile, "stream_sleep").calls == 4);
  CHECK(figures_of(profile, "stream_sleep").total_ns >= 92'000'000);
  CHECK(figures_of(profile, "wait for slept").calls == 3);
  CHECK(figures_of(profile, "wait for slept").self_ns >= 3 * 1'000'000);
  CHECK(figures_of(profile, "synchronize compute").calls == 3);
  const ProfileFigures read = figures_of(profile, "copy_to_host");
  CHECK(read.calls == 3);
  CHECK(read.untimed_calls == 3);
  CHECK(read.bytes_read == 3 * 4 * 31 * 31);
  CHECK(read.total_ns == 0);
}

TEST_CASE("profile: work inside of other work, and a step that its streams end") {
  const DeviceStream outer = DeviceStream::create(kCpu, StreamKind::kInline, "outer");
  const DeviceStream late = DeviceStream::create(kCpu, StreamKind::kQueued, "late");
  Profile profile;
  profile.start();
  outer.enqueue("whole", [&] {
    stream_sleep(outer, 2);
    stream_sleep(late, 8);
  });
  profile.stop();
  const ProfileFigures whole = figures_of(profile, "whole");
  CHECK(whole.calls == 1);
  CHECK(whole.total_ns >= 2'000'000);
  CHECK(whole.self_ns < whole.total_ns - 1'500'000);
  const ProfileFigures wait = figures_of(profile, "wait for the end of the step's work");
  CHECK(wait.calls == 1);
  CHECK(wait.self_ns > 3'000'000);
  CHECK(profile.wall_ns() >= 8'000'000);
  check_sums(profile);
}

// The names of a model "" and of its block.
struct Names {
  std::shared_ptr<ScopeName> root = make_scope_name(), block = make_scope_name();
  Names() { block->set("block", root); }
};

void call_block(const Names& names, const Tensor& x) {
  const NamedScope in_block(*names.block);
  annotate("module", "block", "forward");
  sqrt(x);
  annotate("module", "block", "forward_end");
}

// A step with an operation in each part.
void phased_step(const Names& names, const Tensor& x) {
  neg(x);  // data
  {
    const NamedScope in_root(*names.root);
    annotate("module", "Net", "forward");
    exp(x);
    call_block(names, x);
  }
  abs(x);  // the loss
  {
    const TracedPhase pass("autograd", "backward", "pass");
    {
      const TracedPhase node("autograd", "recompute", "node");
      call_block(names, x);
    }
    const TracedPhase inner("autograd", "backward", "pass");
    const NamedScope in_block(*names.block);
    tanh(x);
  }
  relu(x);  // clipping
  {
    const TracedPhase step("optimizer", "SGD", "step");
    square(x);
  }
  annotate("optimizer", "SGD", "step_end");  // of a step that began before
  sin(x);
}

TEST_CASE("profile: phases follow the annotations, and are those of the time outside too") {
  const Tensor x = full({3}, 1);
  Profile profile;
  {
    const Profile::Scope measured(profile);
    phased_step(Names(), x);
  }
  std::vector<std::string> found;
  std::vector<ProfilePhase> outside;
  for (const ProfileRow& row : profile.rows()) {
    if (row.kind == ProfileKind::kOperation)
      found.push_back(std::string(profile_phase_name(row.phase)) + " " + row.name + " " +
                      row.module);
    if (row.kind == ProfileKind::kOutside && row.figures.self_ns > 0) outside.push_back(row.phase);
  }
  std::sort(found.begin(), found.end());
  CHECK(found == std::vector<std::string>{
                     "backward tanh block", "forward abs (no module)", "forward exp (root)",
                     "forward sqrt block", "optimizer square (no module)", "other neg (no module)",
                     "other relu (no module)", "other sin (no module)", "recompute sqrt block"});
  CHECK(outside.size() == kProfilePhases);
  check_sums(profile);
}

TEST_CASE("profile: modules alone, and with the modules inside") {
  const Tensor x = full({3}, 1);
  Profile profile;
  {
    const Profile::Scope measured(profile);
    phased_step(Names(), x);
  }
  const std::vector<ProfileModule> modules = profile.modules();
  REQUIRE(modules.size() == 3);
  const ProfileModule &root = modules[0], &block = modules[1];
  CHECK(root.path == kRootModule);
  CHECK(block.path == "block");
  CHECK(modules[2].path == kNoModule);
  CHECK(root.calls == 1);
  CHECK(block.calls == 1);
  const auto forward = static_cast<std::size_t>(ProfilePhase::kForward);
  const auto backward = static_cast<std::size_t>(ProfilePhase::kBackward);
  const auto recompute = static_cast<std::size_t>(ProfilePhase::kRecompute);
  CHECK(root.own[forward].calls == 1);
  CHECK(root.whole[forward].calls == 2);
  CHECK(root.own[backward].calls == 0);
  CHECK(root.whole[backward].calls == 1);
  CHECK(block.own[recompute].calls == 1);
  CHECK(root.whole[forward].self_ns == root.own[forward].self_ns + block.own[forward].self_ns);
}

TEST_CASE("profile: the null device has calls, bytes and FLOPs, and takes no thread's time") {
  const Device null{DeviceType::kNull, 0};
  const Tensor x = Tensor::empty({3, 5}, {.device = null});
  Profile profile;
  {
    const Profile::Scope measured(profile);
    matmul(x, x.transpose(0, 1));
  }
  const ProfileFigures product = figures_of(profile, "matmul");
  CHECK(product.calls == 1);
  CHECK(product.untimed_calls == 1);
  CHECK(product.flops == 2 * 3 * 3 * 5);
  CHECK(product.total_ns == 0);
  check_sums(profile);
  CHECK_THAT(profile.table(), Contains("on not timed"));
}

// The names in the order of the operations on the null device.
std::vector<std::string> untimed_names(const Profile& profile) {
  std::vector<std::string> out;
  for (const ProfileRow& row : profile.operations())
    if (row.thread == kUntimedThread) out.push_back(row.name);
  return out;
}

TEST_CASE("profile: work without times is sorted and cut by FLOPs, then by bytes") {
  using Unary = Tensor (*)(const Tensor&);
  const Device null{DeviceType::kNull, 0};
  const Tensor small = Tensor::empty({3, 5}, {.device = null});
  const Tensor large = Tensor::empty({300, 500}, {.device = null});
  std::vector<std::shared_ptr<ScopeName>> modules;
  for (const char* name : {"a", "b", "z"}) {
    modules.push_back(make_scope_name());
    modules.back()->set(name, nullptr);
  }
  Profile profile;
  {
    const Profile::Scope measured(profile);
    {
      const NamedScope in_a(*modules[0]);
      for (const Unary operation : std::initializer_list<Unary>{
               abs,   acos,  asin, atan,  ceil,     cos,  cosh,   erf,   exp,
               expm1, floor, log,  log1p, neg,      relu, round,  rsqrt, sigmoid,
               sign,  silu,  sin,  sinh,  softplus, sqrt, square, tan})
        operation(small);
    }
    {
      const NamedScope in_b(*modules[1]);
      tanh(large);
    }
    const NamedScope in_z(*modules[2]);
    matmul(small, small.transpose(0, 1));
  }
  const std::vector<std::string> names = untimed_names(profile);
  REQUIRE(names.size() == 28);
  CHECK(names[0] == "matmul");
  CHECK(names[1] == "tanh");
  const std::string table = profile.table();
  CAPTURE(table);
  CHECK_THAT(table, Contains("\nmatmul ") && Contains("\ntanh ") && Contains("\n3 more "));
  const std::string cut = profile.table({.rows = 2});
  CAPTURE(cut);
  CHECK_THAT(cut, Contains("\nz ") && Contains("\n2 more modules") && !Contains("\nb "));
}

TEST_CASE("profile: records are freed when figures are asked for, and after a failure") {
  Profile profile;
  std::shared_ptr<ScopeName> module = make_scope_name();
  module->set("block", nullptr);
  const std::weak_ptr<ScopeName> left = module;
  const auto step = [&](bool fails) {
    const Profile::Scope measured(profile);
    const NamedScope in_module(*module);
    neg(full({3}, 1));
    if (fails) throw std::runtime_error("no");
  };
  SECTION("figures") {
    step(false);
    module.reset();
    CHECK_FALSE(left.expired());
    CHECK(profile.steps() == 1);
    CHECK(left.expired());
    CHECK(figures_of(profile, "neg").calls == 1);
  }
  SECTION("failure") {
    CHECK_THROWS_AS(step(true), std::runtime_error);
    module.reset();
    CHECK(left.expired());
  }
}

TEST_CASE("profile: the end of a step that fails waits for no work") {
  const DeviceStream side = DeviceStream::create(kCpu, StreamKind::kQueued, "side");
  std::promise<void> release;
  const std::shared_future<void> released = release.get_future().share();
  Profile profile;
  const auto fail = [&] {
    const Profile::Scope measured(profile);
    side.enqueue("hangs", [released] { released.wait_for(std::chrono::seconds(5)); });
    throw std::runtime_error("no");
  };
  CHECK_THROWS_AS(fail(), std::runtime_error);
  CHECK_FALSE(side.record().is_ready());
  CHECK(active_trace() == nullptr);
  {
    const Profile::Scope measured(profile);
    neg(full({3}, 1));
  }
  release.set_value();
  side.synchronize();
  CHECK(profile.steps() == 1);
  CHECK(figures_of(profile, "hangs").calls == 0);
  check_sums(profile);
}

TEST_CASE("profile: errors") {
  Profile profile, other;
  CHECK_THROWS_WITH(profile.stop(), "[profile] stop() without a step; call start() first");
  {
    const Profile::Scope measured(profile);
    CHECK_THROWS_WITH(profile.start(),
                      Contains("[profile] start() while a step is measured, which began ") &&
                          Contains(" ms ago; stop() it first"));
    CHECK_THROWS_AS(Profile::Scope(profile), StateError);
    CHECK_THROWS_WITH(other.start(),
                      "[profile] the rank writes another trace, of 0 records; end that first, or "
                      "the profile that it belongs to");
    CHECK_THROWS_WITH(profile.table(),
                      "[profile] table() while a step is measured; stop() it first");
    CHECK_THROWS_AS(profile.rows(), StateError);
  }
  CHECK(profile.steps() == 1);
  ExecutionTrace trace;
  const TraceScope recording(trace);
  neg(zeros({3}));
  CHECK_THROWS_WITH(profile.start(), Contains("another trace, of "));
  CHECK_THROWS_WITH(Profile({.max_records = 0}), "[profile] max_records is 0; give 1 or more");
}

TEST_CASE("profile: a step that fails is not counted, and one may be stopped inside its scope") {
  Profile profile;
  const Tensor x = full({3}, 1);
  const auto fail = [&] {
    const Profile::Scope measured(profile);
    neg(x);
    throw std::runtime_error("no");
  };
  CHECK_THROWS_AS(fail(), std::runtime_error);
  CHECK(profile.steps() == 0);
  CHECK(profile.rows().empty());
  CHECK(profile.table() == "profile: 0 steps of 0.000 ms; all figures are per step\n");
  {
    const Profile::Scope measured(profile);
    neg(x);
    profile.stop();
    exp(x);
  }
  CHECK(profile.steps() == 1);
  CHECK(figures_of(profile, "neg").calls == 1);
  CHECK(figures_of(profile, "exp").calls == 0);
  CHECK(active_trace() == nullptr);
}

TEST_CASE("profile: the table has all rows, sums, and modules of equal kind as one") {
  const std::shared_ptr<ScopeName> root = make_scope_name();
  std::vector<std::shared_ptr<ScopeName>> blocks;
  for (int i = 0; i < 2; ++i) {
    blocks.push_back(make_scope_name());
    blocks.back()->set("blocks." + std::to_string(i), root);
  }
  const Tensor x = full({31, 31}, 1);
  Profile profile;
  for (int step = 0; step < 2; ++step) {
    const Profile::Scope measured(profile);
    for (const auto& block : blocks) {
      const NamedScope in_block(*block);
      annotate("module", block->path(), "forward");
      exp(matmul(x, x));
    }
  }
  const std::string table = profile.table({.title = "mine"});
  CAPTURE(table);
  CHECK_THAT(table, Catch::StartsWith("mine: 2 steps of "));
  for (const char* text : {"phase of the host", "\nforward ", "\nmatmul ", "\nexp ", "\nsum ",
                           "\noutside of operations", "\nblocks.* ", "\n(root) ", " 100.0 % "})
    CHECK_THAT(table, Contains(text));
  CHECK_THAT(table, !Contains("blocks.0") && !Contains("more"));
  CHECK_THAT(profile.table({.merge_numbers = false}),
             Contains("\nblocks.0 ") && Contains("\nblocks.1 "));
  const std::string short_table = profile.table({.rows = 1, .merge_numbers = false});
  CAPTURE(short_table);
  CHECK_THAT(short_table, Contains("\n1 more ") && Contains("\n3 more modules"));

  Profile full_profile({.max_records = 1});
  {
    const Profile::Scope measured(full_profile);
    neg(neg(x));
  }
  CHECK(full_profile.dropped() > 0);
  CHECK_THAT(full_profile.table(), Contains(" did not fit: calls and times are too few\n"));
  check_sums(full_profile);
}

}  // namespace
}  // namespace tessera
