// Joining, splitting, padding, rolling, flipping, repeating and triangles against index arithmetic,
// for every dtype and layout.
#include "tessera/tensor/ops/shape.h"

#include <catch2/catch.hpp>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "tessera/tensor/error.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tests/support/close.h"
#include "tessera/tests/support/throws.h"
#include "tessera/tests/tensor/ops/naive.h"
#include "tessera/tests/tensor/ops/ops_support.h"

namespace tessera {
namespace {

using namespace testing;
using naive::Array;
using naive::Index;

Tensor numbers(const Shape& shape, DType dtype) {
  return cast(spread_tensor<double>(shape, -9, 9), dtype);
}

const std::vector<Shape> kShapes = {{3, 5, 4}, {1, 1}, {2, 0, 3}, {7}, {70, 3, 2}};

// body(layout, plain, dim) for every dtype, shape, layout and dim.
template <class Body>
void for_all(const Body& body) {
  for (DType dtype : kAllDTypes) {
    for (const Shape& shape : kShapes) {
      const Tensor x = numbers(shape, dtype);
      const Array plain = naive::array_of(x);
      for (const Tensor& layout : layouts(x)) {
        for (int dim = 0; dim < shape.ndim(); ++dim) {
          INFO(dtype_name(dtype) << shape.str() << layout.strides().str() << " dim " << dim);
          body(layout, plain, dim);
        }
      }
    }
  }
}

TEST_CASE("cat") {
  for_all([](const Tensor& x, const Array& plain, int dim) {
    const auto d = static_cast<std::size_t>(dim);
    const std::int64_t n = plain.shape[d];
    const Tensor part = x.slice(dim, 0, n / 2), none = x.slice(dim, 0, 0);
    Index shape = plain.shape;
    shape[d] = n + n / 2 + n;
    const Tensor y = cat({x, part, none, x}, dim);
    CHECK(y.dtype() == x.dtype());
    CHECK(y.is_contiguous());
    CHECK(naive::is_equal(y, naive::pick(plain, shape, [&](Index index) {
                            if (index[d] >= n + n / 2) {
                              index[d] -= n + n / 2;
                            } else if (index[d] >= n) {
                              index[d] -= n;
                            }
                            return index;
                          })));
    CHECK(all_equal(cat({x}, dim - x.ndim()), clone(x)));
  });
}

// Rows one after another are many times slower than one copy for each tensor where these can be long.
TEST_CASE("cat: long rows by a kernel, else one copy for each tensor") {
  using Names = std::vector<std::string>;
  const Names rows = {"cat"}, copies = {"axpby", "axpby"};
  const Tensor x = numbers({6, 5, 8}, DType::kF32), short_rows = numbers({6, 5, 7}, DType::kF32),
               one_row = numbers({1, 5, 8}, DType::kF32), repeated = one_row.expand({6, 5, 8}),
               turned = contiguous(x.transpose(0, 1)).transpose(0, 1);
  const auto kernels_of_cat = [](const std::vector<Tensor>& tensors, int dim) {
    return kernels_of([&] { cat(tensors, dim); });
  };
  CHECK(kernels_of_cat({x, x}, 2) == rows);
  CHECK(kernels_of_cat({x, x}, 1) == rows);
  CHECK(kernels_of_cat({x, repeated}, 1) == rows);  // rows of 40, the same six times
  CHECK(kernels_of_cat({x, x.slice(2, 0, 0)}, 2) == rows);
  CHECK(kernels_of_cat({x, x}, 0) == copies);
  CHECK(kernels_of_cat({one_row, one_row}, 1) == copies);
  CHECK(kernels_of_cat({x, short_rows}, 2) == copies);
  CHECK(kernels_of_cat({x, turned}, 2) == copies);
  CHECK(kernels_of_cat({x, repeated}, 2) == copies);
  CHECK(all_equal(cat({x, repeated}, 1).slice(1, 5, 10), contiguous(repeated)));
}

// Rows long enough to be copied one after another, with gaps; and layouts whose rows have no one distance.
TEST_CASE("cat: long rows") {
  for (DType dtype : {DType::kF64, DType::kBF16, DType::kU8}) {
    const Tensor wide = numbers({3, 5, 37}, dtype), narrow = numbers({3, 5, 9}, dtype);
    const Tensor swapped =
        contiguous(wide.transpose(0, 1)).transpose(0, 1);  // dims in another order
    const Tensor repeated = narrow.slice(0, 0, 1).expand({3, 5, 9});
    std::vector<Tensor> wides = layouts(wide), narrows = layouts(narrow);
    wides.push_back(swapped);
    narrows.push_back(repeated);
    for (const Tensor& a : wides) {
      for (const Tensor& b : narrows) {
        INFO(dtype_name(dtype) << a.strides().str() << b.strides().str());
        const Tensor none = b.slice(2, 0, 0), y = cat({a, b, none, a}, 2);
        CHECK(y.shape() == Shape{3, 5, 83});
        CHECK(all_equal(clone(y.slice(2, 0, 37)), clone(a)));
        CHECK(all_equal(clone(y.slice(2, 37, 46)), clone(b)));
        CHECK(all_equal(clone(y.slice(2, 46, 83)), clone(a)));
      }
    }
  }
}

// As many elements as several threads share.
TEST_CASE("cat: many rows") {
  const Tensor x = numbers({700, 64}, DType::kF32), part = x.slice(1, 3, 36);
  const Tensor y = cat({part, x}, 1);
  const std::vector<float> from = x.to_vector<float>(), to = y.to_vector<float>();
  std::size_t at = 0;
  for (std::size_t row = 0; row < 700; ++row) {
    for (std::size_t i = 3; i < 36; ++i) REQUIRE(to[at++] == from[row * 64 + i]);
    for (std::size_t i = 0; i < 64; ++i) REQUIRE(to[at++] == from[row * 64 + i]);
  }
}

TEST_CASE("stack and unbind") {
  for_all([](const Tensor& x, const Array& plain, int dim) {
    const auto d = static_cast<std::size_t>(dim);
    Index shape = plain.shape;
    shape.insert(shape.begin() + dim, 2);
    CHECK(naive::is_equal(stack({x, x}, dim), naive::pick(plain, shape, [&](Index index) {
                            index.erase(index.begin() + dim);
                            return index;
                          })));
    CHECK(stack({x, x, x}, -1).shape().back() == 3);
    const std::vector<Tensor> parts = unbind(x, dim);
    REQUIRE(parts.size() == static_cast<std::size_t>(plain.shape[d]));
    for (std::size_t i = 0; i < parts.size(); ++i) {
      CHECK(parts[i].storage() == x.storage());
      CHECK(all_equal(parts[i], x.select(dim, static_cast<std::int64_t>(i))));
    }
  });
  CHECK(stack({Tensor::scalar(1), Tensor::scalar(2)}).to_vector<float>() ==
        std::vector<float>{1, 2});
}

TEST_CASE("split and chunk: views, sized as in PyTorch") {
  for_all([](const Tensor& x, const Array& plain, int dim) {
    const std::int64_t n = plain.shape[static_cast<std::size_t>(dim)];
    for (const std::vector<Tensor>& parts :
         {split(x, 2, dim), split(x, {n / 3, 0, n - n / 3}, dim), chunk(x, 4, dim)}) {
      for (const Tensor& part : parts) CHECK(part.storage() == x.storage());
      CHECK(all_equal(cat(parts, dim), clone(x)));
    }
  });
  const auto sizes = [](const std::vector<Tensor>& parts) {
    std::vector<std::int64_t> out;
    for (const Tensor& part : parts) out.push_back(part.dim(0));
    return out;
  };
  using Sizes = std::vector<std::int64_t>;
  const Tensor x = arange(10);
  CHECK(sizes(split(x, 4)) == Sizes{4, 4, 2});
  CHECK(sizes(split(x, 20)) == Sizes{10});
  CHECK(sizes(split(x, {1, 0, 9})) == Sizes{1, 0, 9});
  CHECK(sizes(chunk(x, 4)) == Sizes{3, 3, 3, 1});
  CHECK(sizes(chunk(x, 6)) == Sizes{2, 2, 2, 2, 2});
  CHECK(sizes(chunk(x, 11)) == Sizes(10, 1));
  CHECK(sizes(chunk(arange(0), 3)) == Sizes{0, 0, 0});
  CHECK(sizes(split(arange(0), 3)) == Sizes{0});
  CHECK(split(arange(0), Sizes{}).empty());
}

TEST_CASE("pad: around the last dims, and cutting off") {
  for_all([](const Tensor& x, const Array& plain, int dim) {
    const auto d = static_cast<std::size_t>(dim);
    for (const Padding& p : {Padding{2, 1}, Padding{0, 0}, Padding{-1, 3}, Padding{0, -1}}) {
      const std::int64_t n = plain.shape[d];
      if (n + std::min<std::int64_t>(0, p.before) + std::min<std::int64_t>(0, p.after) < 0)
        continue;
      std::vector<Padding> all(plain.shape.size() - d);
      all[0] = p;
      Array expected = plain;
      expected.shape[d] = n + p.before + p.after;
      expected = naive::filled(expected.shape, 1);
      naive::for_each_index(expected.shape, [&](Index index) {
        Index from = index;
        from[d] -= p.before;
        if (from[d] >= 0 && from[d] < n) expected.at(index) = plain.at(from);
      });
      CHECK(naive::is_equal(pad(x, all, 1), expected));
    }
  });
  const Tensor x = ones({2, 3, 4});
  CHECK(pad(x, {{1, 1}, {0, 2}}).shape() == Shape{2, 5, 6});
  CHECK(pad(x, {}).shape() == x.shape());
  CHECK(pad(x, {{-5, 4}}).to_vector<float>() == std::vector<float>(18, 0));
}

TEST_CASE("roll and flip") {
  for_all([](const Tensor& x, const Array& plain, int dim) {
    const auto d = static_cast<std::size_t>(dim);
    const std::int64_t n = plain.shape[d];
    for (std::int64_t shift : {0, 1, -2, 9, -100}) {
      CHECK(naive::is_equal(roll(x, shift, dim), naive::pick(plain, plain.shape, [&](Index index) {
                              index[d] = ((index[d] - shift) % n + n) % n;
                              return index;
                            })));
    }
    CHECK(naive::is_equal(flip(x, {dim}), naive::pick(plain, plain.shape, [&](Index index) {
                            index[d] = n - 1 - index[d];
                            return index;
                          })));
    if (x.ndim() < 2) return;
    CHECK(all_equal(flip(x, {0, -1}), flip(flip(x, {0}), {-1})));
    CHECK(all_equal(flip(x, {}), clone(x)));
  });
}

TEST_CASE("repeat, tile and repeat_interleave") {
  for_all([](const Tensor& x, const Array& plain, int dim) {
    const auto d = static_cast<std::size_t>(dim);
    for (std::int64_t count : {0, 1, 3}) {
      Shape repeats = Shape::filled(x.ndim() + 1, 2);
      repeats[dim + 1] = count;
      Index shape(repeats.begin(), repeats.end());
      for (std::size_t i = 0; i < plain.shape.size(); ++i) shape[i + 1] *= plain.shape[i];
      const Array expected = naive::pick(plain, shape, [&](const Index& index) {
        Index from(index.begin() + 1, index.end());
        for (std::size_t i = 0; i < from.size(); ++i) from[i] %= plain.shape[i];
        return from;
      });
      CHECK(naive::is_equal(repeat(x, repeats), expected));
      CHECK(naive::is_equal(tile(x, repeats), expected));
      Index longer = plain.shape;
      longer[d] *= count;
      CHECK(naive::is_equal(repeat_interleave(x, count, dim),
                            naive::pick(plain, longer, [&](Index index) {
                              index[d] /= count;
                              return index;
                            })));
    }
    CHECK(all_equal(tile(x, {2}), repeat(x, Shape::filled(x.ndim(), 1).with(x.ndim() - 1, 2))));
  });
  CHECK(repeat(Tensor::scalar(3), {2, 2}).to_vector<float>() == std::vector<float>(4, 3));
  CHECK(repeat(ones({1, 1, 1, 1, 1, 1, 1, 2}), Shape::filled(8, 2)).numel() == 512);
}

TEST_CASE("tril and triu: any diagonal, batches of matrices") {
  for (DType dtype : kAllDTypes) {
    for (const Shape& shape : {Shape{4, 4}, Shape{2, 3, 5}, Shape{5, 2}, Shape{2, 0, 3}}) {
      const Tensor x = numbers(shape, dtype);
      const Array plain = naive::array_of(x);
      for (const Tensor& layout : layouts(x)) {
        for (std::int64_t diagonal = -6; diagonal <= 6; ++diagonal) {
          Array low = plain, high = plain;
          naive::for_each_index(plain.shape, [&](const Index& index) {
            const std::int64_t from = index.back() - index[index.size() - 2];
            if (from > diagonal) low.at(index) = 0;
            if (from < diagonal) high.at(index) = 0;
          });
          CHECK(naive::is_equal(tril(layout, diagonal), low));
          CHECK(naive::is_equal(triu(layout, diagonal), high));
        }
      }
    }
  }
  const std::int64_t far = std::numeric_limits<std::int64_t>::max();
  CHECK(all_equal(tril(ones({3, 2}), far), ones({3, 2})));
  CHECK(all_equal(triu(ones({3, 2}), -far), ones({3, 2})));
}

TEST_CASE("shape: equal results for any number of threads") {
  const Tensor x = spread_tensor<float>({300, 301});
  const auto same = [](const std::function<Tensor()>& body) {
    return same_for_any_threads([&] { return body().to_vector<float>(); });
  };
  CHECK(same([&] { return flip(x, {0, 1}); }));
  CHECK(same([&] { return triu(x, 3); }));
  CHECK(same([&] { return cat({x, x}, 1); }));
}

TEST_CASE("shape: errors") {
  const auto text = [](auto body) { return thrown<InvalidArgument>(body); };
  const Tensor x = zeros({2, 3});
  CHECK(text([&] { cat(std::vector<Tensor>{}); }) ==
        "[cat] the list of tensors is empty; give at least one");
  CHECK(text([&] {
          cat({x, zeros({3, 3})}, 1);
        }) == "[cat] shapes [2, 3] and [3, 3] do not fit; they may differ in dim 1 only");
  CHECK_THAT(text([&] { cat({x, zeros({3})}); }), Catch::Contains("[2, 3] and [3] do not fit"));
  CHECK_THAT(text([&] { cat({x, arange(3)}); }), Catch::Contains("f32 and i64"));
  CHECK_THAT(text([&] {
               cat({x, zeros({2, 3}, {.device = kNull})});
             }),
             Catch::Contains("move them to one device"));
  CHECK_THAT(text([&] { cat({x, Tensor()}); }), Catch::Contains("is undefined"));
  CHECK_THROWS_AS(cat({x}, 2), InvalidArgument);
  CHECK_THAT(text([&] { stack({x, zeros({3, 3})}); }), Catch::Contains("[stack] shapes"));
  CHECK_THAT(text([&] { stack(std::vector<Tensor>{}); }), Catch::Contains("[stack] the list"));
  CHECK(text([&] {
          split(x, {1, 3}, 1);
        }) ==
        "[split] the parts have 4 elements together, and dim 1 of [2, 3] has 3; they must agree");
  CHECK(text([&] {
          split(x, {4, -1}, 1);
        }) == "[split] the size of a part is -1; it must not be negative");
  CHECK(text([&] { split(x, 0, 1); }) == "[split] the size of a part is 0; it must be at least 1");
  CHECK(text([&] { chunk(x, 0, 1); }) ==
        "[chunk] the number of chunks is 0; it must be at least 1");
  CHECK(text([&] {
          pad(x, {{}, {}, {}});
        }) == "[pad] 3 dims are padded, and shape [2, 3] has 2; give one pair a dim");
  CHECK(text([&] {
          pad(x, {{-2, -2}});
        }) == "[pad] -2 and -2 cut more off dim 1 of [2, 3] than there is");
  CHECK(text([&] { flip(x, {0, -2}); }) == "[flip] dim -2 is listed twice; name each dim once");
  CHECK(text([&] { repeat(x, {2}); }) ==
        "[repeat] [2] has fewer entries than [2, 3] has dims; give one for each, or use tile");
  CHECK(text([&] { repeat(x, {2, -1}); }) == "[repeat] [2, -1] has a negative entry; give counts");
  CHECK(text([&] { repeat_interleave(x, -1, 0); }) ==
        "[repeat_interleave] the count is -1; it must not be negative");
  CHECK(text([&] { tril(zeros({3})); }) ==
        "[tril] needs at least 2 dims, got shape [3]; unsqueeze it");
  for (auto op :
       {+[](const Tensor& t) { split(t, 1); }, +[](const Tensor& t) { split(t, {1}); },
        +[](const Tensor& t) { chunk(t, 1); }, +[](const Tensor& t) { unbind(t); },
        +[](const Tensor& t) { pad(t, {}); }, +[](const Tensor& t) { roll(t, 1, 0); },
        +[](const Tensor& t) { flip(t, {}); }, +[](const Tensor& t) { repeat(t, {}); },
        +[](const Tensor& t) { tile(t, {}); }, +[](const Tensor& t) { repeat_interleave(t, 1, 0); },
        +[](const Tensor& t) { tril(t); }, +[](const Tensor& t) { triu(t); }}) {
    CHECK_THAT(text([&] { op(Tensor()); }), Catch::Contains("the tensor is undefined"));
  }
}

}  // namespace
}  // namespace tessera
