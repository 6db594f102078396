// Muon: the iteration and the step against plain loops, dtypes, errors.
#include "tessera/nn/optim/muon.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tests/nn/optim/support.h"

namespace tessera {
namespace {

using nn::Parameter;
using nn::optim::Muon;
using nn::optim::MuonOptions;
using nn::optim::newton_schulz;
using namespace testing;

using Matrix = std::vector<std::vector<double>>;

Matrix product(const Matrix& a, const Matrix& b) {
  Matrix out(a.size(), std::vector<double>(b.empty() ? 0 : b[0].size()));
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t j = 0; j < out[i].size(); ++j)
      for (std::size_t k = 0; k < b.size(); ++k) out[i][j] += a[i][k] * b[k][j];
  return out;
}

Matrix transposed(const Matrix& a) {
  Matrix out(a[0].size(), std::vector<double>(a.size()));
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t j = 0; j < a[i].size(); ++j) out[j][i] = a[i][j];
  return out;
}

Matrix plain_iteration(Matrix x) {
  const bool tall = x.size() > x[0].size();
  if (tall) x = transposed(x);
  double squares = 0;
  for (const auto& row : x)
    for (double e : row) squares += e * e;
  for (auto& row : x)
    for (double& e : row) e /= std::max(std::sqrt(squares), 1e-7);
  for (int step = 0; step < 5; ++step) {
    const Matrix gram = product(x, transposed(x)), square = product(gram, gram);
    Matrix change = gram;
    for (std::size_t i = 0; i < gram.size(); ++i)
      for (std::size_t j = 0; j < gram.size(); ++j)
        change[i][j] = -4.7750 * gram[i][j] + 2.0315 * square[i][j];
    const Matrix moved = product(change, x);
    for (std::size_t i = 0; i < x.size(); ++i)
      for (std::size_t j = 0; j < x[i].size(); ++j) x[i][j] = 3.4445 * x[i][j] + moved[i][j];
  }
  return tall ? transposed(x) : x;
}

Matrix as_matrix(const std::vector<double>& values, std::size_t columns) {
  Matrix out;
  for (std::size_t at = 0; at < values.size(); at += columns) {
    const auto begin = values.begin() + static_cast<std::ptrdiff_t>(at);
    out.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(columns));
  }
  return out;
}

std::vector<double> flat(const Matrix& matrix) {
  std::vector<double> out;
  for (const auto& row : matrix) out.insert(out.end(), row.begin(), row.end());
  return out;
}

TEST_CASE("newton_schulz: against plain loops, for wide, tall and square matrices") {
  for (const Shape& shape : {Shape{3, 5}, Shape{7, 2}, Shape{4, 4}, Shape{1, 3}, Shape{1, 1}}) {
    const Tensor x = random_gradient(shape, 3);
    const auto expected =
        flat(plain_iteration(as_matrix(values(x), static_cast<std::size_t>(shape[1]))));
    CHECK(distance(values(contiguous(newton_schulz(x))), expected) < 1e-13);
    const Tensor narrow = cast(x, DType::kF32);
    CHECK(newton_schulz(narrow).dtype() == DType::kF32);
    CHECK(distance(values(contiguous(newton_schulz(narrow))), expected) < 1e-4);
  }
  CHECK(values(newton_schulz(zeros({2, 3}, kDouble))) == std::vector<double>(6, 0));
  CHECK(newton_schulz(zeros({0, 3})).shape() == Shape{0, 3});
  CHECK(newton_schulz(zeros({3, 0})).shape() == Shape{3, 0});
  CHECK(thrown<InvalidArgument>([] { newton_schulz(zeros({3})); }) ==
        "[nn.optim.newton_schulz] needs a matrix, got a tensor of shape [3]");
}

TEST_CASE("Muon follows its formula for every combination of options") {
  for (const Shape& shape : {Shape{3, 5}, Shape{6, 2}}) {
    for (bool nesterov : {false, true}) {
      for (bool match : {false, true}) {
        Parameter p = make(shape, 1);
        const MuonOptions o{.lr = 0.05,
                            .weight_decay = 0.2,
                            .momentum = 0.8,
                            .nesterov = nesterov,
                            .match_rms_adamw = match};
        Muon optimizer({p}, o);
        std::vector<double> plain = local_values(p), m(plain.size()), u(plain.size());
        const double rows = static_cast<double>(shape[0]), columns = static_cast<double>(shape[1]);
        const double scale = match ? 0.2 * std::sqrt(std::max(rows, columns))
                                   : std::sqrt(std::max(1.0, rows / columns));
        for (std::uint64_t step = 0; step < 4; ++step) {
          p.set_grad(random_gradient(shape, step));
          const auto g = values(p.grad());
          optimizer.step();
          for (std::size_t i = 0; i < m.size(); ++i) {
            m[i] = 0.8 * m[i] + 0.2 * g[i];
            u[i] = nesterov ? 0.2 * g[i] + 0.8 * m[i] : m[i];
          }
          const auto update =
              flat(plain_iteration(as_matrix(u, static_cast<std::size_t>(shape[1]))));
          for (std::size_t i = 0; i < m.size(); ++i)
            plain[i] = plain[i] * (1 - 0.05 * 0.2) - 0.05 * scale * update[i];
        }
        CHECK(distance(local_values(p), plain) < 1e-12);
        CHECK(distance(values(optimizer.state(p, "momentum")), m) < 1e-14);
      }
    }
  }
}

