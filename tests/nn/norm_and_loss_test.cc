#include <catch2/catch.hpp>
#include <cmath>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops.h"
#include "tessera/nn/grad_norm.h"
#include "tessera/nn/loss.h"
#include "tessera/tests/nn/support.h"

namespace tessera {
namespace {

using nn::Parameter;
using testing::FakeMesh;
using testing::FakeOwner;
using testing::row_sharding;
using testing::thrown;
using testing::values;

Parameter make(const Shape& shape, double gradient, DType dtype = DType::kF64) {
  Parameter p({.shape = shape, .dtype = dtype, .init = nn::init::zeros()});
  p.materialize(kCpu);
  p.set_grad(full(shape, gradient, {.dtype = dtype}));
  return p;
}

Parameter sharded(std::shared_ptr<const nn::Mesh> mesh, std::vector<std::string> axes,
                  double gradient) {
  Parameter p({.shape = {6}, .dtype = DType::kF64, .init = nn::init::zeros()});
  nn::Sharding sharding = row_sharding({6}, 2, 2, 2, std::move(mesh));
  sharding.spec.sharded_axes = std::move(axes);
  p.shard(std::move(sharding), std::make_shared<FakeOwner>("g"));
  p.materialize(kCpu);
  if (gradient != 0) p.set_grad(full({2}, gradient, {.dtype = DType::kF64}));
  return p;
}

TEST_CASE("the gradient norm is the root of all squares; tied parameters and missing gradients") {
  const Parameter a = make({2, 3}, 2), b = make({5}, -1, DType::kF32), empty = make({0, 4}, 1);
  Parameter none = make({3}, 9);
  none.zero_grad();
  const Tensor norm = nn::grad_norm(std::vector<Parameter>{a, b, a, none, empty});
  CHECK(norm.dtype() == DType::kF64);
  CHECK(norm.ndim() == 0);
  CHECK(std::abs(norm.item<double>() - std::sqrt(6 * 4.0 + 5)) < 1e-14);
  CHECK(nn::grad_norm({}).item<double>() == 0);
}

TEST_CASE("each sharded axis is all-reduced once, whole parameters not at all") {
  const auto mesh =
      std::make_shared<FakeMesh>(std::vector<std::string>{"replica", "data", "tensor"}, 2);
  mesh->others = 100;
  const std::vector<Parameter> parameters{make({2}, 3),                // 18, on every rank the same
                                          sharded(mesh, {"data"}, 1),  // 2 + 100
                                          sharded(mesh, {"data"}, 0),  // no gradient here
                                          sharded(mesh, {"data", "tensor"}, 2),  // 8 + 100 + 100
                                          sharded(mesh, {"tensor"}, 3)};         // 18 + 100
  const double norm = nn::grad_norm(parameters).item<double>();
  CHECK(std::abs(norm - std::sqrt(18.0 + 102 + 208 + 118)) < 1e-12);
  CHECK(mesh->reduced == std::vector<std::string>{"data[2]", "tensor[2]"});
}

TEST_CASE("a rank without any gradient joins the same collectives") {
  const auto mesh = std::make_shared<FakeMesh>(std::vector<std::string>{"data"}, 3);
  mesh->others = 16;
  CHECK(nn::grad_norm(std::vector<Parameter>{sharded(mesh, {"data"}, 0)}).item<double>() == 4);
  CHECK(mesh->reduced.size() == 1);
}

TEST_CASE("global_mean on one rank is the mean") {
  const Variable x(Tensor::from_vector<double>({1, 2, 6}, {3}), true);
  const Variable loss = nn::global_mean(sum(x), 3, *nn::local_mesh());
  CHECK(std::abs(loss.item<double>() - 3) < 1e-15);
  backward(loss);
  for (double g : values(x.grad())) CHECK(std::abs(g - 1.0 / 3) < 1e-15);
}

TEST_CASE("global_mean scales by ranks over the global count, with one all-reduce of the counts") {
  FakeMesh mesh({"data"}, 4);
  mesh.others = 7;  // samples on the other three ranks
  const Variable sum_f32(Tensor::scalar(5), true);
  const Variable loss = nn::global_mean(sum_f32, 3, mesh);
  CHECK(loss.dtype() == DType::kF32);
  CHECK(loss.item<float>() == 2.0f);  // 5 * 4 / 10
  CHECK(mesh.reduced == std::vector<std::string>{"data[]"});
  backward(loss);
  CHECK(sum_f32.grad().item<float>() == 0.4f);
  CHECK(nn::global_mean(Variable(Tensor::scalar(0)), 0, mesh).item<float>() == 0.0f);
}

TEST_CASE("global_mean refuses a loss that is not summed, a negative count and an unknown axis") {
  CHECK(thrown<InvalidArgument>([] {
          nn::global_mean(Variable(ones({2})), 2, *nn::local_mesh());
        }) == "[nn.global_mean] expected a loss of one element, got shape [2]: sum it first");
  CHECK(thrown<InvalidArgument>([] {
          nn::global_mean(Variable(ones({})), -1, *nn::local_mesh());
        }) == "[nn.global_mean] local_count is -1");
  CHECK(thrown<InvalidArgument>([] {
          nn::global_mean(Variable(ones({})), 1, *nn::local_mesh(), "model");
        }).find("unknown axis \"model\"") != std::string::npos);
}

}  // namespace
}  // namespace tessera
