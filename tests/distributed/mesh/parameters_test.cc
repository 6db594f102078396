// Tensors and parameters over a mesh: cut, put together again, asked how they lie.
#include "tessera/distributed/parameters/parameters.h"

#include <catch2/catch.hpp>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/distributed/parameters/mesh_impl.h"
#include "tessera/fsdp/fully_shard.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tests/nn/support.h"
#include "tessera/tests/support/double_options.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

using distributed::distribute;
using distributed::full_copy;
using distributed::full_grad;
using distributed::Partial;
using distributed::Placements;
using distributed::placements_of;
using distributed::ReduceOp;
using distributed::Replicate;
using distributed::Shard;
using distributed::shard_spec;
using DeviceMesh = distributed::DeviceMesh;

const Shard kOverTp{.dim = 0, .turn = 1};  // cuts what tp has left

DeviceMesh two_axes(RankTest& t) {
  const int outer = t.size() % 2 == 0 && t.size() > 2 ? 2 : 1;
  return {{"dp", "tp"}, {outer, t.size() / outer}, t.world().group(), t.world().device()};
}

Tensor counted(const Shape& shape, DType dtype = DType::kF64) {
  return cast(arange(shape.numel(), kDouble).view(shape), dtype);
}

// Cuts, compares with the elements that the rank should have, and puts together again.
void check_round_trip(RankTest& t, const Tensor& whole, const DeviceMesh& mesh,
                      const Placements& placements) {
  const std::string what =
      fmt::format("{} {} as {}", dtype_name(whole.dtype()), whole.shape().str(), str(placements));
  const distributed::Box box = distributed::local_box(
      whole.shape(), placements, {.shape = mesh.shape(), .coordinates = mesh.coordinates()});
  Tensor expected = whole;
  for (int d = 0; d < whole.ndim(); ++d)
    expected = expected.slice(d, box.offset[d], box.offset[d] + box.extent[d]);
  const Tensor local = distribute(whole, mesh, placements);
  t.check(local.is_contiguous() && local.storage() != whole.storage(), "{}: not a copy", what);
  t.check_equal(local, contiguous(expected), what);
  const Tensor again = full_copy(
      {.local = local, .global_shape = whole.shape(), .mesh = mesh, .placements = placements});
  t.check(again.is_contiguous() && again.storage() != local.storage(),
          "{}: full copy is not a copy", what);
  t.check_equal(again, whole, what);
}

const std::vector<Placements> kPairs = {
    {Replicate{}, Replicate{}}, {Shard{0}, Replicate{}}, {Replicate{}, Shard{0}},
    {Replicate{}, Shard{1}},    {Shard{0}, Shard{1}},    {Shard{1}, Shard{0}},
    {Shard{0}, Shard{0}},       {kOverTp, Shard{0}},     {Shard{-1}, Shard{-1}},
    {Shard{0}, kOverTp},        {Shard{2}, Shard{0}},
};

}  // namespace

TESSERA_RANK_TEST("one axis: every size comes back, even, uneven and empty", "[parameters]") {
  const DeviceMesh mesh = t.world().mesh();
  for (std::int64_t n = 0; n <= 11; ++n) {
    check_round_trip(t, counted({n}), mesh, {Shard{0}});
    check_round_trip(t, counted({n, 3}), mesh, {Shard{0}});
    check_round_trip(t, counted({3, n}), mesh, {Shard{-1}});
  }
  check_round_trip(t, Tensor::scalar(5, kDouble), mesh, {Replicate{}});
}

TESSERA_RANK_TEST("two axes: all pairs of placements, dtypes and layouts", "[parameters]") {
  const DeviceMesh mesh = two_axes(t);
  for (const Placements& placements : kPairs) {
    for (const Shape& shape : {Shape{7, 5, 3}, Shape{4, 8, 2}, Shape{1, 2, 9}, Shape{0, 3, 4}})
      check_round_trip(t, counted(shape), mesh, placements);
    check_round_trip(t, counted({5, 3, 7}).transpose(0, 2), mesh, placements);
  }
  for (const DType dtype :
       {DType::kF32, DType::kBF16, DType::kF16, DType::kI64, DType::kI32, DType::kU8, DType::kBool})
    check_round_trip(t, counted({5, 3}, dtype), mesh, {kOverTp, Shard{0}});
}

