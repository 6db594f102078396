// Images rearranged and resized: values against plain loops over positions, layouts, errors.
#include "tessera/tensor/ops/image.h"

#include <catch2/catch.hpp>
#include <functional>

#include "tessera/tensor/error.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tests/tensor/ops/naive.h"
#include "tessera/tests/tensor/ops/nn_support.h"

namespace tessera::testing {
namespace {

using naive::Array;
using naive::Index;

Tensor numbers(const Shape& shape) { return spread_tensor<double>(shape); }

// The number of windows along a dim.
std::int64_t windows(std::int64_t in, std::int64_t kernel, std::int64_t dilation,
                     std::int64_t padding, std::int64_t stride) {
  return (in + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1;
}

// body(column index [n, c kernel, window], image index [n, c, h, w]) for all that lie in the image.
void for_each_element(const Index& image, const UnfoldOptions& o,
                      const std::function<void(const Index&, const Index&)>& body) {
  const std::int64_t rows = windows(image[2], o.kernel.height, o.dilation.height, o.padding.height,
                                    o.stride.height),
                     columns = windows(image[3], o.kernel.width, o.dilation.width, o.padding.width,
                                       o.stride.width);
  naive::for_each_index(
      {image[0], image[1], o.kernel.height, o.kernel.width, rows, columns}, [&](const Index& i) {
        const std::int64_t h = i[4] * o.stride.height + i[2] * o.dilation.height - o.padding.height,
                           w = i[5] * o.stride.width + i[3] * o.dilation.width - o.padding.width;
        if (h < 0 || h >= image[2] || w < 0 || w >= image[3]) return;
        body({i[0], (i[1] * o.kernel.height + i[2]) * o.kernel.width + i[3], i[4] * columns + i[5]},
             {i[0], i[1], h, w});
      });
}

TEST_CASE("unfold takes windows out, fold adds them up") {
  const UnfoldOptions all[] = {
      {.kernel = 1},
      {.kernel = {3, 2}, .padding = {1, 0}},
      {.kernel = {2, 3}, .dilation = {2, 1}, .padding = 1, .stride = {1, 2}},
      {.kernel = 3, .padding = 2, .stride = 4}};
  for (const UnfoldOptions& o : all) {
    for (const Shape& shape : {Shape{2, 3, 5, 7}, Shape{1, 1, 3, 3}, Shape{0, 2, 4, 5}}) {
      INFO(shape.str());
      const Array image = naive::array_of(numbers(shape));
      const std::int64_t rows = windows(shape[2], o.kernel.height, o.dilation.height,
                                        o.padding.height, o.stride.height),
                         columns = windows(shape[3], o.kernel.width, o.dilation.width,
                                           o.padding.width, o.stride.width);
      Array unfolded =
          naive::filled({shape[0], shape[1] * o.kernel.height * o.kernel.width, rows * columns}, 0);
      for_each_element(image.shape, o, [&](const Index& column, const Index& place) {
        unfolded.at(column) = image.at(place);
      });
      for (const Tensor& x : layouts(naive::tensor_of(image)))
        CHECK(naive::is_equal(unfold(x, o), unfolded));
      const Tensor columns_in = numbers(naive::shape_of(unfolded.shape));
      const Array given = naive::array_of(columns_in);
      Array folded = naive::filled(image.shape, 0);
      for_each_element(image.shape, o, [&](const Index& column, const Index& place) {
        folded.at(place) += given.at(column);
      });
      for (const Tensor& x : layouts(columns_in))
        CHECK(naive::is_close(fold(x, {shape[2], shape[3]}, o), folded, 1e-14, 1e-14));
      if (shape[0] == 0) continue;
      CHECK(bits_of(unfold(naive::tensor_of(image).select(0, 0), o)) ==
            bits_of(contiguous(naive::tensor_of(unfolded).select(0, 0))));
      CHECK(bits_of(fold(columns_in.select(0, 0), {shape[2], shape[3]}, o)) ==
            bits_of(contiguous(fold(columns_in, {shape[2], shape[3]}, o).select(0, 0))));
    }
  }
  const Tensor x = numbers({2, 8, 12});
  check_dtypes(x, [](const Tensor& t) { return fold(t, {4, 5}, {.kernel = 2}); });
  check_dtypes(numbers({2, 3, 4, 5}), [](const Tensor& t) { return unfold(t, {.kernel = 2}); });
}

TEST_CASE("pixel_shuffle and pixel_unshuffle trade channels for places") {
  for (const Index& lead : {Index{}, Index{2}, Index{3, 2}, Index{0}}) {
    for (std::int64_t r : {1, 2, 3}) {
      Index deep = lead, wide = lead;
      for (std::int64_t extent : {2 * r * r, std::int64_t{3}, std::int64_t{2}})
        deep.push_back(extent);
      for (std::int64_t extent : {std::int64_t{2}, 3 * r, 2 * r}) wide.push_back(extent);
      const Array x = naive::array_of(numbers(naive::shape_of(deep)));
      const std::size_t n = lead.size();
      const Array expected = naive::pick(x, wide, [&](const Index& i) {
        Index from = i;
        from[n] = i[n] * r * r + i[n + 1] % r * r + i[n + 2] % r;
        from[n + 1] = i[n + 1] / r;
        from[n + 2] = i[n + 2] / r;
        return from;
      });
      for (const Tensor& t : layouts(naive::tensor_of(x)))
        CHECK(naive::is_equal(pixel_shuffle(t, r), expected));
      for (const Tensor& t : layouts(naive::tensor_of(expected)))
        CHECK(naive::is_equal(pixel_unshuffle(t, r), x));
    }
  }
  CHECK(pixel_shuffle(arange(8).view({4, 2, 1}), 2).to_vector<std::int64_t>() ==
        std::vector<std::int64_t>{0, 2, 4, 6, 1, 3, 5, 7});
}

TEST_CASE("channel_shuffle transposes the matrix of channels") {
  for (const Shape& shape : {Shape{2, 6, 3}, Shape{1, 6, 2, 2}, Shape{2, 6, 1, 2, 3}}) {
    const Array x = naive::array_of(numbers(shape));
    for (std::int64_t groups : {1, 2, 3, 6}) {
      const Array expected = naive::pick(x, x.shape, [&](const Index& i) {
        Index from = i;
        from[1] = i[1] % groups * (6 / groups) + i[1] / groups;
        return from;
      });
      for (const Tensor& t : layouts(naive::tensor_of(x)))
        CHECK(naive::is_equal(channel_shuffle(t, groups), expected));
    }
  }
}

// What linear interpolation gives at place i of a dim of `in` elements.
struct Blend {
  std::int64_t before, after;
  double weight;
};
Blend blend_at(std::int64_t i, std::int64_t in, double step, bool align) {
  const auto at = static_cast<double>(i);
  const double place = align ? at * step : std::max(0.0, (at + 0.5) * step - 0.5);
  const auto before = std::min(static_cast<std::int64_t>(place), in - 1);
  return {before, std::min(before + 1, in - 1), std::min(1.0, place - static_cast<double>(before))};
}

TEST_CASE("interpolate, nearest: each element is that at the place below") {
  for (std::int64_t out : {1, 2, 3, 5, 7, 11, 15}) {
    const Array x = naive::array_of(numbers({2, 3, 5}));
    for (bool exact : {false, true}) {
      const Array expected = naive::pick(x, {2, 3, out}, [&](const Index& i) {
        return Index{i[0], i[1], exact ? (2 * i[2] + 1) * 5 / (2 * out) : i[2] * 5 / out};
      });
      for (const Tensor& t : layouts(naive::tensor_of(x))) {
        CHECK(naive::is_equal(interpolate(t, {.size = {out},
                                              .mode = exact ? InterpolateMode::kNearestExact
                                                            : InterpolateMode::kNearest}),
                              expected));
      }
    }
  }
  const Array x = naive::array_of(numbers({1, 2, 4, 6}));
  const Array expected = naive::pick(x, {1, 2, 6, 2}, [](const Index& i) {
    return Index{i[0], i[1], i[2] * 4 / 6, i[3] * 3};
  });
  CHECK(naive::is_equal(interpolate(naive::tensor_of(x), {.size = {6, 2}}), expected));
  // A factor that does not make whole extents: places follow from it unless told otherwise.
  const Tensor row = Tensor::from_vector<double>({0, 1, 2}, {1, 1, 3});
  CHECK(interpolate(row, {.scale_factor = {2.2}}).to_vector<double>() ==
        std::vector<double>{0, 0, 0, 1, 1, 2});
  CHECK(interpolate(row, {.scale_factor = {2.2}, .recompute_scale_factor = true})
            .to_vector<double>() == std::vector<double>{0, 0, 1, 1, 2, 2});
  CHECK(interpolate(row, {.scale_factor = {1.2}}).to_vector<double>() ==
        std::vector<double>{0, 0, 1});
  CHECK(interpolate(zeros({0, 2, 3}), {.size = {4}}).shape() == Shape{0, 2, 4});
}

TEST_CASE("interpolate, linear and bilinear: between the two neighbours of each dim") {
  const std::pair<std::int64_t, std::int64_t> sizes[] = {{4, 6}, {1, 1}, {8, 3}, {5, 13}, {3, 6}};
  const Array x = naive::array_of(numbers({2, 2, 4, 6}));
  for (auto [h, w] : sizes) {
    for (bool align : {false, true}) {
      INFO(h << " x " << w << " align " << align);
      const auto step = [&](std::int64_t in, std::int64_t out) {
        const auto a = static_cast<double>(in), b = static_cast<double>(out);
        return !align ? a / b : out == 1 ? 0 : (a - 1) / (b - 1);
      };
      Array expected = naive::filled({2, 2, h, w}, 0);
      naive::for_each_index(expected.shape, [&](const Index& i) {
        const Blend r = blend_at(i[2], 4, step(4, h), align),
                    c = blend_at(i[3], 6, step(6, w), align);
        const auto row = [&](std::int64_t at) {
          return x.at({i[0], i[1], at, c.before}) * (1 - c.weight) +
                 x.at({i[0], i[1], at, c.after}) * c.weight;
        };
        expected.at(i) = row(r.before) * (1 - r.weight) + row(r.after) * r.weight;
      });
      for (const Tensor& t : layouts(naive::tensor_of(x))) {
        const Tensor y = interpolate(
            t, {.size = {h, w}, .mode = InterpolateMode::kBilinear, .align_corners = align});
        CHECK(naive::is_close(y, expected, 1e-13, 1e-13));
      }
    }
  }
  // PyTorch's numbers for a factor of 2.2, and for one that keeps the extent.
  const Tensor row = Tensor::from_vector<double>({0, 1, 2}, {1, 1, 3});
  const auto line = [&](double factor) {
    return interpolate(row, {.scale_factor = {factor}, .mode = InterpolateMode::kLinear})
        .to_vector<double>();
  };
  const std::vector<double> expected = {0, 2 / 11.0, 7 / 11.0, 12 / 11.0, 17 / 11.0, 2};
  for (std::size_t i = 0; i < 6; ++i) CHECK(line(2.2)[i] == Approx(expected[i]).margin(1e-15));
  CHECK(line(1.2) == std::vector<double>{0, 1, 2});
  check_dtypes(numbers({2, 3, 5}), [](const Tensor& t) {
    return interpolate(t, {.size = {8}, .mode = InterpolateMode::kLinear});
  });
}

TEST_CASE("interpolate, area: the mean of each window; a result is never x itself") {
  const Tensor x = Tensor::from_vector<double>({1, 2, 3, 4, 5, 6, 7, 8}, {1, 1, 2, 4});
  CHECK(interpolate(x, {.size = {1, 2}, .mode = InterpolateMode::kArea}).to_vector<double>() ==
        std::vector<double>{3.5, 5.5});
  const Tensor same = interpolate(x, {.size = {2, 4}});
  CHECK_FALSE(same.storage() == x.storage());
  CHECK(same.to_vector<double>() == x.to_vector<double>());
  CHECK(interpolate(x.select(2, 0), {.size = {2}, .mode = InterpolateMode::kArea})
            .to_vector<double>() == std::vector<double>{1.5, 3.5});
}

TEST_CASE("images: errors") {
  const auto text = [](auto body) { return thrown<InvalidArgument>(body); };
  const Tensor x = zeros({2, 4, 3, 6});
  CHECK(text([&] { unfold(x, {}); }) ==
        "[unfold] kernel 0 x 0, dilation 1 x 1 and stride 1 x 1 must be at least 1, padding 0 x 0 "
        "at least 0");
  CHECK(text([&] {
          unfold(x, {.kernel = {2, 4}, .dilation = 2});
        }) == "[unfold] a window of 4 with dilation 2 spans 7, the image of 6 padded by 0 only 6");
  CHECK(text([&] { unfold(zeros({2}), {.kernel = 1}); }) ==
        "[unfold] needs x [N, C, H, W] or [C, H, W], got [2]");
  CHECK(text([&] {
          fold(zeros({2, 6, 9}), 4, {.kernel = 2});
        }) ==
        "[fold] an output of 4 x 4 has 9 windows of 4 elements; needs x [N, C 4, 9] or [C 4, 9], "
        "got [2, 6, 9]");
  CHECK(text([&] { pixel_shuffle(x, 3); }) ==
        "[pixel_shuffle] an input of shape [2, 4, 3, 6] has 4 channels; upscale_factor 3 needs a "
        "multiple of 9");
  CHECK(text([&] { pixel_shuffle(x, 0); }) ==
        "[pixel_shuffle] the factor is 0; it must be at least 1");
  CHECK(text([&] { pixel_unshuffle(x, 2); }) ==
        "[pixel_unshuffle] height and width of an input of shape [2, 4, 3, 6] must be multiples of "
        "downscale_factor 2");
  CHECK(text([&] {
          pixel_unshuffle(zeros({4, 4}), 2);
        }) == "[pixel_unshuffle] needs an input [..., channels, height, width], got [4, 4]");
  CHECK(text([&] { channel_shuffle(x, 3); }) ==
        "[channel_shuffle] 4 channels of shape [2, 4, 3, 6] do not split into 3 groups");
  CHECK(text([&] {
          channel_shuffle(zeros({2, 4}), 2);
        }) == "[channel_shuffle] needs an input [samples, channels, ...], got [2, 4]");
  CHECK(text([&] { interpolate(x, {.size = {2}, .mode = InterpolateMode::kLinear}); }) ==
        "[interpolate] needs an input [N, C, L], or [N, C, H, W]; linear mode only the former, "
        "bilinear mode only the latter; got [2, 4, 3, 6]");
  CHECK(text([&] { interpolate(x, {}); }) ==
        "[interpolate] got 0 numbers as size and 0 as scale_factor; one of them has 1 or 2, the "
        "other none");
  CHECK(text([&] { interpolate(x, {.size = {2}, .align_corners = true}); }) ==
        "[interpolate] align_corners is for the linear and bilinear modes");
  CHECK(text([&] { interpolate(x, {.size = {2}, .recompute_scale_factor = true}); }) ==
        "[interpolate] recompute_scale_factor needs a scale_factor, got a size");
  CHECK(text([&] { interpolate(x, {.scale_factor = {0.2}}); }) ==
        "[interpolate] dim 2 of shape [2, 4, 3, 6] becomes 0; both extents must be at least 1");
}

}  // namespace
}  // namespace tessera::testing
