// Styles of single layers: embeddings in rows and columns, attention in heads, norms and dropout
// on parts of a sequence, prepared arguments; and what plans are refused, and why.
#include <catch2/catch.hpp>

#include "tessera/autograd/ops/ops.h"
#include "tessera/distributed/tensor_parallel/tensor_parallel.h"
#include "tessera/nn/init.h"
#include "tessera/nn/layers/container.h"
#include "tessera/nn/layers/dropout.h"
#include "tessera/nn/layers/embedding.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/layers/norm.h"
#include "tessera/nn/layers/sequential.h"
#include "tessera/nn/layers/transformer/attention.h"
#include "tessera/nn/mesh/mesh_ops.h"
#include "tessera/tensor/random_scope.h"
#include "tessera/tests/distributed/tensor_parallel/tensor_parallel_support.h"
#include "tessera/tests/nn/support.h"
#include "tessera/tests/support/models/mlp.h"

namespace tessera {
namespace {

using namespace distributed;
using namespace testing;

Variable weighed(const Variable& y) { return sum(mul(y, sin(y))); }

TESSERA_RANK_TEST("embeddings in rows and in columns, with a padding entry", "[tp]") {
  const std::vector<ParallelStyle> styles = {
      RowwiseParallel{}, ColwiseParallel{.output_layout = Replicate{}},
      RowwiseParallel{.output_layout = Shard{0}}, ColwiseParallel{.output_layout = Shard{0}}};
  for (const ParallelStyle& style : styles) {
    const bool in_parts = style.index() == 0
                              ? std::holds_alternative<Shard>(std::get<0>(style).output_layout)
                              : std::holds_alternative<Shard>(std::get<1>(style).output_layout);
    nn::Embedding split({.entries = 7, .dim = 3, .padding_index = 4, .dtype = DType::kF64});
    nn::Embedding whole({.entries = 7, .dim = 3, .padding_index = 4, .dtype = DType::kF64});
    parallelize(split, tp_mesh(t), {{"", style}});
    nn::initialize(split, {.seed = 2});
    nn::initialize(whole, {.seed = 2});
    const Tensor index = indices({2 * t.size(), 5}, 7, 3);
    check_same_training(
        t, {split, whole}, [&] { return weighed(split(index)); },
        [&] { return weighed(whole(Variable(index))); }, {.steps = 2, .loss_in_parts = in_parts});
  }
}

TESSERA_RANK_TEST("an index that is no entry is refused, by all or by some", "[tp]") {
  nn::Embedding split({.entries = 7, .dim = 3});
  parallelize(split, tp_mesh(t), {{"", RowwiseParallel{}}});
  nn::initialize(split);
  // The rows of a fifth rank are none, and it has nothing to look up: it would wait for the others.
  if (chunk_of(7, t.size(), t.rank()).rows() == 0) return;
  for (const std::int64_t wrong : {-1, 7, 100}) {
    const Tensor index = Tensor::from_vector(std::vector<std::int64_t>{1, wrong}, {2});
    check_refused(t, fmt::format("{}", wrong), [&] { split.forward(index); });
  }
}

TESSERA_RANK_TEST_WITH("attention by heads, self and cross, with kept positions", "[tp]",
                       {.worlds = {1, 2, 4}}) {
  for (const std::int64_t kdim : {0, 6}) {
    for (const bool sequence : {false, true}) {
      const nn::MultiheadAttentionOptions options{
          .dim = 16, .heads = 8, .kv_heads = 4, .kdim = kdim, .dropout = 0.2, .dtype = DType::kF64};
      nn::MultiheadAttention split(options), whole(options);
      const Placement layout = sequence ? Placement(Shard{1}) : Placement(Replicate{});
      parallelize(split, tp_mesh(t),
                  {{"", HeadParallel{.input_layout = layout, .output_layout = layout}}});
      nn::initialize(split, {.seed = 2});
      nn::initialize(whole, {.seed = 2});
      const Variable query(irregular({2, 8, 16}, 1));
      const Variable key = kdim == 0 ? query : Variable(irregular({2, 8, 6}, 2));
      const auto part = [&](const Variable& x) {
        const std::int64_t length = 8 / t.size();
        return sequence ? slice(x, 1, length * t.rank(), length * (t.rank() + 1)) : x;
      };
      const auto loss = [&](nn::MultiheadAttention& model, const Variable& q, const Variable& k) {
        const random::StepScope scope({.seed = 7, .step = 1, .first_sample = 3});
        const Variable kept = kdim == 0 ? q : k;
        return weighed(model(q, kept, q, nn::AttentionForwardOptions{.is_causal = true}).output);
      };
      const Variable mine = loss(split, part(query), part(key));
      const Variable all = loss(whole, query, key);
      const Tensor total = clone(mine.tensor());
      if (sequence) make_mesh(tp_mesh(t))->all_reduce(total, "tp", nn::MeshReduce::kSum);
      t.check_close(total, all.tensor(), kExact, "loss");
      backward(mine);
      backward(all);
      for (const nn::NamedParameter& named : split.named_parameters()) {
        // The rows of three projections in one parameter: put together by their boxes.
        const nn::ShardSpec& spec = named.parameter.spec();
        const Tensor full = zeros(spec.global_shape, {.dtype = DType::kF64});
        std::int64_t row = 0;
        for (const nn::ShardBox& box : spec.boxes) {
          Tensor target = full;
          for (int d = 0; d < full.ndim(); ++d)
            target = target.narrow(d, box.offset[d], box.extent[d]);
          copy_(target, named.parameter.grad().narrow(0, row, box.extent[0]));
          row += box.extent[0];
        }
        if (!spec.is_whole()) make_mesh(tp_mesh(t))->all_reduce(full, "tp", nn::MeshReduce::kSum);
        t.check_close(full, whole.get_parameter(named.name).grad(), kExact, named.name);
      }
    }
  }
}

TESSERA_RANK_TEST_WITH("attention weights of some heads are refused", "[tp]", {.worlds = {2}}) {
  nn::MultiheadAttention split({.dim = 8, .heads = 2});
  parallelize(split, tp_mesh(t), {{"", HeadParallel{}}});
  nn::initialize(split);
  const Variable x(ones({1, 2, 8}));
  t.check_throws<InvalidArgument>("leave need_weights false", [&] {
    split(x, nn::AttentionForwardOptions{.need_weights = true});
  });
  nn::MultiheadAttention three({.dim = 9, .heads = 3});
  t.check_throws<InvalidArgument>(
      "the module itself (MultiheadAttention) has 3 key-value heads, which 2 ranks cannot share",
      [&] {
        parallelize(three, tp_mesh(t), {{"", HeadParallel{}}});
      });
}

// RMSNorm, LayerNorm and Dropout, one after another, on parts of dim 0 and of dim -2.
TESSERA_RANK_TEST("a sequence in parts, along any dim", "[tp]") {
  for (const int dim : {0, 1, -2}) {
    nn::Sequential split, whole;
    for (nn::Sequential* model : {&split, &whole}) {
      model->add<nn::RMSNorm>({.shape = {4}, .dtype = DType::kF64});
      model->add<nn::Dropout>({.p = 0.4});
      model->add<nn::LayerNorm>({.shape = {4}, .dtype = DType::kF64});
    }
    parallelize(split, tp_mesh(t), {{"?", SequenceParallel{.sequence_dim = dim}}});
    nn::initialize(split, {.seed = 2});
    nn::initialize(whole, {.seed = 2});
    const Variable x(irregular({2 * t.size(), 2 * t.size(), 4}, 1), true);
    const int at = dim < 0 ? 1 : dim;
    const Variable mine(contiguous(slice(x, at, 2 * t.rank(), 2 * t.rank() + 2).tensor()), true);
    const auto loss = [&](nn::Sequential& model, const Variable& in) {
      const random::StepScope scope({.seed = 7, .step = 1});
      return weighed(model(in));
    };
    check_same_training(
        t, {split, whole}, [&] { return loss(split, mine); }, [&] { return loss(whole, x); },
        {.steps = 2, .loss_in_parts = true});
    // Some rows have numbers so close to each other that their derivatives lose four digits.
    t.check_close(mine.grad(), contiguous(x.grad().narrow(at, 2 * t.rank(), 2)), {1e-11, 1e-11},
                  "input");
  }
}

// A residual stream: both norms are called with what is added to it.
class Stream final : public nn::Layer<Stream> {
 public:
  Stream() {
    register_module("down", down_);
    register_module("layer", layer_);
    register_module("rms", rms_);
  }
  Variable forward(const Variable& x, const Variable& z) {
    const AddNorm h = layer_(x, down_(z));
    const AddNorm g = rms_(h.sum, sin(h.y));
    return sin(g.sum) * g.y;
  }