TESSERA_RANK_TEST_WITH("three axes", "[parameters]", {.worlds = {8}}) {
  const DeviceMesh mesh({"dp", "cp", "tp"}, {2, 2, 2}, t.world().group(), t.world().device());
  const Tensor whole = counted({11, 5});
  check_round_trip(t, whole, mesh, {Shard{0}, Shard{0}, Shard{0}});
  check_round_trip(t, whole, mesh, {Shard{.dim = 0, .turn = 2}, kOverTp, Shard{0}});
  check_round_trip(t, whole, mesh, {kOverTp, kOverTp, Shard{0}});
  check_round_trip(t, whole, mesh, {Shard{1}, Replicate{}, Shard{0}});
  check_round_trip(t, whole, mesh.submesh({"dp", "tp"}), {kOverTp, Shard{0}});
  (void)mesh.submesh({"dp", "cp"}).flatten();
  check_round_trip(t, whole, mesh.submesh({"dp_cp", "tp"}), {kOverTp, Shard{0}});
}

TESSERA_RANK_TEST("terms are reduced, then parts are gathered", "[parameters]") {
  const DeviceMesh mesh = two_axes(t);
  const Tensor whole = counted({5, 3});
  const auto back = [&](const Tensor& local, const Placements& placements) {
    return full_copy(
        {.local = local, .global_shape = {5, 3}, .mesh = mesh, .placements = placements});
  };
  const int dp = mesh.size("dp"), tp = mesh.size("tp");
  const Tensor term = mul(whole, 1.0 + mesh.coordinate("dp"));  // over dp: 1 + 2 + ...
  const double total = dp * (dp + 1) / 2.0;
  t.check_equal(back(distribute(term, mesh, {Replicate{}, Shard{0}}), {Partial{}, Shard{0}}),
                mul(whole, total), "sum");
  t.check_equal(
      back(distribute(term, mesh, {Replicate{}, Shard{1}}), {Partial{ReduceOp::kMax}, Shard{1}}),
      mul(whole, static_cast<double>(dp)), "max");
  t.check_equal(back(term, {Partial{ReduceOp::kMin}, Replicate{}}), whole, "min");
  t.check_equal(back(full({5, 3}, t.rank(), kDouble), {Partial{}, Partial{}}),
                full({5, 3}, t.size() * (t.size() - 1) / 2, kDouble), "both");
  t.check_close(back(full({5, 3}, mesh.coordinate("tp"), kDouble),
                     {Replicate{}, Partial{ReduceOp::kAverage}}),
                full({5, 3}, (tp - 1) / 2.0, kDouble), {1e-15, 0}, "average");
  const Tensor kept = clone(term);
  (void)back(term, {Partial{}, Replicate{}});
  t.check_equal(term, kept, "the local tensor stays");
}

TESSERA_RANK_TEST("what cannot be cut or put together is refused", "[parameters]") {
  const DeviceMesh mesh = two_axes(t);
  const Tensor whole = counted({5, 3});
  t.check_throws<InvalidArgument>(
      "Partial(sum) in [Partial(sum), Shard(0)]: a whole tensor has no terms", [&] {
        (void)distribute(whole, mesh, {Partial{}, Shard{0}});
      });
  t.check_throws<InvalidArgument>("1 placements [Shard(0)] for a mesh of 2 axes",
                                  [&] { (void)distribute(whole, mesh, {Shard{0}}); });
  t.check_throws<InvalidArgument>(
      "Shard(2) in [Replicate, Shard(2)] does not fit a tensor of 2 dims", [&] {
        (void)distribute(whole, mesh, {Replicate{}, Shard{2}});
      });
  t.check_throws<InvalidArgument>("the mesh is undefined",
                                  [&] { (void)distribute(whole, DeviceMesh(), {}); });
  t.check_throws<InvalidArgument>(
      "the local tensor has shape [6, 3], but of [5, 3] as [Replicate, Replicate]", [&] {
        (void)full_copy({.local = counted({6, 3}),
                         .global_shape = {5, 3},
                         .mesh = mesh,
                         .placements = {Replicate{}, Replicate{}}});
      });
  t.check_throws<InvalidArgument>("0 placements", [&] {
    (void)full_copy({.local = whole, .global_shape = {5, 3}, .mesh = mesh, .placements = {}});
  });
  t.check_throws<InvalidArgument>("a whole tensor has no terms", [&] {
    (void)shard_spec({5, 3}, mesh, {Partial{}, Shard{0}});
  });
}

