// 0-d tensors in operations along a dim: shapes and values as in PyTorch 2.15.
#include <catch2/catch.hpp>
#include <functional>
#include <optional>

#include "tessera/tensor/error.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tests/support/throws.h"

namespace tessera {
namespace {

using namespace testing;

struct Case {
  const char* name;
  std::function<Tensor(const Tensor&, int)> call;
  double expected = 3;
  Shape shape = {};
};

Tensor zero() { return Tensor::scalar(0, {.dtype = DType::kI64}); }
Tensor zero_index() { return zeros({1}, {.dtype = DType::kI64}); }

using T = const Tensor&;

std::vector<Case> reductions() {
  return {
      {"sum", [](T x, int d) { return sum(x, {d}); }},
      {"sum, kept", [](T x, int d) { return sum(x, {d}, true); }},
      {"mean", [](T x, int d) { return mean(x, {d}); }},
      {"prod", [](T x, int d) { return prod(x, {d}); }},
      {"amax", [](T x, int d) { return amax(x, {d}); }},
      {"aminmax", [](T x, int d) { return aminmax(x, {d}).min; }},
      {"nansum", [](T x, int d) { return nansum(x, {d}); }},
      {"nanmean", [](T x, int d) { return nanmean(x, {d}); }},
      {"count_nonzero", [](T x, int d) { return count_nonzero(x, {d}); }, 1},
      {"any", [](T x, int d) { return any(x, {d}); }, 1},
      {"logsumexp", [](T x, int d) { return logsumexp(x, {d}); }},
      {"var", [](T x, int d) { return var(x, {d}, {.correction = 0}); }, 0},
      {"norm", [](T x, int d) { return norm(x, {d}); }},
      {"cumsum", [](T x, int d) { return cumsum(x, d); }},
      {"cumprod", [](T x, int d) { return cumprod(x, d); }},
      {"logcumsumexp", [](T x, int d) { return logcumsumexp(x, d); }},
      {"cummax", [](T x, int d) { return cummax(x, d).values; }},
      {"cummin, place", [](T x, int d) { return cummin(x, d).indices; }, 0},
  };
}

std::vector<Case> choices() {
  return {
      {"argmax", [](T x, int d) { return argmax(x, d); }, 0},
      {"argmin, kept", [](T x, int d) { return argmin(x, d, true); }, 0},
      {"argmax of all", [](T x, int) { return argmax(x, std::nullopt); }, 0},
      {"max", [](T x, int d) { return max(x, d).values; }},
      {"min, kept", [](T x, int d) { return min(x, d, true).indices; }, 0},
      {"sort", [](T x, int d) { return sort(x, d).values; }},
      {"sort, places", [](T x, int d) { return sort(x, d).indices; }, 0},
      {"argsort", [](T x, int d) { return argsort(x, d); }, 0},
      {"topk", [](T x, int d) { return topk(x, 1, d).values; }},
      {"kthvalue", [](T x, int d) { return kthvalue(x, 1, d).values; }},
      {"median", [](T x, int d) { return median(x, d).values; }},
      {"nanmedian", [](T x, int d) { return nanmedian(x, d).indices; }, 0},
      {"mode", [](T x, int d) { return mode(x, d).values; }},
      {"quantile", [](T x, int d) { return quantile(x, 0.5, {.dim = d}); }},
      {"quantile, kept",
       [](T x, int d) { return quantile(x, 0.5, {.dim = d, .keep_dims = true}); }},
  };
}

std::vector<Case> others() {
  return {
      {"softmax", [](T x, int d) { return softmax(x, d); }, 1},
      {"log_softmax", [](T x, int d) { return log_softmax(x, d); }, 0},
      {"softmax_backward", [](T x, int d) { return softmax_backward(x, ones({}), d); }, 0},
      {"softmin", [](T x, int d) { return softmin(x, d); }, 1},
      {"normalize", [](T x, int d) { return normalize(x, {.dim = d}); }, 1},
      {"cosine_similarity", [](T x, int d) { return cosine_similarity(x, x, {.dim = d}); }, 1},
      {"pairwise_distance", [](T x, int) { return pairwise_distance(x, ones({})); }, 2},
      {"squeeze", [](T x, int d) { return squeeze(x, d); }},
      {"unsqueeze", [](T x, int d) { return unsqueeze(x, d); }, 3, {1}},
      {"transpose", [](T x, int d) { return transpose(x, d, 0); }},
      {"movedim", [](T x, int d) { return movedim(x, d, -1); }},
      {"flatten", [](T x, int d) { return flatten(x, d, -1); }, 3, {1}},
      {"flip", [](T x, int d) { return flip(x, {d}); }},
  };
}

std::vector<Case> indexed() {
  return {
      {"gather", [](T x, int d) { return gather(x, d, zero()); }},
      {"gather of [1]", [](T x, int d) { return gather(x.view({1}), d, zero()); }},
      {"gather, one index", [](T x, int d) { return gather(x, d, zero_index()); }, 3, {1}},
      {"index_select", [](T x, int d) { return index_select(x, d, zero_index()); }},
      {"index_select, 0-d", [](T x, int d) { return index_select(x, d, zero()); }},
      {"index_select of [1]",
       [](T x, int d) { return index_select(x.view({1}), d, zero()); },
       3,
       {1}},
      {"scatter", [](T x, int d) { return scatter(x, d, zero(), ones({})); }, 1},
      {"scatter, one index", [](T x, int d) { return scatter(x, d, zero_index(), ones({1})); }, 1},
      {"scatter, 0-d source", [](T x, int d) { return scatter(x, d, zero_index(), ones({})); }, 1},
      {"scatter, longer source", [](T x, int d) { return scatter(x, d, zero(), ones({2})); }, 1},
      {"scatter to [1], 0-d source",
       [](T x, int d) { return scatter(x.view({1}), d, zero(), ones({})); },
       1,
       {1}},
      {"scatter_add, longer source",
       [](T x, int d) { return scatter_add(x.view({1}), d, zero(), ones({2})); },
       4,
       {1}},
      {"scatter_add, 0-d source",
       [](T x, int d) { return scatter_add(x, d, zero_index(), ones({})); }, 4},
      {"scatter_reduce, 0-d source",
       [](T x, int d) { return scatter_reduce(x, d, zero_index(), ones({}), {}); }, 4},
      {"scatter_add", [](T x, int d) { return scatter_add(x, d, zero(), ones({})); }, 4},
      {"scatter_add_",
       [](T x, int d) {
         const Tensor y = clone(x);
         scatter_add_(y, d, zero(), x);
         return y;
       },
       6},
      {"scatter_",
       [](T x, int d) {
         const Tensor y = clone(x);
         scatter_(y, d, zero(), zeros({}));
         return y;
       },
       0},
  };
}

std::vector<Case> slices() {
  return {
      {"index_add", [](T x, int d) { return index_add(x, d, zero(), x); }, 6},
      {"index_add, alpha",
       [](T x, int d) { return index_add(x, d, zero_index(), x, {.alpha = 2}); }, 9},
      {"index_add, a line",
       [](T x, int d) { return index_add(x, d, zeros({2}, zero().options()), ones({2})); }, 5},
      {"index_add to [1]", [](T x, int d) { return index_add(x.view({1}), d, zero(), x); }, 6, {1}},
      {"index_add_",
       [](T x, int d) {
         const Tensor y = clone(x);
         index_add_(y, d, zero_index(), x);
         return y;
       },
       6},
      {"index_copy", [](T x, int d) { return index_copy(x, d, zero_index(), ones({})); }, 1},
      {"index_copy, [1]", [](T x, int d) { return index_copy(x, d, zero(), ones({1})); }, 1},
      {"index_copy_",
       [](T x, int d) {
         const Tensor y = clone(x);
         index_copy_(y, d, zero(), ones({}));
         return y;
       },
       1},
      {"index_fill", [](T x, int d) { return index_fill(x, d, zero(), 7); }, 7},
      {"index_fill, nowhere",
       [](T x, int d) { return index_fill(x, d, zeros({0}, zero().options()), 7); }},
      {"index_fill, a tensor", [](T x, int d) { return index_fill(x, d, zero_index(), x); }},
      {"index_fill_",
       [](T x, int d) {
         const Tensor y = clone(x);
         index_fill_(y, d, sub(zero(), 1), 7);
         return y;
       },
       7},
  };
}

TEST_CASE("a 0-d tensor counts as one element along dim 0") {
  const Tensor x = Tensor::scalar(3);
  for (const auto& cases : {reductions(), choices(), others(), indexed(), slices()}) {
    for (const Case& c : cases) {
      for (int dim : {0, -1}) {
        INFO(c.name << " along " << dim);
        const Tensor y = c.call(x, dim);
        CHECK(y.shape() == c.shape);
        CHECK(cast(y, DType::kF64).item<double>() == Approx(c.expected).margin(1e-4));
      }
    }
  }
}

TEST_CASE("dims that a 0-d tensor does not have") {
  const Tensor x = Tensor::scalar(3);
  CHECK(thrown<InvalidArgument>([&] { sum(x, {1}); }) ==
        "[sum] dim 1 does not exist in a tensor of 1 dims; give one from -1 to 0");
  CHECK(thrown<InvalidArgument>([&] {
          sum(x, {0, -1});
        }) == "[sum] dim -1 is listed twice; name each dim once");
  CHECK(thrown<InvalidArgument>([&] { squeeze(x, 1); }) ==
        "[squeeze] dim 1 does not exist in a tensor of 1 dims; give one from -1 to 0");
  CHECK(thrown<InvalidArgument>([&] { transpose(x, 0, 1); }) ==
        "[transpose] dim 1 does not exist in a tensor of 1 dims; give one from -1 to 0");
  CHECK(thrown<InvalidArgument>([&] { index_select(x, 0, zeros({2}, {.dtype = DType::kI64})); }) ==
        "[index_select] the index has shape [2]; a 0-d tensor has 1 element, so give 1 index");
  CHECK(thrown<InvalidArgument>([&] { index_fill(x, 1, zero(), 0); }) ==
        "[index_fill] dim 1 does not exist in a tensor of 1 dims; give one from -1 to 0");
  CHECK(thrown<InvalidArgument>([&] { index_add(x, 0, zero(), ones({2})); }) ==
        "[index_add] the source has shape [2]; for a tensor of shape [] and this index it must be "
        "[1]");
  CHECK(thrown<InvalidArgument>([&] { scatter(x, 0, zeros({2}, zero().options()), ones({})); }) ==
        "[scatter] the index has shape [2] and the source []; it must fit inside");
}

// As in PyTorch.
TEST_CASE("operations that need a dim refuse a 0-d tensor") {
  const Tensor x = Tensor::scalar(3);
  const auto refuses = [&](const std::function<void()>& call) {
    CHECK_THAT(thrown<InvalidArgument>(call),
               Catch::Contains("dim 0 does not exist in a 0-d tensor; unsqueeze it first"));
  };
  refuses([&] { x.dim(0); });
  refuses([&] { select(x, 0, 0); });
  refuses([&] { slice(x, 0, 0, 1); });
  refuses([&] { narrow(x, 0, 0, 1); });
  refuses([&] { unflatten(x, 0, {1, 1}); });
  refuses([&] { split(x, 1, 0); });
  refuses([&] { chunk(x, 1, 0); });
  refuses([&] { unbind(x, 0); });
  refuses([&] { cat({x, x}, 0); });
  refuses([&] { roll(x, 1, 0); });
  refuses([&] { repeat_interleave(x, 3, 0); });
  refuses([&] { take_along_dim(x, zero(), 0); });
  refuses([&] { glu(x, 0); });
}

}  // namespace
}  // namespace tessera
