// Norms of all gradients and clipping: against PyTorch, over mixtures of specs, with missing and
// empty gradients, NaN and infinity; and every error.
#include "tessera/nn/training/clip_grad.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tests/nn/support.h"

namespace tessera {
namespace {

using nn::Parameter;
using testing::FakeMesh;
using testing::FakeOwner;
using testing::row_sharding;
using testing::thrown;
using testing::values;
using Parameters = std::vector<Parameter>;

constexpr double kInf = std::numeric_limits<double>::infinity();

Parameter make(const Shape& shape, double gradient, DType dtype = DType::kF64) {
  Parameter p({.shape = shape, .dtype = dtype, .init = nn::init::zeros()});
  p.materialize(default_device());
  p.set_grad(full(shape, gradient, {.dtype = dtype}));
  return p;
}

Parameter with_gradient(const std::vector<double>& gradient, DType dtype = DType::kF64) {
  const Shape shape{static_cast<std::int64_t>(gradient.size())};
  Parameter p = make(shape, 0, dtype);
  p.set_grad(cast(Tensor::from_vector(gradient, shape), dtype));
  return p;
}

Parameter sharded(std::shared_ptr<const nn::Mesh> mesh, std::vector<std::string> axes,
                  double gradient) {
  Parameter p({.shape = {6}, .dtype = DType::kF64, .init = nn::init::zeros()});
  nn::Sharding sharding = row_sharding({6}, 2, 2, 2, std::move(mesh));
  sharding.spec.sharded_axes = std::move(axes);
  p.shard(std::move(sharding), std::make_shared<FakeOwner>("g"));
  p.materialize(default_device());
  if (gradient != 0) p.set_grad(full({2}, gradient, {.dtype = DType::kF64}));
  return p;
}

double norm(const Parameters& parameters, double p = 2) {
  return nn::grad_norm(parameters, {.norm_type = p}).item<double>();
}

TEST_CASE("the gradient norm is the root of all squares; tied parameters and missing gradients") {
  const Parameter a = make({2, 3}, 2), b = make({5}, -1, DType::kF32), empty = make({0, 4}, 1);
  Parameter none = make({3}, 9);
  none.zero_grad();
  const Tensor total = nn::grad_norm(Parameters{a, b, a, none, empty});
  CHECK(total.dtype() == DType::kF64);
  CHECK(total.ndim() == 0);
  CHECK(std::abs(total.item<double>() - std::sqrt(6 * 4.0 + 5)) < 1e-14);
  for (double p : {0.5, 1.0, 2.0, 3.0, kInf}) {
    CHECK(norm({}, p) == 0);
    CHECK(norm({none, empty}, p) == 0);
  }
}

TEST_CASE("each sharded axis is all-reduced once, whole parameters not at all") {
  const auto mesh =
      std::make_shared<FakeMesh>(std::vector<std::string>{"replica", "data", "tensor"}, 2);
  mesh->others = 100;
  const Parameters parameters{make({2}, 3),                          // 18, on every rank the same
                              sharded(mesh, {"data"}, 1),            // 2 + 100
                              sharded(mesh, {"data"}, 0),            // no gradient here
                              sharded(mesh, {"data", "tensor"}, 2),  // 8 + 100 + 100
                              sharded(mesh, {"tensor"}, 3)};         // 18 + 100
  CHECK(std::abs(norm(parameters) - std::sqrt(18.0 + 102 + 208 + 118)) < 1e-12);
  CHECK(mesh->reduced == std::vector<std::string>{"data[2]", "tensor[2]"});
  mesh->reduced.clear();
  mesh->others = 2.5;  // the largest magnitude there
  CHECK(norm(parameters, kInf) == 3);
  mesh->others = 7;
  CHECK(norm(parameters, kInf) == 7);
  CHECK(mesh->reduced.size() == 4);
}

TEST_CASE("axes of several meshes are reduced each on its own mesh") {
  const auto first = std::make_shared<FakeMesh>(std::vector<std::string>{"data"}, 2);
  const auto second = std::make_shared<FakeMesh>(std::vector<std::string>{"data"}, 4);
  first->others = 10;
  second->others = 1000;
  const Parameters parameters{sharded(first, {"data"}, 1), make({1}, 2),
                              sharded(second, {"data"}, 2), sharded(first, {"data"}, 3)};
  CHECK(norm(parameters, 1) == (2 + 6 + 10) + 2 + (4 + 1000));
  CHECK(first->reduced == std::vector<std::string>{"data[1]"});
  CHECK(second->reduced == std::vector<std::string>{"data[1]"});
}

TEST_CASE("a rank without any gradient joins the same collectives") {
  const auto mesh = std::make_shared<FakeMesh>(std::vector<std::string>{"data"}, 3);
  mesh->others = 16;
  CHECK(norm({sharded(mesh, {"data"}, 0)}) == 4);
  CHECK(norm({sharded(mesh, {"data"}, 0)}, 1) == 16);
  CHECK(norm({sharded(mesh, {"data"}, 0)}, kInf) == 16);
  const Tensor total = nn::clip_grad_norm(Parameters{sharded(mesh, {"data"}, 0)}, 1);
  CHECK(total.item<double>() == 4);
  CHECK(mesh->reduced.size() == 4);
}

TEST_CASE("clipping is PyTorch's, for every kind of norm") {
  struct Case {
    double p, max_norm, norm;
    std::vector<double> first, second;
  };
  const std::vector<Case> cases = {
      {1,
       2.5,
       10,
       {0.7499999250000076, -0.9999999000000102},
       {0.24999997500000254, 0, -0.4999999500000051}},
      {2,
       2.5,
       5.477225575051661,
       {1.369306143762961, -1.8257415250172813},
       {0.4564353812543203, 0, -0.9128707625086406}},
      {3,
       2.5,
       4.641588833612778,
       {1.6158256694048254, -2.1544342258731004},
       {0.5386085564682751, 0, -1.0772171129365502}},
      {0.5,
       2.5,
       37.7765657052182,
       {0.19853577638552317, -0.2647143685140309},
       {0.06617859212850773, 0, -0.13235718425701545}},
      {kInf,
       2.5,
       4,
       {1.874999531250117, -2.499999375000156},
       {0.624999843750039, 0, -1.249999687500078}},
      {2, 100, 5.477225575051661, {3, -4}, {1, 0, -2}},  // below the limit: as they are
      {2, 0, 5.477225575051661, {0, 0}, {0, 0, 0}},
  };
  for (const Case& c : cases) {
    INFO("p " << c.p << ", at most " << c.max_norm);
    const Parameter a = with_gradient({3, -4}), b = with_gradient({1, 0, -2});
    const Tensor before = a.grad();
    const Tensor total = nn::clip_grad_norm(Parameters{a, b, a}, c.max_norm, {.norm_type = c.p});
    CHECK(total.ndim() == 0);
    CHECK(std::abs(total.item<double>() - c.norm) < 1e-13 * c.norm);
    CHECK(a.grad().storage() == before.storage());  // in place
    for (std::size_t i = 0; i < 2; ++i) CHECK(std::abs(values(a.grad())[i] - c.first[i]) < 1e-14);
    for (std::size_t i = 0; i < 3; ++i) CHECK(std::abs(values(b.grad())[i] - c.second[i]) < 1e-14);
  }
}

TEST_CASE("norms of 16-bit gradients are added in f64") {
  // 4096 ones and 1: in bf16 the sum would stop at 256, in f16 the square of 300 is infinite.
  for (DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    const Parameter ones = make({4097}, 1, dtype), large = make({3}, 300, dtype);
    CHECK(norm({ones}, 1) == 4097);
    CHECK(norm({ones}) == std::sqrt(4097.0));
    CHECK(std::abs(norm({large}) - 300 * std::sqrt(3.0)) < 1e-10);
    CHECK(std::abs(norm({large}, 3) - 300 * std::cbrt(3.0)) < 1e-10);
    CHECK(norm({large, ones}, kInf) == 300);
    nn::clip_grad_norm(Parameters{large}, 300, {.norm_type = kInf});
    CHECK(large.grad().dtype() == dtype);
    CHECK(std::abs(values(cast(large.grad(), DType::kF64))[2] - 300) < 1e-3);
  }
}

TEST_CASE("a norm that is not finite is an error on request, with gradients as they were") {
  for (double bad : {kInf, std::nan("")}) {
    for (double p : {1.0, 2.0, 3.0, kInf}) {
      const Parameter a = with_gradient({1, bad, 2}), b = with_gradient({5});
      CHECK(thrown<StateError>([&] {
              nn::clip_grad_norm(Parameters{a, b}, 1, {.norm_type = p, .error_if_nonfinite = true});
            }) == fmt::format("[nn.clip_grad_norm] the gradients have a norm of {} (norm_type {}); "
                              "leave this step out, lower the learning rate, or look for the first "
                              "NaN with AnomalyGuard",
                              bad, p));
      CHECK(values(b.grad())[0] == 5);
      const double total = nn::clip_grad_norm(Parameters{a, b}, 1, {.norm_type = p}).item<double>();
      CHECK((std::isnan(bad) ? std::isnan(total) : total == kInf));
      CHECK((std::isnan(bad) ? std::isnan(values(b.grad())[0]) : values(b.grad())[0] == 0));
    }
  }
}

TEST_CASE("clip_grad_value cuts elements off") {
  const Parameter a = with_gradient({-3, 0.5, 7, -0.25}),
                  b = with_gradient({kInf, std::nan("")}, DType::kF32);
  Parameter none = make({3}, 9);
  none.zero_grad();
  nn::clip_grad_value(Parameters{a, none, b, a}, 0.75);
  CHECK(values(a.grad()) == std::vector<double>{-0.75, 0.5, 0.75, -0.25});
  CHECK(values(b.grad())[0] == 0.75);
  CHECK(std::isnan(values(b.grad())[1]));
  CHECK_FALSE(none.grad().defined());
}

TEST_CASE("clipping runs on the null device, where nothing can be read") {
  Parameter p({.shape = {3, 2}, .init = nn::init::zeros()});
  p.materialize(kNull);
  p.set_grad(Tensor::empty({3, 2}, {.device = kNull}));
  for (double norm_type : {1.0, 2.0, kInf})
    CHECK(nn::clip_grad_norm(Parameters{p}, 1, {.norm_type = norm_type}).device() == kNull);
  nn::clip_grad_value(Parameters{p}, 1);
}

TEST_CASE("clipping names limits that make no sense") {
  const Parameters one{make({1}, 1)};
  const auto text = [](auto body) { return thrown<InvalidArgument>(body); };
  CHECK(text([&] { nn::grad_norm(one, {.norm_type = 0}); }) ==
        "[nn.grad_norm] norm_type is 0; it is above 0, or infinity");
  CHECK(text([&] { nn::clip_grad_norm(one, 1, {.norm_type = std::nan("")}); }) ==
        "[nn.clip_grad_norm] norm_type is nan; it is above 0, or infinity");
  CHECK(text([&] { nn::clip_grad_norm(one, -1); }) ==
        "[nn.clip_grad_norm] max_norm is -1; it is at least 0");
  CHECK(text([&] { nn::clip_grad_norm(one, std::nan("")); }) ==
        "[nn.clip_grad_norm] max_norm is nan; it is at least 0");
  CHECK(text([&] { nn::clip_grad_value(one, -0.5); }) ==
        "[nn.clip_grad_value] max_value is -0.5; it is at least 0");
}

}  // namespace
}  // namespace tessera
