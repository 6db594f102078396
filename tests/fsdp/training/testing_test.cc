// The checks for users' sharded models: each difference is found and named, equal models pass, and
// the ranks agree on the result.

#include "tessera/fsdp/testing.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "tessera/autograd/ops/ops.h"
#include "tessera/distributed/parameters/mesh_impl.h"
#include "tessera/distributed/parameters/parameters.h"
#include "tessera/distributed/tensor_parallel/tensor_parallel.h"
#include "tessera/fsdp/fully_shard.h"
#include "tessera/nn/init.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tests/fsdp/chain.h"
#include "tessera/tests/fsdp/reference.h"
#include "tessera/tests/support/models/mlp.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

using distributed::DeviceMesh;
using fsdp::assert_module_states_equal;
using fsdp::assert_sharded_parity;
using fsdp::check_sharded_parity;

// A sharded MLP and its reference, after one backward on equal batches.
struct Pair {
  explicit Pair(RankTest& t, const MLPOptions& options = {.dim = 5, .dtype = DType::kF64})
      : reference(options), model(options) {
    fsdp::fully_shard(model, {.mesh = t.world().mesh()});
    nn::initialize(model, {.seed = 3});
    nn::initialize(reference, {.seed = 3});
    const Variable x(random_rows(4, options.dim, options.dtype, 1));
    backward(sum(reference(x)));
    backward(sum(model(x)));
  }
  MLP reference, model;
};

// The reference is changed; every rank with some of the changed rows reports it. in_proj has 20
// rows.
bool holds(const nn::Parameter& parameter) { return parameter.local().tensor().numel() > 0; }

TESSERA_RANK_TEST("check_sharded_parity finds equal models equal", "[fsdp]") {
  Pair pair(t);
  // The mean of equal values may differ by its rounding.
  const std::string report = check_sharded_parity(pair.reference, pair.model, {.tolerance = 1e-14});
  t.check(report.empty(), "{}", report);
  assert_sharded_parity(pair.reference, pair.model, {.tolerance = 1e-14});
}

TESSERA_RANK_TEST("check_sharded_parity finds a value, a gradient and a missing gradient",
                  "[fsdp]") {
  Pair pair(t);
  const auto report = [&](bool gradients) {
    return check_sharded_parity(pair.reference, pair.model,
                                {.tolerance = 1e-12, .gradients = gradients});
  };
  nn::Parameter weight = pair.reference.get_parameter("in_proj.weight");
  nn::Parameter mine = pair.model.get_parameter("in_proj.weight");
  fill_(weight.grad(), 7);
  t.check((report(true).find("\"in_proj.weight\" gradient: ") == 0) == holds(mine), "gradient: {}",
          report(true));
  t.check(report(false).empty(), "not asked for: {}", report(false));
  weight.zero_grad();
  t.check(report(true) == "\"in_proj.weight\" has a gradient, the reference's has none\n",
          "absent: {}", report(true));
  mine.zero_grad();
  t.check(report(true).empty(), "both absent: {}", report(true));
  pair.model.get_parameter("in_proj.bias").zero_grad();
  t.check(report(true) == "\"in_proj.bias\" has no gradient, the reference's has one\n",
          "absent here: {}", report(true));
  pair.reference.get_parameter("in_proj.bias").zero_grad();
  add_(weight.local().tensor(), 1e-9);
  t.check((report(false).find("differ, most by") != std::string::npos) == holds(mine), "value: {}",
          report(false));
  t.check(check_sharded_parity(pair.reference, pair.model, {.tolerance = 1e-8}).empty(),
          "tolerance");
  if (holds(mine)) {
    t.check_throws<StateError>("\"in_proj.weight\"",
                               [&] { assert_sharded_parity(pair.reference, pair.model); });
  }
}

TESSERA_RANK_TEST("check_sharded_parity: a NaN equals nothing", "[fsdp]") {
  Pair pair(t);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (MLP* model : {&pair.reference, &pair.model})
    fill_(model->get_parameter("out_proj.bias").local().tensor(), nan);
  const std::string report =
      check_sharded_parity(pair.reference, pair.model, {.tolerance = 1, .gradients = false});
  t.check(report.empty() != holds(pair.model.get_parameter("out_proj.bias")), "{}", report);
  const double infinity = std::numeric_limits<double>::infinity();
  for (MLP* model : {&pair.reference, &pair.model})
    fill_(model->get_parameter("out_proj.bias").local().tensor(), infinity);
  t.check(check_sharded_parity(pair.reference, pair.model, {.gradients = false}).empty(),
          "infinities");
}

