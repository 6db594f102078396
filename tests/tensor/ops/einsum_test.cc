// einsum, tensordot and inner against loops over all labels: diagonals, ellipses, extents that repeat, orders.
#include "tessera/tensor/ops/einsum.h"

#include <catch2/catch.hpp>
#include <map>

#include "tessera/tensor/error.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/matmul.h"
#include "tessera/tests/tensor/ops/naive.h"
#include "tessera/tests/tensor/ops/nn_support.h"

namespace tessera::testing {
namespace {

using naive::Array;
using naive::Index;

// One loop over every combination of labels. `operands` are the labels of each, without ellipses.
Array slow_einsum(const std::vector<std::string>& operands, const std::string& output,
                  const std::vector<Array>& arrays) {
  std::map<char, std::int64_t> extents;
  for (std::size_t i = 0; i < operands.size(); ++i)
    for (std::size_t d = 0; d < operands[i].size(); ++d) {
      std::int64_t& extent = extents.try_emplace(operands[i][d], 1).first->second;
      if (arrays[i].shape[d] != 1) extent = arrays[i].shape[d];
    }
  Index all, shape;
  std::map<char, std::size_t> place;
  for (const auto& [label, extent] : extents) place[label] = all.size(), all.push_back(extent);
  for (char label : output) shape.push_back(extents.at(label));
  Array out = naive::filled(shape, 0);
  naive::for_each_index(all, [&](const Index& index) {
    double product = 1;
    for (std::size_t i = 0; i < operands.size(); ++i) {
      Index at;
      for (std::size_t d = 0; d < operands[i].size(); ++d)
        at.push_back(arrays[i].shape[d] == 1 ? 0 : index[place[operands[i][d]]]);
      product *= arrays[i].at(at);
    }
    Index to;
    for (char label : output) to.push_back(index[place[label]]);
    out.at(to) += product;
  });
  return out;
}

struct Case {
  std::string equation;
  std::vector<Shape> shapes;
  std::vector<std::string> operands;  // the labels of each dim, for the loop
  std::string output;
};

const std::vector<Case> kCases = {
    {"ij,jk->ik", {{3, 5}, {5, 4}}, {"ij", "jk"}, "ik"},
    {"ij,jk", {{3, 5}, {5, 4}}, {"ij", "jk"}, "ik"},
    {" i j, j k -> k i ", {{3, 5}, {5, 4}}, {"ij", "jk"}, "ki"},
    {"bA,aB", {{2, 3}, {4, 5}}, {"bA", "aB"}, "ABab"},
    {"ba", {{2, 3}}, {"ba"}, "ab"},
    {"ij->", {{3, 5}}, {"ij"}, ""},
    {"ij->j", {{3, 5}}, {"ij"}, "j"},
    {"ii", {{5, 5}}, {"ii"}, ""},
    {"ii->i", {{5, 5}}, {"ii"}, "i"},
    {"ii->i", {{1, 1}}, {"ii"}, "i"},
    {"ii->i", {{0, 0}}, {"ii"}, "i"},
    {"iji->ji", {{3, 2, 3}}, {"iji"}, "ji"},
    {"iii->i", {{3, 3, 3}}, {"iii"}, "i"},
    {"ijij->ij", {{3, 2, 3, 2}}, {"ijij"}, "ij"},
    {"iij,jj->i", {{3, 3, 2}, {2, 2}}, {"iij", "jj"}, "i"},
    {"bhqd,bhkd->bhqk", {{2, 3, 4, 5}, {2, 3, 6, 5}}, {"bhqd", "bhkd"}, "bhqk"},
    {"bi,bi->b", {{3, 5}, {3, 5}}, {"bi", "bi"}, "b"},
    {"bi,bi->bi", {{3, 5}, {3, 5}}, {"bi", "bi"}, "bi"},
    {"bi,ib->bi", {{3, 5}, {5, 3}}, {"bi", "ib"}, "bi"},
    {"i,j->ij", {{3}, {5}}, {"i", "j"}, "ij"},
    {"i,j->", {{3}, {5}}, {"i", "j"}, ""},
    {"ijk,jil->kl", {{3, 2, 4}, {2, 3, 5}}, {"ijk", "jil"}, "kl"},
    {"ij,jk->ik", {{3, 1}, {5, 4}}, {"ij", "jk"}, "ik"},
    {"bij,bjk->bik", {{1, 3, 2}, {4, 2, 5}}, {"bij", "bjk"}, "bik"},
    {"bij,bjk->bik", {{4, 3, 2}, {1, 2, 5}}, {"bij", "bjk"}, "bik"},
    {"ij,j->i", {{3, 1}, {1}}, {"ij", "j"}, "i"},
    {"ij,jk->ik", {{3, 0}, {0, 4}}, {"ij", "jk"}, "ik"},
    {"ij,jk->ik", {{3, 1}, {0, 4}}, {"ij", "jk"}, "ik"},
    {"ij,jk->ik", {{0, 3}, {3, 4}}, {"ij", "jk"}, "ik"},
    {"", {{}}, {""}, ""},
    {",->", {{}, {}}, {"", ""}, ""},
    {",i->i", {{}, {3}}, {"", "i"}, "i"},
    {"...ij,...jk->...ik", {{2, 1, 3, 5}, {4, 5, 2}}, {"ABij", "Bjk"}, "ABik"},
    {"...,...", {{2, 3}, {3}}, {"AB", "B"}, "AB"},
    {"i...,i...->...", {{2, 3}, {2, 1}}, {"iA", "iA"}, "A"},
    {"...ij->ij", {{4, 2, 3}}, {"Aij"}, "ij"},
    {"ij->...ij", {{2, 3}}, {"ij"}, "ij"},
    {"i...j->j...", {{2, 4, 5, 3}}, {"iABj"}, "jAB"},
    {"ab...,b...c", {{2, 3, 4}, {3, 4, 5}}, {"abD", "bDc"}, "Dac"},
    {"ii...->...i", {{3, 3, 2}}, {"iiA"}, "Ai"},
    {"ij,jk,kl", {{3, 5}, {5, 2}, {2, 4}}, {"ij", "jk", "kl"}, "il"},
    {"ij,jk,kl->lj", {{3, 5}, {5, 2}, {2, 4}}, {"ij", "jk", "kl"}, "lj"},
    {"bn,anm,bm->ba", {{2, 3}, {4, 3, 5}, {2, 5}}, {"bn", "anm", "bm"}, "ba"},
    {"a,b,c,a->bc", {{3}, {2}, {4}, {3}}, {"a", "b", "c", "a"}, "bc"},
    {"ab,ab,ab->a", {{3, 2}, {1, 2}, {3, 1}}, {"ab", "ab", "ab"}, "a"},
    {"a,a,a,a,a->", {{4}, {4}, {4}, {4}, {4}}, {"a", "a", "a", "a", "a"}, ""},
};

TEST_CASE("einsum equals the loop over all labels, in every layout") {
  for (const Case& c : kCases) {
    std::vector<Tensor> operands;
    std::vector<Array> arrays;
    for (const Shape& shape : c.shapes) {
      operands.push_back(
          spread_tensor<double>(shape, -1, 1.5 + 0.1 * static_cast<double>(arrays.size())));
      arrays.push_back(naive::array_of(operands.back()));
    }
    INFO(c.equation);
    const Array expected = slow_einsum(c.operands, c.output, arrays);
    CHECK(naive::is_close(einsum(c.equation, operands), expected, 1e-12, 1e-13));
    for (std::size_t i = 0; i < operands.size(); ++i) {
      std::vector<Tensor> others = operands;
      for (const Tensor& layout : layouts(operands[i])) {
        others[i] = layout;
        CHECK(naive::is_close(einsum(c.equation, others), expected, 1e-12, 1e-13));
      }
    }
  }
}

TEST_CASE("einsum in every dtype, and NaN") {
  // Within rounding: the bits of a product may depend on the layout of its operands.
  for (DType dtype : kFloatingDTypes) {
    INFO("dtype " << dtype_name(dtype));
    const Tensor x = cast(spread_tensor<double>({2, 3, 5}), dtype);
    const Tensor w = cast(spread_tensor<double>({2, 5, 4}), dtype);
    const Tensor exact = einsum("bij,bjk->bik", {cast(x, DType::kF64), cast(w, DType::kF64)});
    for (const Tensor& layout : layouts(x))
      CHECK(all_close(einsum("bij,bjk->bik", {layout, w}), cast(exact, dtype)));
  }
  const Tensor x = Tensor::from_vector<float>({1, NAN, 3, 4}, {2, 2});
  const std::vector<float> sums = einsum("ij->i", {x}).to_vector<float>();
  CHECK(std::isnan(sums[0]));
  CHECK(sums[1] == 7);
}

TEST_CASE("einsum: a product of matrices is one, and the cheapest pair comes first") {
  const Tensor a = ones({300, 2}), b = ones({2, 400}), c = ones({400, 1});
  CHECK(kernels_of([&] { einsum("ij,jk->ik", {a, b}); }) == std::vector<std::string>{"matmul"});
  CHECK(kernels_of([&] {
          einsum("ij,kj->ik", {a, b.transpose(0, 1)});
        }) == std::vector<std::string>{"matmul"});
  // b c first: no intermediate of [300, 400].
  const auto peak = [](const std::function<void()>& body) {
    return with_threads(1, [&] {
      body();
      return current_rank_context()->memory().peak_total();
    });
  };
  CHECK(peak([&] { einsum("ij,jk,kl->il", {a, b, c}); }) == peak([&] { matmul(a, matmul(b, c)); }));
  CHECK(peak([&] { matmul(matmul(a, b), c); }) > 300 * 400 * 4);
}

TEST_CASE("tensordot and inner") {
  const Tensor a = spread_tensor<double>({3, 4, 5}), b = spread_tensor<double>({4, 3, 2}, -1, 3);
  const Array x = naive::array_of(a), y = naive::array_of(b);
  const Array over_two = slow_einsum({"ijk", "jil"}, "kl", {x, y});
  CHECK(naive::is_close(tensordot(a, b, {0, 1}, {1, 0}), over_two, 1e-12, 1e-13));
  CHECK(naive::is_close(tensordot(a, b, {-2, 0}, {0, -2}), over_two, 1e-12, 1e-13));
  const Tensor last = a.permute({2, 1, 0});
  CHECK(naive::is_close(tensordot(last, b), over_two, 1e-12, 1e-13));
  const Array products = slow_einsum({"ijk", "lmn"}, "ijklmn", {x, y});
  CHECK(naive::is_close(tensordot(a, b, 0), products, 1e-12, 1e-13));
  CHECK(naive::is_close(tensordot(a, b, {}, {}), products, 1e-12, 1e-13));
  CHECK(naive::is_close(
      tensordot(a.narrow(1, 0, 1), b, {1}, {0}),
      slow_einsum({"ijk", "jlm"}, "iklm", {naive::array_of(a.narrow(1, 0, 1)), y}), 1e-12, 1e-13));
  CHECK(tensordot(zeros({2, 0}), zeros({0, 3}), 1).to_vector<float>() == std::vector<float>(6, 0));
  const Tensor c = spread_tensor<double>({2, 5});
  CHECK(naive::is_close(inner(a, c), slow_einsum({"ijk", "lk"}, "ijl", {x, naive::array_of(c)}),
                        1e-12, 1e-13));
  CHECK(inner(c.select(0, 0), c.select(0, 1)).shape() == Shape{});
  CHECK(all_equal(inner(c, full({}, 2, c.options())), mul(c, 2)));
  check_dtypes(spread_tensor<double>({3, 2, 5}), [](const Tensor& v) {
    return tensordot(v, v, {0, 2}, {0, 2});
  });
}

TEST_CASE("einsum: errors") {
  const auto text = [](const std::string& equation, const std::vector<Shape>& shapes) {
    std::vector<Tensor> operands;
    for (const Shape& shape : shapes) operands.push_back(zeros(shape));
    return thrown<InvalidArgument>([&] { einsum(equation, operands); });
  };
  CHECK(text("ij", {}) == "[einsum] got no operands; pass at least one");
  CHECK(text("ij,jk", {{2, 3}}) ==
        "[einsum] \"ij,jk\" has labels for 2 operands, got 1; commas separate them");
  CHECK(text("ij,jk", {{2, 3}, {3}}) ==
        "[einsum] operand 1 of \"ij,jk\" has shape [3], its labels \"jk\" name 2 dims");
  CHECK(text("i...j", {{3}}) ==
        "[einsum] operand 0 of \"i...j\" has shape [3], its labels \"i...j\" name at least 2 dims");
  CHECK(text("ij,jk", {{2, 3}, {4, 5}}) ==
        "[einsum] label 'j' of \"ij,jk\" has extent 4 in operand 1 of shape [4, 5], and 3 before; "
        "extents are equal, or 1");
  CHECK(text("...,...", {{2, 3}, {2}}) ==
        "[einsum] dim -1 of the ellipsis of \"...,...\" has extent 2 in operand 1 of shape [2], "
        "and 3 before; extents are equal, or 1");
  CHECK(text("ii", {{1, 3}}) ==
        "[einsum] label 'i' of \"ii\" repeats in operand 0 of shape [1, 3] with extents 1 and 3; a "
        "diagonal needs equal ones");
  CHECK(text("ij->k", {{2, 3}}) ==
        "[einsum] the output of \"ij->k\" has label 'k', which no operand has");
  CHECK(text("ij->ii", {{2, 3}}) == "[einsum] the output of \"ij->ii\" has label 'i' twice");
  CHECK(text("......", {{2, 3}}) ==
        "[einsum] \"......\" has two ellipses in \"......\"; one is legal");
  for (const char* wrong : {"i.j", "i1", "ij->j->i", "i-j", "(ij)"}) {
    const std::string message = text(wrong, {{2, 3}});
    CHECK(message.find("where a label is expected; labels are letters, an ellipsis is \"...\"") !=
          std::string::npos);
  }
  CHECK(text("i.j", {{2, 3}}).starts_with("[einsum] \"i.j\" has '.' where"));
  CHECK(text("abcde,fghij", {{1, 1, 1, 1, 1}, {1, 1, 1, 1, 1}}) ==
        "[einsum] the product of [1, 1, 1, 1, 1] and [1, 1, 1, 1, 1] has 10 dims, a tensor at most "
        "8; sum over some earlier");
}

TEST_CASE("tensordot and inner: errors") {
  const Tensor a = zeros({2, 3}), b = zeros({4, 5});
  const auto text = [](auto body) { return thrown<InvalidArgument>(body); };
  CHECK(text([&] { tensordot(a, b, 1); }) ==
        "[tensordot] dim 1 of [2, 3] and dim 0 of [4, 5] have extents 3 and 4; they are equal, or "
        "one is 1");
  CHECK(text([&] { tensordot(a, b, 3); }) ==
        "[tensordot] sums over 3 dims of [2, 3] and [4, 5]; it must be one number from 0 to their "
        "dims");
  CHECK(text([&] { tensordot(a, b, -1); }).starts_with("[tensordot] sums over -1 dims"));
  CHECK(text([&] { tensordot(a, b, {0}, {}); }) ==
        "[tensordot] got 1 dims of a and 0 of b; each dim of a is summed with one of b");
  CHECK(text([&] { tensordot(a, a, {0, 0}, {0, 1}); }).starts_with("[tensordot] "));
  CHECK(text([&] { tensordot(a, a, {0}, {2}); }).starts_with("[tensordot] dim 2 does not exist"));
  CHECK(text([&] { inner(a, b); }) ==
        "[inner] the last dims of [2, 3] and [4, 5] differ; they must be equal");
}

}  // namespace
}  // namespace tessera::testing
