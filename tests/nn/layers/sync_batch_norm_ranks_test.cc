// BatchNorm over the ranks of a mesh: one BatchNorm over the whole batch, however it is cut.

#include <catch2/catch.hpp>
#include <iterator>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/distributed/parameters/mesh_impl.h"
#include "tessera/nn/layers/batch_norm.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/layers/sequential.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tensor/random.h"
#include "tessera/tests/support/ranks.h"

namespace tessera {
namespace {

Tensor random_tensor(const Shape& shape, std::uint64_t seed, DType dtype) {
  const Tensor x = Tensor::empty(shape, {.dtype = dtype});
  random::fill_normal(x, random::named_key(seed, "x"), random::whole(shape), 2, 1);
  return x;
}

// How many samples a rank has: uneven, and none on rank 1.
std::int64_t rows_of(int rank) {
  constexpr std::int64_t kRows[] = {3, 0, 1, 4};
  return kRows[static_cast<std::size_t>(rank) % std::size(kRows)];
}

struct Part {
  std::int64_t first = 0, last = 0, total = 0;
  explicit Part(const testing::RankTest& t) {
    for (int rank = 0; rank < t.size(); ++rank) {
      if (rank == t.rank()) first = total;
      total += rows_of(rank);
      if (rank == t.rank()) last = total;
    }
  }
  Tensor of(const Tensor& whole) const { return contiguous(whole.slice(0, first, last)); }
};

// A layer over all ranks on this rank's samples, against one alone on all of them.
template <class L>
void check_against_whole(testing::RankTest& t, nn::BatchNormOptions options, const Shape& sample,
                         testing::Tolerance tolerance) {
  const auto mesh = distributed::make_mesh(t.world().mesh());
  const Part part(t);
  L whole(options);
  options.mesh = mesh;
  options.axis = "data";
  L synced(options);
  nn::initialize(whole);
  nn::initialize(synced);
  for (std::uint64_t step = 0; step < 2; ++step) {
    const Tensor all = random_tensor(sample.inserted(0, part.total), step, options.dtype);
    const Tensor slopes = random_tensor(all.shape(), step + 10, options.dtype);
    const Variable x_all(all, true), x(part.of(all), true);
    const Variable y_all = whole(x_all), y = synced(x);
    t.check_close(y.tensor(), part.of(y_all.tensor()), tolerance, "y");
    backward(sum(mul(y_all, Variable(slopes))));
    backward(sum(mul(y, Variable(part.of(slopes)))));
    t.check_close(x.grad(), part.of(x_all.grad()), tolerance, "dx");
    if (!options.affine) continue;
    for (std::size_t i = 0; i < whole.parameters().size(); ++i) {
      const Tensor gradient = synced.parameters()[i].grad();
      mesh->all_reduce(gradient, "data", nn::MeshReduce::kSum);
      t.check_close(gradient, whole.parameters()[i].grad(), tolerance,
                    i == 0 ? "dweight" : "dbias");
    }
    for (L* layer : {&whole, &synced}) {
      for (nn::Parameter p : layer->parameters()) p.zero_grad();
    }
  }
  t.check_close(synced.running_mean().tensor(), whole.running_mean().tensor(), tolerance, "mean");
  t.check_close(synced.running_var().tensor(), whole.running_var().tensor(), tolerance, "var");
  t.check_equal(synced.num_batches_tracked().tensor(), whole.num_batches_tracked().tensor());
  const Tensor gathered = mesh->all_gather(synced.running_var().tensor().unsqueeze(0), "data");
  for (int rank = 0; rank < t.size(); ++rank) {
    t.check_equal(contiguous(gathered.select(0, rank)), synced.running_var().tensor(),
                  "bits of the running variance");
  }
  synced.eval();  // no collectives: ranks may do it alone
  whole.eval();
  if (t.rank() == 0) {
    const Variable x(random_tensor(sample.inserted(0, 2), 20, options.dtype));
    t.check_close(synced(x).tensor(), whole(x).tensor(), tolerance, "evaluation");
  }
}

TESSERA_RANK_TEST("batch norm over ranks is that of the whole batch", "[nn]") {
  check_against_whole<nn::BatchNorm1d>(t, {.channels = 3, .dtype = DType::kF64}, {3},
                                       {1e-12, 1e-12});
  check_against_whole<nn::BatchNorm1d>(
      t, {.channels = 3, .momentum = std::nullopt, .dtype = DType::kF64}, {3, 5}, {1e-12, 1e-12});
  check_against_whole<nn::BatchNorm1d>(t, {.channels = 3, .bias = false, .dtype = DType::kF64}, {3},
                                       {1e-12, 1e-12});
  check_against_whole<nn::BatchNorm2d>(t, {.channels = 5, .affine = false, .dtype = DType::kF64},
                                       {5, 2, 3}, {1e-12, 1e-12});
  // On a GPU the two means of f32 may be neighbours; dweight moves by their difference times the
  // sum of dy, which is some 100 here.
  const double atol = default_device().is_cuda() ? 1e-4 : 1e-5;
  check_against_whole<nn::BatchNorm2d>(t, {.channels = 2}, {2, 3, 3}, {1e-5, atol});
}

TESSERA_RANK_TEST("evaluation without running statistics takes this rank's batch", "[nn]") {
  const auto mesh = distributed::make_mesh(t.world().mesh());
  nn::BatchNorm1d layer(
      {.channels = 2, .affine = false, .track_running_stats = false, .mesh = mesh});
  nn::BatchNorm1d alone({.channels = 2, .affine = false, .track_running_stats = false});
  layer.eval();
  if (t.rank() != 0) return;
  const Variable x(random_tensor({4, 2}, 1, DType::kF32));
  t.check_equal(layer(x).tensor(), alone(x).tensor());
}

TESSERA_RANK_TEST("all batch norms of a model are synchronized by one call", "[nn]") {
  const auto mesh = distributed::make_mesh(t.world().mesh());
  nn::Sequential model;
  model.add<nn::Linear>({.in = 2, .out = 2});
  model.add<nn::BatchNorm1d>({.channels = 2});
  nn::Sequential& inner = model.add<nn::Sequential>();
  inner.add<nn::BatchNorm1d>({.channels = 2});
  nn::initialize(model, {.seed = 1});
  const auto names = [&] {
    return fmt::format("{}", fmt::join(nn::batch_norms_with_local_batches(model), " "));
  };
  const Variable x(random_tensor({3, 2}, static_cast<std::uint64_t>(t.rank()), DType::kF32));
  model.eval();
  model(x);
  t.check(names().empty(), "evaluation counts as training: {}", names());
  model.train();
  model(x);
  t.check(names() == "1 2.0", "local batches in {}", names());
  t.check(nn::synchronize_batch_norms(model, t.world().mesh()) == 2,
          "not all batch norms are found");
  nn::initialize(model, {.seed = 1});
  for (nn::NamedModule& named : model.named_modules()) {
    auto* norm = dynamic_cast<nn::BatchNorm1d*>(named.module);
    if (norm == nullptr) continue;
    t.check(norm->is_synchronized(), "{} is not synchronized", named.name);
    norm->reset_running_stats();
  }
  t.check(names().empty(), "local batches after a reset in {}", names());
  model(x);
  t.check(names().empty(), "local batches although synchronized in {}", names());
  for (nn::NamedBuffer& named : model.named_buffers()) {
    const Tensor own = cast(named.buffer.tensor(), DType::kF64).unsqueeze(0);
    const Tensor all = mesh->all_gather(contiguous(own), "data");
    for (int rank = 0; rank < t.size(); ++rank)
      t.check_equal(contiguous(all.select(0, rank)), contiguous(own.select(0, 0)), named.name);
  }
  t.check_throws<InvalidArgument>("it needs a mesh: that of a world is world.mesh()",
                                  [&] { nn::synchronize_batch_norms(model, nullptr); });
  t.check_throws<InvalidArgument>("model",
                                  [&] { nn::synchronize_batch_norms(model, mesh, "model"); });
}

TESSERA_RANK_TEST("an axis that the mesh has not", "[nn]") {
  const auto mesh = distributed::make_mesh(t.world().mesh());
  t.check_throws<InvalidArgument>(
      "model", [&] { nn::BatchNorm1d({.channels = 2, .mesh = mesh, .axis = "model"}); });
}

}  // namespace
}  // namespace tessera