TESSERA_RANK_TEST("check_sharded_parity compares names, shapes, dtypes and who is sharded",
                  "[fsdp]") {
  Pair pair(t);
  const auto against = [&](const MLPOptions& options) {
    MLP other(options);
    nn::initialize(other, {.seed = 3});
    return check_sharded_parity(other, pair.model, {.gradients = false});
  };
  t.check(against({.dim = 5, .bias = false, .dtype = DType::kF64}) ==
              "the sharded model has 4 parameters, the reference 2\n",
          "number of parameters");
  t.check(
      against({.dim = 3, .dtype = DType::kF64})
              .find("\"in_proj.weight\" has the global shape [20, 5], the reference's [12, 3]") ==
          0,
      "shape: {}", against({.dim = 3, .dtype = DType::kF64}));
  t.check(against({.dim = 5}).find("is stored in f64, the reference's in f32") != std::string::npos,
          "dtype: {}", against({.dim = 5}));
  t.check(check_sharded_parity(pair.model, pair.reference, {.gradients = false})
                  .find(t.size() == 1 ? "is not sharded" : "the reference's is sharded itself") !=
              std::string::npos,
          "roles");
  const std::vector<nn::Parameter> ignored = pair.reference.parameters();
  MLP other({.dim = 5, .dtype = DType::kF64});
  nn::initialize(other, {.seed = 4});
  t.check(check_sharded_parity(other, pair.reference).find("is not sharded") != std::string::npos,
          "not sharded");
  t.check(check_sharded_parity(other, pair.reference, {.ignored_parameters = ignored}).empty(),
          "ignored ones were compared");
}

TESSERA_RANK_TEST("check_sharded_parity refuses models without values", "[fsdp]") {
  Pair pair(t);
  MLP empty({.dim = 5, .dtype = DType::kF64});
  const char* text = "parameter \"weight\" has no elements yet";
  t.check_throws<StateError>(text, [&] { check_sharded_parity(empty, pair.model); });
  fsdp::fully_shard(empty, {.mesh = t.world().mesh()});
  t.check_throws<StateError>("parameter \"in_proj.weight\" has no elements yet",
                             [&] { check_sharded_parity(pair.reference, empty); });
}

// Parameters sharded by hand may have a spec that does not match their rows.
TESSERA_RANK_TEST_WITH("check_sharded_parity tells rows that are not where placements say",
                       "[fsdp]", {.worlds = {2, 3}}) {
  const nn::LinearOptions options{
      .in = 3, .out = 2 * t.size(), .bias = false, .dtype = DType::kF64};
  nn::Linear reference(options), model(options);
  const DeviceMesh mesh = t.world().mesh();
  nn::ShardSpec spec = distributed::shard_spec({2 * t.size(), 3}, mesh, {distributed::Shard{}});
  const std::int64_t next = 2 * ((t.rank() + 1) % t.size());
  spec.boxes.front().offset = Shape({next, 0});
  model.weight().cut(spec, distributed::make_mesh(mesh));
  nn::initialize(reference, {.seed = 3});
  nn::initialize(model, {.seed = 3});
  const std::string report = check_sharded_parity(reference, model);
  const std::string expected = fmt::format(
      "\"weight\" this rank holds [2, 3] at [{}, 0], but [Shard(0)] over {} says [2, 3] at [{}, "
      "0]\n",
      next, mesh.str(), 2 * t.rank());
  t.check(report == expected, "\"{}\", expected \"{}\"", report, expected);
}

// The rows are right, but a sum over the axes that are not sharded would leave an axis out.
TESSERA_RANK_TEST_WITH("check_sharded_parity tells axes that placements do not have", "[fsdp]",
                       {.worlds = {4, 6}}) {
  const DeviceMesh mesh({"replicate", "shard"}, {2, t.size() / 2}, t.world().group(),
                        t.world().device());
  const nn::LinearOptions options{.in = 3, .out = 5, .bias = false, .dtype = DType::kF64};
  nn::Linear reference(options), model(options);
  nn::ShardSpec spec =
      distributed::shard_spec({5, 3}, mesh, {distributed::Replicate{}, distributed::Shard{}});
  spec.sharded_axes = {"replicate", "shard"};
  model.weight().cut(spec, distributed::make_mesh(mesh));
  nn::initialize(reference, {.seed = 3});
  nn::initialize(model, {.seed = 3});
  const std::string report = check_sharded_parity(reference, model);
  const std::string expected = fmt::format(
      "\"weight\" is said to be sharded over [replicate, shard], but [Replicate, Shard(0)] over {} "
      "shards it over [shard]\n",
      mesh.str());
  t.check(report == expected, "\"{}\", expected \"{}\"", report, expected);
}