 private:
  nn::Linear down_{{.in = 4, .out = 4, .dtype = DType::kF64}};
  nn::LayerNorm layer_{{.shape = {4}, .dtype = DType::kF64}};
  nn::RMSNorm rms_{{.shape = {4}, .dtype = DType::kF64}};
};

void check_stream(RankTest& t, int dim, bool whole_residual, bool use_local_output) {
  Stream split, whole;
  const Placement residual = whole_residual ? Placement(Replicate{}) : Placement(Shard{dim});
  const SequenceParallel norm{.sequence_dim = dim, .use_local_output = use_local_output};
  parallelize(split, tp_mesh(t),
              {{"down", RowwiseParallel{.input_layout = Replicate{},
                                        .output_layout = residual,
                                        .use_local_output = false}},
               {"layer", norm},
               {"rms", norm}});
  nn::initialize(split, {.seed = 2});
  nn::initialize(whole, {.seed = 2});
  const int n = 2 * t.size(), at = dim < 0 ? 1 : dim, first = 2 * t.rank();
  const Variable x(irregular({n, n, 4}, 1), true), z(irregular({n, n, 4}, 5), true);
  const Variable my_x(contiguous(x.tensor().narrow(at, first, 2)), true), all_z(z.tensor(), true);
  check_same_training(
      t, {split, whole}, [&] { return weighed(split(my_x, all_z)); },
      [&] { return weighed(whole(x, z)); }, {.steps = 2, .lr = 1e-3, .loss_in_parts = true});
  t.check_close(my_x.grad(), contiguous(x.grad().narrow(at, first, 2)), {1e-11, 1e-11}, "x");
  t.check_close(all_z.grad(), z.grad(), {1e-11, 1e-11}, "z");
}

// The residual comes in parts as x does, or whole, as what made it says.
TESSERA_RANK_TEST("norms with a residual, on parts of the sequence", "[tp]") {
  for (const int dim : {0, 1, -2}) {
    for (const bool whole_residual : {false, true}) {
      const RankTest::NamedCase named(t, fmt::format("dim {}, whole {}", dim, whole_residual));
      check_stream(t, dim, whole_residual, /*use_local_output=*/true);
      check_stream(t, dim, whole_residual, /*use_local_output=*/false);
    }
  }
}

// Takes two Variables and returns two.
class Pair final : public nn::Layer<Pair> {
 public:
  std::vector<Variable> forward(const Variable& a, const Variable& b) {
    shapes = {a.shape(), b.shape()};
    return {a * 2.0, b * 3.0};
  }
  std::vector<Shape> shapes;
};

TESSERA_RANK_TEST("arguments and results go to the layouts asked for", "[tp]") {
  const std::int64_t n = t.size();
  Pair pair;
  parallelize(pair, tp_mesh(t),
              {{"", PrepareModuleInput{{LayoutChange{Shard{0}, Shard{-1}}, std::nullopt}}},
               {"", PrepareModuleOutput{{LayoutChange{Shard{1}, Replicate{}},
                                         LayoutChange{Replicate{}, Shard{0}}}}}});
  const Tensor whole = irregular({n, n}, 1);
  const Variable a(contiguous(whole.slice(0, t.rank(), t.rank() + 1)), true), b(whole, true);
  const std::vector<Variable> out = pair(a, b);
  t.check(pair.shapes[0] == Shape{n, 1} && pair.shapes[1] == Shape{n, n}, "seen inside");
  t.check_close(out[0].tensor(), mul(whole, 2.0), "a");
  t.check_close(out[1].tensor(), mul(whole.slice(0, t.rank(), t.rank() + 1), 3.0), "b");
  backward(sum(mul(out[0], Variable(whole))) + sum(square(out[1])));
  t.check_close(a.grad(), contiguous(mul(whole, 2.0).slice(0, t.rank(), t.rank() + 1)), "da");
  t.check_close(b.grad(), mul(whole, 18.0), "db");

  Pair more;
  parallelize(more, tp_mesh(t), {{"", PrepareModuleInput{{std::nullopt}}}});
  t.check_throws<InvalidArgument>("there are 2 Variables, and layouts for 1", [&] { more(a, b); });
}

class Tied final : public nn::Layer<Tied> {
 public:
  Tied() : in_({.entries = 8, .dim = 4}), out_({.in = 4, .out = 8, .bias = false}) {
    register_module("in", in_);
    register_module("out", out_);
    nn::tie(in_.weight(), out_.weight());
  }
  Variable forward(const Variable& x) { return out_(in_(x)); }