TESSERA_RANK_TEST("a spec says the placements it was made of", "[parameters]") {
  const DeviceMesh mesh = two_axes(t);
  const Shape shape{7, 5, 3};
  for (const Placements& placements : kPairs) {
    const nn::ShardSpec spec = shard_spec(shape, mesh, placements);
    const Placements lowest = distributed::checked_placements(placements, 3, 2, "test");
    if (placements != Placements{Shard{0}, kOverTp})
      t.check(placements_of(spec, mesh.axes()) == lowest, "{} became {}", str(lowest),
              str(placements_of(spec, mesh.axes())));
    std::vector<std::string> sharded;
    for (std::size_t i = 0; i < 2; ++i) {
      if (std::holds_alternative<Shard>(placements[i]) && mesh.shape()[i] > 1)
        sharded.push_back(mesh.axes()[i]);
    }
    t.check(spec.sharded_axes == sharded, "sharded axes of {}", str(placements));
    t.check(spec.is_whole() == (spec.boxes.front().extent == shape) || t.size() == 1, "whole: {}",
            str(placements));
  }
  // A turn that says nothing new is left out.
  t.check(placements_of(shard_spec(shape, mesh, {Shard{0}, kOverTp}), mesh.axes()) ==
              Placements{Shard{0}, Shard{0}},
          "turn");
  t.check(shard_spec(shape, mesh, {kOverTp, Shard{0}}).cuts ==
              std::vector<nn::ShardCut>{{"tp", 0}, {"dp", 0}},
          "cuts");
  t.check(shard_spec({0, 3}, mesh, {Shard{0}, Shard{0}}).is_whole(), "nothing to cut");
}

TESSERA_RANK_TEST_WITH("cuts and specs: orders of three axes, and errors", "[parameters]",
                       {.worlds = {1}}) {
  const std::vector<std::string> axes{"a", "b", "c"};
  nn::ShardSpec spec = nn::ShardSpec::whole({24});
  std::vector<std::string> order = axes;
  do {
    spec.cuts.clear();
    for (const std::string& axis : order) spec.cuts.push_back({axis, 0});
    std::vector<std::string> said;
    for (const std::size_t axis : distributed::shard_order(placements_of(spec, axes)))
      said.push_back(axes[axis]);
    t.check(said == order, "order {}", fmt::join(order, ", "));
  } while (std::next_permutation(order.begin(), order.end()));
  spec.cuts = {{"b", 0}};
  t.check(placements_of(spec, axes) == Placements{Replicate{}, Shard{0}, Replicate{}}, "one cut");
  spec.cuts = {{"d", 0}};
  t.check_throws<InvalidArgument>("a cut along axis \"d\"; the mesh has: a, b, c",
                                  [&] { (void)placements_of(spec, axes); });
  spec.cuts = {{"a", 0}, {"a", 0}};
  t.check_throws<InvalidArgument>("two cuts along axis \"a\"",
                                  [&] { (void)placements_of(spec, axes); });
  spec.cuts.clear();
  spec.sharded_axes = {"a"};
  t.check_throws<InvalidArgument>(
      "a tensor of shape [24] is sharded over a, but its spec has no cuts",
      [&] { (void)placements_of(spec, axes); });
}