// As a projection of queries, keys and values is cut: rows of each of three ranges, the last of
// which is uneven.
TESSERA_RANK_TEST_WITH("check_sharded_parity compares all ranges of rows that a rank has", "[fsdp]",
                       {.worlds = {2, 3}}) {
  const int n = t.size();
  const nn::LinearOptions options{.in = 3, .out = 5 * n + 1, .bias = false, .dtype = DType::kF64};
  nn::Linear reference(options), model(options);
  const auto rows = [](std::int64_t begin, std::int64_t count) {
    return nn::ShardBox{.offset = Shape({begin, 0}), .extent = Shape({count, 3})};
  };
  const bool is_last = t.rank() == n - 1;
  const std::vector<nn::ShardBox> boxes = {rows(2 * t.rank(), 2), rows(2 * n + 2 * t.rank(), 2),
                                           rows(4 * n + t.rank(), is_last ? 2 : 1)};
  model.weight().cut({.global_shape = {5 * n + 1, 3}, .boxes = boxes, .sharded_axes = {"data"}},
                     distributed::make_mesh(t.world().mesh()));
  nn::initialize(reference, {.seed = 3});
  nn::initialize(model, {.seed = 3});
  t.check(check_sharded_parity(reference, model).empty(), "{}",
          check_sharded_parity(reference, model));
  const Tensor mine = model.weight().local().tensor();
  add_(mine.slice(0, mine.dim(0) - 1, mine.dim(0)).narrow(1, 2, 1), 1);
  const std::string report = check_sharded_parity(reference, model);
  const std::string expected = fmt::format("\"weight\" 1 of {} elements differ", mine.numel());
  t.check(report.find(expected) == 0, "\"{}\", expected \"{}\"", report, expected);
}

TESSERA_RANK_TEST("check_sharded_parity drops prefixes wherever they stand", "[fsdp]") {
  const ChainOptions options{.widths = {3, 4}, .classes = 0};
  Chain reference(options), model(options);
  shard_chain(model, {.mesh = t.world().mesh()});
  nn::initialize(reference, {.seed = 1});
  nn::initialize(model, {.seed = 1});
  t.check(check_sharded_parity(reference, model).empty(), "as they are");
  const std::string report =
      check_sharded_parity(reference, model, {.prefixes_to_ignore = {"linear.", "block0."}});
  t.check(report.find("\"block0.linear.weight\" stands where the reference has "
                      "\"block0.linear.weight\"") == 0,
          "{}", report);
}

// FSDP over tensor parallelism along the same dim: strided shards, also uneven ones.
TESSERA_RANK_TEST_WITH("check_sharded_parity knows strided shards", "[fsdp]", {.worlds = {4, 6}}) {
  const DeviceMesh mesh({"dp", "tp"}, {t.size() / 2, 2}, t.world().group(), t.world().device());
  const MLPOptions options{.dim = 5, .multiplier = 3, .dtype = DType::kF64};
  MLP reference(options), model(options);
  distributed::parallelize(
      model, mesh["tp"],
      {{"in_proj", distributed::ColwiseParallel{}}, {"out_proj", distributed::RowwiseParallel{}}});
  fsdp::fully_shard(model, {.mesh = mesh["dp"]});
  nn::initialize(model, {.seed = 3});
  nn::initialize(reference, {.seed = 3});
  const Variable x(random_rows(4, 5, DType::kF64, 1));
  backward(sum(model(x)));
  backward(sum(reference(x)));
  const std::string report = check_sharded_parity(reference, model, {.tolerance = 1e-13});
  t.check(report.empty(), "{}", report);
  const distributed::Placements placements =
      distributed::placements_of(model.get_parameter("in_proj.weight"));
  t.check(distributed::str(placements) == "[Shard(0, turn 1), Shard(0)]", "{}",
          distributed::str(placements));
}

