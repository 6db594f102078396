#include "tessera/tensor/shape.h"

#include <catch2/catch.hpp>
#include <vector>

#include "tessera/tensor/device.h"
#include "tessera/tensor/dtype.h"
#include "tessera/tensor/error.h"
#include "tessera/tests/support/throws.h"

namespace tessera {
namespace {

using testing::thrown;

TEST_CASE("shape: entries, product, text") {
  const Shape none;
  CHECK(none.ndim() == 0);
  CHECK(none.numel() == 1);
  CHECK(none.str() == "[]");
  Shape shape{2, 3, 5};
  CHECK(shape.numel() == 30);
  CHECK(shape.back() == 5);
  CHECK(shape.str() == "[2, 3, 5]");
  CHECK(Shape{4, 0, 2}.numel() == 0);
  shape[1] = 7;
  shape.push_back(1);
  CHECK(shape == Shape{2, 7, 5, 1});
  CHECK_FALSE(shape == Shape{2, 7, 5});
  CHECK(Shape::filled(3, -1) == Shape{-1, -1, -1});
  const std::vector<std::int64_t> entries{6, 9};
  CHECK(Shape(std::span<const std::int64_t>(entries)) == Shape{6, 9});
  CHECK(std::vector<std::int64_t>(shape.begin(), shape.end()) ==
        std::vector<std::int64_t>{2, 7, 5, 1});
}

TEST_CASE("shape: replaced, removed and inserted entries") {
  const Shape shape{2, 3, 5};
  CHECK(shape.with(1, 9) == Shape{2, 9, 5});
  CHECK(shape.without(0) == Shape{3, 5});
  CHECK(shape.without(2) == Shape{2, 3});
  CHECK(shape.inserted(0, 7) == Shape{7, 2, 3, 5});
  CHECK(shape.inserted(2, 7) == Shape{2, 3, 7, 5});
  CHECK(shape.inserted(3, 7) == Shape{2, 3, 5, 7});
  CHECK(Shape{}.inserted(0, 4) == Shape{4});
  CHECK(thrown<InvalidArgument>([&] { (void)shape.with(3, 1); }) ==
        "[shape] dim 3 does not exist in [2, 3, 5]");
  CHECK(thrown<InvalidArgument>([&] { (void)shape.without(-1); }) ==
        "[shape] dim -1 does not exist in [2, 3, 5]");
  CHECK(thrown<InvalidArgument>([&] { (void)shape.inserted(4, 1); }) ==
        "[shape] no dim can be put at 4 of [2, 3, 5]");
}

TEST_CASE("shape: too many dims") {
  Shape eight{1, 1, 1, 1, 1, 1, 1, 1};
  CHECK(thrown<InvalidArgument>([] { (void)Shape{1, 1, 1, 1, 1, 1, 1, 1, 1}; }) ==
        "[shape] 9 dims are more than the 8 a tensor may have");
  CHECK(thrown<InvalidArgument>([&] { eight.push_back(2); }) ==
        "[shape] a dim after [1, 1, 1, 1, 1, 1, 1, 1] is more than the 8 a tensor may have");
  CHECK(thrown<InvalidArgument>([] { (void)Shape::filled(9, 1); }) ==
        "[shape] 9 dims are outside 0 to 8");
}

TEST_CASE("shape: strides") {
  CHECK(contiguous_strides({2, 3, 5}) == Shape{15, 5, 1});
  CHECK(contiguous_strides({}) == Shape{});
  CHECK(contiguous_strides({4, 0, 3}) == Shape{0, 3, 1});
  CHECK(is_contiguous({2, 3}, {3, 1}));
  CHECK(is_contiguous({2, 1, 3}, {3, 77, 1}));  // the stride of an extent of 1 does not matter
  CHECK(is_contiguous({2, 0, 3}, {5, 5, 5}));
  CHECK(is_contiguous({}, {}));
  CHECK_FALSE(is_contiguous({3, 2}, {1, 3}));
  CHECK_FALSE(is_contiguous({2, 3}, {4, 1}));
  CHECK_FALSE(is_contiguous({2, 3}, {0, 1}));
}

TEST_CASE("shape: broadcasting") {
  CHECK(broadcast_shapes({2, 3}, {3}, "add") == Shape{2, 3});
  CHECK(broadcast_shapes({3}, {2, 1}, "add") == Shape{2, 3});
  CHECK(broadcast_shapes({5, 1, 4}, {6, 1}, "add") == Shape{5, 6, 4});
  CHECK(broadcast_shapes({}, {2, 2}, "add") == Shape{2, 2});
  CHECK(broadcast_shapes({0, 3}, {1, 3}, "add") == Shape{0, 3});
  CHECK(broadcast_shapes({1}, {0}, "add") == Shape{0});
  CHECK(thrown<InvalidArgument>([] {
          broadcast_shapes({2, 3}, {4, 1, 5}, "add");
        }) ==
        "[add] shapes [2, 3] and [4, 1, 5] do not broadcast: dim 1 counted from the back is 3 and "
        "5; extents must be equal or 1");
  CHECK(thrown<InvalidArgument>([] { broadcast_shapes({0}, {2}, "mul"); }) ==
        "[mul] shapes [0] and [2] do not broadcast: dim 1 counted from the back is 0 and 2; "
        "extents must be equal or 1");
}

TEST_CASE("shape: dims from the back") {
  CHECK(normalize_dim(0, 3, "sum") == 0);
  CHECK(normalize_dim(-1, 3, "sum") == 2);
  CHECK(normalize_dim(-3, 3, "sum") == 0);
  CHECK(thrown<InvalidArgument>([] { normalize_dim(3, 3, "sum"); }) ==
        "[sum] dim 3 does not exist in a tensor of 3 dims; give one from -3 to 2");
  CHECK(thrown<InvalidArgument>([] { normalize_dim(-4, 3, "sum"); }) ==
        "[sum] dim -4 does not exist in a tensor of 3 dims; give one from -3 to 2");
  CHECK(thrown<InvalidArgument>([] { normalize_dim(0, 0, "sum"); }) ==
        "[sum] dim 0 does not exist in a 0-d tensor; unsqueeze it first");
}

TEST_CASE("dtype: sizes, names and dispatch") {
  for (DType dtype : kAllDTypes) {
    const std::size_t size = dispatch_all(dtype, "t", []<class T>() { return sizeof(T); });
    CHECK(size == dtype_size(dtype));
    const DType back = dispatch_all(dtype, "t", []<class T>() { return dtype_of<T>; });
    CHECK(back == dtype);
  }
  CHECK(std::string(dtype_name(DType::kF32)) == "f32");
  CHECK(std::string(dtype_name(DType::kU8)) == "u8");
  CHECK(dispatch_floating(DType::kF64, "t", []<class T>() { return sizeof(T); }) == 8);
  CHECK(thrown<InvalidArgument>([] {
          dispatch_floating(DType::kI64, "gelu", []<class T>() { return sizeof(T); });
        }) == "[gelu] dtype i64 is not supported here; cast the tensor first");
}

TEST_CASE("device: names and count") {
  CHECK(kCpu.str() == "cpu");
  CHECK(kNull.str() == "null");
  CHECK(Device{DeviceType::kCuda, 3}.str() == "cuda:3");
  CHECK(cuda_device_count() >= 0);
  CHECK(cuda_device_count() == cuda_device_count());
}

}  // namespace
}  // namespace tessera