 private:
  nn::Embedding in_;
  nn::Linear out_;
};

TESSERA_RANK_TEST_WITH("plans that cannot be are refused, and change nothing", "[tp]",
                       {.worlds = {2}}) {
  const DeviceMesh mesh = tp_mesh(t);
  const auto refused = [&](nn::Module& model, const ParallelPlan& plan, const std::string& text) {
    t.check_throws<InvalidArgument>(text, [&] { parallelize(model, mesh, plan); });
    for (const nn::Parameter& p : model.parameters())
      t.check(p.value_spec() == nn::ShardSpec::whole(p.shape()), "a refused plan cut something");
  };
  testing::MLPModule mlp;
  refused(mlp, {{"net1", ColwiseParallel{}}, {"net3", RowwiseParallel{}}},
          "\"net3\" (RowwiseParallel) matches no module of MLPModule; its modules: net1, relu, "
          "net2");
  refused(mlp, {{"relu", ColwiseParallel{}}},
          "\"relu\" (ReLU) cannot be ColwiseParallel, which is for Linear and Embedding");
  refused(mlp, {{"relu", RowwiseParallel{}}}, "cannot be RowwiseParallel");
  refused(mlp, {{"relu", HeadParallel{}}}, "cannot be HeadParallel, which is for Multihead");
  refused(mlp, {{"net1", SequenceParallel{}}},
          "\"net1\" (Linear) cannot be SequenceParallel, which is for LayerNorm, RMSNorm and "
          "Dropout");
  refused(mlp, {{"net?", ColwiseParallel{}}, {"net2", RowwiseParallel{}}},
          "\"net2\" (Linear) is given RowwiseParallel, and was given ColwiseParallel already");
  refused(mlp, {{"net1", ColwiseParallel{.input_layout = Partial{}}}},
          "layout Partial(sum) of ColwiseParallel; it is Replicate or a Shard of turn 0");
  refused(mlp, {{"net1", RowwiseParallel{.output_layout = Shard{.dim = 0, .turn = 1}}}},
          "layout Shard(0, turn 1)");
  refused(mlp, {{"net1", PrepareModuleInput{{LayoutChange{Partial{}, Replicate{}}}}}},
          "layout Partial(sum) of PrepareModuleInput");
  nn::ModuleList list;
  refused(list, {{"", PrepareModuleInput{}}}, "modules that are called, not containers");
  nn::Embedding embedding({.entries = 4, .dim = 2});
  refused(embedding, {{"", RowwiseParallel{.input_layout = Shard{0}}}},
          "every rank looks the same index up: Replicate");
  refused(embedding, {{"", ColwiseParallel{.input_layout = Shard{0}}}}, "input_layout Shard(0)");

  Tied tied;
  refused(tied, {{"in", ColwiseParallel{}}, {"out", ColwiseParallel{}}},
          "\"in.weight\" (cut to [8, 2]) and \"out.weight\" (cut to [4, 4]) are tied");
  refused(tied, {{"in", RowwiseParallel{}}},
          "\"in.weight\" (cut to [4, 4]) is tied to \"weight\" of \"out\" (Linear), which has no "
          "style");
  t.check_throws<InvalidArgument>("the mesh has axes dp, tp; choose one: mesh[\"tp\"]", [&] {
    const DeviceMesh two({"dp", "tp"}, {1, 2}, t.world().group(), t.world().device());
    parallelize(mlp, two, {});
  });
}

TESSERA_RANK_TEST_WITH("a plan comes once, and before sharding", "[tp]", {.worlds = {2}}) {
  const DeviceMesh mesh = tp_mesh(t);
  testing::MLPModule mlp;
  parallelize(mlp, mesh, {{"net1", ColwiseParallel{}}, {"net2", RowwiseParallel{}}});
  t.check_throws<InvalidArgument>("and was given ColwiseParallel already", [&] {
    parallelize(mlp, mesh, {{"net1", RowwiseParallel{}}});
  });
  nn::initialize(mlp);
  t.check_throws<InvalidArgument>("expects an input [..., 8], got [2, 16]", [&] {
    dynamic_cast<nn::Linear&>(mlp.get_submodule("net2")).forward(Variable(ones({2, 16})));
  });
  testing::MLPModule sharded;
  sharded.get_parameter("net1.weight")
      .shard(row_sharding({16, 10}, 0, 8, 8), std::make_shared<FakeOwner>("g"));
  // The owner is gone; what it sharded stays so.
  t.check_throws<StateError>("is sharded (group g): cut it before that", [&] {
    parallelize(sharded, mesh, {{"net1", ColwiseParallel{}}});
  });
}

TESSERA_RANK_TEST_WITH("a group that owns a parameter is named", "[tp]", {.worlds = {2}}) {
  testing::MLPModule sharded;
  const auto owner = std::make_shared<FakeOwner>("g");
  sharded.get_parameter("net1.weight").shard(row_sharding({16, 10}, 0, 8, 8), owner);
  t.check_throws<StateError>(
      "\"net1.weight\" is sharded (group g): apply tensor parallelism before fully_shard", [&] {
        parallelize(sharded, tp_mesh(t), {{"net1", ColwiseParallel{}}});
      });
}

TESSERA_RANK_TEST_WITH("inputs that cannot be cut are refused", "[tp]", {.worlds = {2}}) {
  nn::Sequential model;
  model.add<nn::Linear>({.in = 4, .out = 4});
  model.add<nn::LayerNorm>({.shape = {4}});
  parallelize(model, tp_mesh(t),
              {{"0", RowwiseParallel{.output_layout = Shard{1}}},
               {"1", SequenceParallel{.sequence_dim = 1}}});
  nn::initialize(model);
  t.check_throws<InvalidArgument>(
      "dim 1 of [2, 3, 4] cannot be cut in equal parts for 2 ranks: pad it to a multiple", [&] {
        model(Variable(ones({2, 3, 2})));
      });
  auto& norm = model.at<nn::LayerNorm>(1);
  t.check_throws<InvalidArgument>(
      "sequence_dim 1 of an input [2, 4] is one of the 1 dims that are normalised", [&] {
        norm(Variable(ones({2, 4})));
      });
  t.check_throws<InvalidArgument>("a tensor of shape [4] has no dim 1 to be Shard(1) along",
                                  [&] { norm(Variable(ones({4}))); });
}

// A layer of the tied pair at a time: the second plan finds the weight cut as it wants it.
TESSERA_RANK_TEST("tied weights may be given styles one after another", "[tp]") {
  Tied split, whole;
  parallelize(split, tp_mesh(t),
              {{"in", RowwiseParallel{}}, {"out", ColwiseParallel{.output_layout = Replicate{}}}});
  nn::initialize(split, {.seed = 2});
  nn::initialize(whole, {.seed = 2});
  const Variable index(indices({2, 3}, 8));
  t.check_close(split(index).tensor(), whole(index).tensor(), "tied");
}

}  // namespace
}  // namespace tessera