TESSERA_RANK_TEST("assert_module_states_equal passes equal models, whole and sharded", "[fsdp]") {
  const MLPOptions options{.dim = 5, .with_buffer = true, .dtype = DType::kF64};
  Pair pair(t, options);
  for (const nn::Module* model : {&pair.reference, &pair.model}) {
    assert_module_states_equal(*model, t.group());
    assert_module_states_equal(*model, t.world().mesh());
    assert_module_states_equal(*model, t.group(), {.compare = [](const Tensor& a, const Tensor& b) {
      return all_equal(a, b).message;
    }});
  }
}

TESSERA_RANK_TEST_WITH("assert_module_states_equal names states and ranks, on every rank", "[fsdp]",
                       {.worlds = {2, 3}}) {
  const MLPOptions options{.dim = 5, .with_buffer = true, .dtype = DType::kF64};
  MLP model(options);
  nn::initialize(model, {.seed = 3});
  model.get_parameter("in_proj.bias").add_tag("expert");
  const auto close = [](const Tensor& a, const Tensor& b) {
    return all_close(a, b, {.rtol = 0, .atol = 0.5}).message;
  };
  const auto spoil = [&](const Tensor& x, double by) {
    if (t.rank() == 1) add_(x, by);
  };
  spoil(model.get_parameter("in_proj.bias").local().tensor(), 0.25);
  t.check_throws<StateError>("\"in_proj.bias\"",
                             [&] { assert_module_states_equal(model, t.group()); });
  assert_module_states_equal(model, t.group(), {.except_tags = {"expert"}});
  assert_module_states_equal(model, t.group(), {.compare = close});
  spoil(model.get_buffer("buffer").tensor(), 1);
  assert_module_states_equal(model, t.group(), {.except_tags = {"expert"}, .buffers = false});
  assert_module_states_equal(model, t.group(), {.buffers = false, .compare = close});
  t.check_throws<StateError>("\"buffer\"", [&] {
    assert_module_states_equal(model, t.group(), {.except_tags = {"expert"}});
  });
  t.check_throws<StateError>("\"buffer\" of rank 1 beside that of rank 0: ", [&] {
    assert_module_states_equal(model, t.group(), {.compare = close});
  });
}

TESSERA_RANK_TEST_WITH("assert_module_states_equal compares kinds before it compares elements",
                       "[fsdp]", {.worlds = {2}}) {
  const auto never = [](const Tensor&, const Tensor&) { return std::string("compared"); };
  MLP wide({.dim = 5 + t.rank(), .dtype = DType::kF64});
  nn::initialize(wide, {.seed = 3});
  t.check_throws<StateError>(
      "\"in_proj.weight\" (f64 [20, 5]) on rank 0 is \"in_proj.weight\" "
      "(f64 [24, 6]) on rank 1",
      [&] { assert_module_states_equal(wide, t.group(), {.compare = never}); });
  MLP bare({.dim = 5, .bias = t.rank() == 0});
  t.check_throws<StateError>("rank 0 has 4 states, rank 1 has 2", [&] {
    assert_module_states_equal(bare, t.group(), {.compare = never});
  });
}

// Replicas along one axis, shards along the other: only replicas are compared, and all ranks report
// a difference between some of them.
TESSERA_RANK_TEST_WITH("assert_module_states_equal over a mesh of two axes", "[fsdp]",
                       {.worlds = {4, 6}}) {
  const DeviceMesh mesh({"replicate", "shard"}, {2, t.size() / 2}, t.world().group(),
                        t.world().device());
  MLP model({.dim = 5, .dtype = DType::kF64});
  fsdp::fully_shard(model, {.mesh = mesh});
  nn::initialize(model, {.seed = 3});
  assert_module_states_equal(model, mesh);
  if (t.rank() == 0) add_(model.get_parameter("in_proj.weight").local().tensor(), 1);
  t.check_throws<StateError>("\"in_proj.weight\"",
                             [&] { assert_module_states_equal(model, mesh); });
  t.check_throws<StateError>("\"in_proj.weight\" of rank", [&] {
    assert_module_states_equal(model, t.group(), {.compare = [](const Tensor& a, const Tensor& b) {
                                 return all_equal(a, b).message;
                               }});
  });
}

}  // namespace
}  // namespace tessera::testing