TESSERA_RANK_TEST("a parameter sharded over two axes starts with its rows and gives them back",
                  "[parameters]") {
  const DeviceMesh mesh = two_axes(t);
  const auto owner = std::make_shared<FakeOwner>("g");
  for (const Placements& placements :
       {Placements{kOverTp, Shard{0}}, Placements{Shard{0}, Shard{1}}}) {
    nn::Parameter p({.shape = {7, 5}, .dtype = DType::kF64, .init = nn::init::normal(0, 1)});
    const nn::ShardSpec spec = shard_spec({7, 5}, mesh, placements);
    const Shape local = spec.boxes.front().extent;
    p.shard({.spec = spec, .mesh = make_mesh(mesh), .local_shape = local, .padded_rows = local[0]},
            owner);
    t.check_throws<StateError>("has no elements yet", [&] { (void)full_copy(p); });
    p.materialize(t.world().device());
    p.reset({.value = 3});
    const Tensor whole = Tensor::empty({7, 5}, kDouble);
    random::fill_normal(whole, {.value = 3}, random::whole({7, 5}), 0, 1);
    t.check_equal(p.local().tensor(), distribute(whole, mesh, placements), "local");
    t.check_equal(full_copy(p), whole, "full copy");
    t.check(distributed::mesh_of(p) == mesh && placements_of(p) == placements, "mesh and {}",
            str(placements_of(p)));
    t.check(!full_grad(p).defined(), "no gradient");
    p.set_grad(mul(p.local().tensor(), 2.0));
    t.check_equal(full_grad(p), mul(whole, 2.0), "gradient");
  }
}

TESSERA_RANK_TEST("a parameter that nobody sharded has no mesh, and is its own full copy",
                  "[parameters]") {
  nn::Parameter p({.shape = {2, 3}, .dtype = DType::kF64, .init = nn::init::constant(4)});
  p.materialize(t.world().device());
  p.reset({.value = 1});
  t.check(!distributed::mesh_of(p).defined() && placements_of(p).empty(), "mesh");
  const Tensor copy = full_copy(p);
  t.check_equal(copy, full({2, 3}, 4, kDouble), "values");
  t.check(copy.storage() != p.local().tensor().storage(), "not a copy");
  p.set_grad(full({2, 3}, 5, kDouble));
  t.check_equal(full_grad(p), full({2, 3}, 5, kDouble), "gradient");
}

TESSERA_RANK_TEST("parameters under fully_shard: mesh, placements, values and gradients",
                  "[parameters]") {
  nn::Linear reference({.in = 3, .out = 5, .dtype = DType::kF64}),
      layer({.in = 3, .out = 5, .dtype = DType::kF64});
  const DeviceMesh mesh = two_axes(t)["tp"];  // also where other axes beside it hold replicas
  fsdp::fully_shard(layer, {.mesh = mesh});
  nn::initialize(reference, {.seed = 5});
  nn::initialize(layer, {.seed = 5});
  const Tensor x = counted({4, 3});
  backward(mul(sum(square(reference(Variable(x)))), 0.5));
  backward(mul(sum(square(layer(Variable(x)))), 0.5));
  const auto named = layer.named_parameters(), plain = reference.named_parameters();
  for (std::size_t i = 0; i < named.size(); ++i) {
    const nn::Parameter& p = named[i].parameter;
    t.check(distributed::mesh_of(p) == mesh, "{}: mesh {}", named[i].name,
            distributed::mesh_of(p).str());
    t.check(placements_of(p) == Placements{Shard{0}}, "{}: {}", named[i].name,
            str(placements_of(p)));
    t.check_equal(full_copy(p), plain[i].parameter.local().tensor(), named[i].name);
    t.check_close(full_grad(p), plain[i].parameter.grad(), {1e-13, 1e-13},
                  named[i].name + " gradient");
  }
}

TESSERA_RANK_TEST("on the null device there are shapes", "[parameters]") {
  const DeviceMesh mesh({"data"}, {t.size()}, t.world().group(), kNull);
  const Tensor whole = Tensor::empty({5, 3}, {.device = kNull});
  const Tensor local = distribute(whole, mesh, {Shard{0}});
  t.check(local.shape()[0] == distributed::chunk_of(5, t.size(), t.rank()).rows(), "{}",
          local.shape().str());
  const Tensor again =
      full_copy({.local = local, .global_shape = {5, 3}, .mesh = mesh, .placements = {Shard{0}}});
  t.check(again.shape() == whole.shape() && again.device().is_null(), "{}", again.shape().str());
}

}  // namespace tessera::testing