TEST_CASE("Muon computes 16-bit matrices in f32 and rounds once; empty ones are legal") {
  Parameter half = make({5, 3}, 1, DType::kBF16), wide = make({5, 3}, 1, DType::kF32),
            empty = make({0, 3}, 2);
  copy_(wide.local().tensor(), half.local().tensor());
  Muon half_muon({half, empty}, {}), wide_muon({wide}, {});
  half.set_grad(cast(random_gradient({5, 3}, 7), DType::kBF16));
  wide.set_grad(cast(half.grad(), DType::kF32));
  empty.set_grad(zeros({0, 3}, kDouble));
  half_muon.step();
  wide_muon.step();
  CHECK(values(cast(half.local().tensor(), DType::kF32)) ==
        values(cast(cast(wide.local().tensor(), DType::kBF16), DType::kF32)));
  CHECK(half_muon.state(half, "momentum").dtype() == DType::kF32);
}

TEST_CASE("Muon's errors") {
  const Parameter matrix = make({2, 3}, 1), bias = make({3}, 2);
  CHECK(thrown<InvalidArgument>([&] {
          Muon({matrix, bias}, {});
        }) ==
        "[nn.optim.Muon] \"p2\" of shape [3] is not a matrix: put it into an AdamW beside this "
        "optimizer, as group_parameters(model, min_dims(2)) splits them");
  const auto refused = [&](const MuonOptions& o) {
    return thrown<InvalidArgument>([&] { Muon({matrix}, o); });
  };
  CHECK(refused({.lr = -1}) == "[nn.optim.Muon] lr is -1; give one that is at least 0");
  CHECK(refused({.weight_decay = -1}) == "[nn.optim.Muon] weight_decay is -1; it is at least 0");
  CHECK(refused({.momentum = 1.5}) == "[nn.optim.Muon] momentum is 1.5; it lies in [0, 1]");
  CHECK(refused({.newton_schulz = {.steps = -1}}) ==
        "[nn.optim.Muon] newton_schulz.steps is -1; it is at least 0");
  CHECK(refused({.newton_schulz = {.eps = 0}}) ==
        "[nn.optim.Muon] newton_schulz.eps is 0; it is above 0");
}

TEST_CASE("Muon refuses shards that are not chunks of rows in rank order") {
  const auto owner = std::make_shared<FakeOwner>("g");
  const auto refused = [&](nn::Sharding sharding) {
    Parameter p = make({4, 3}, 1);
    p.shard(std::move(sharding), owner);
    p.set_grad(zeros(p.local().shape(), kDouble));
    Muon optimizer({p}, {});
    return thrown<InvalidArgument>([&] { optimizer.step(); });
  };
  // Rank 0 of 2 would hold rows 0 and 1.
  const auto mesh = std::make_shared<FakeMesh>(std::vector<std::string>{"data"}, 2);
  CHECK(refused(row_sharding({4, 3}, 1, 2, 2, mesh)) ==
        "[nn.optim] \"p1\" of shape [4, 3] is not sharded in chunks of 2 rows in rank order, of "
        "which this rank's would be number 0: shard it over dim 0, or leave it to an optimizer "
        "that works element by element");
  nn::Sharding two_boxes = row_sharding({4, 3}, 0, 2, 2, mesh);
  two_boxes.spec.boxes = {{.offset = {0, 0}, .extent = {1, 3}},
                          {.offset = {2, 0}, .extent = {1, 3}}};
  CHECK(refused(two_boxes).find("is not sharded in chunks") != std::string::npos);
  nn::Sharding columns = row_sharding({4, 3}, 0, 4, 4, mesh);
  columns.spec.boxes = {{.offset = {0, 1}, .extent = {4, 2}}};
  columns.local_shape = {4, 2};
  CHECK(refused(columns).find("is not sharded in chunks") != std::string::npos);
}

}  // namespace
}  // namespace tessera
