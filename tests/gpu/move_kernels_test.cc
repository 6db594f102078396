// The CUDA kernels that copy, cast, fill and move elements, against the CPU's.
#include <catch2/catch.hpp>
#include <exception>
#include <stdexcept>
#include <string>

#include "tessera/tensor/cuda/faults.h"
#include "tessera/tensor/kernels/cat.h"
#include "tessera/tensor/kernels/elementwise.h"
#include "tessera/tensor/kernels/fill.h"
#include "tessera/tensor/kernels/indexing.h"
#include "tessera/tests/gpu/elementwise_layouts.h"

namespace tessera {
namespace {

using testing::compare_devices;
using testing::HostTensor;
using testing::in_order;
using testing::Layouts;
using testing::numbers_of;
using testing::strided_layouts;
using testing::tensor_of;
using testing::with_numbers;

std::string say(DType from, DType to, const Layouts& layouts) {
  return std::string(dtype_name(from)) + " to " + dtype_name(to) + ", " + layouts.name + " " +
         layouts.shape.str();
}

// ---- axpby -------------------------------------------------------------------------------------

struct Factors {
  double alpha, beta;
};

void compare_axpby(DType from, DType to, const Layouts& layouts, Factors factors) {
  AxpbyKernel::Args args;
  const HostTensor x = numbers_of(from, layouts, layouts.a, 1);
  const HostTensor y = numbers_of(to, layouts, layouts.y, 2);
  args.x = x;
  args.y = y;
  args.alpha = factors.alpha;
  args.beta = factors.beta;
  compare_devices<AxpbyKernel>(say(from, to, layouts) + ", alpha " + std::to_string(factors.alpha) +
                                   ", beta " + std::to_string(factors.beta),
                               args);
}

TEST_CASE("axpby: every pair of dtypes") {
  for (DType from : kAllDTypes) {
    for (DType to : kAllDTypes) {
      for (const Layouts& layouts : {in_order(1025), in_order(1025, 1), strided_layouts()[9]}) {
        for (const Factors& factors : {Factors{1, 0}, Factors{3, 0}, Factors{2, 1}, Factors{1, 3}})
          compare_axpby(from, to, layouts, factors);
      }
    }
  }
}

TEST_CASE("axpby: every layout of the common pairs") {
  const DType pairs[][2] = {{DType::kF32, DType::kBF16},  {DType::kBF16, DType::kF32},
                            {DType::kF32, DType::kF16},   {DType::kF16, DType::kF32},
                            {DType::kBF16, DType::kBF16}, {DType::kF32, DType::kF32},
                            {DType::kI64, DType::kI64}};
  for (const auto& pair : pairs) {
    const bool whole = !is_floating(pair[0]);
    // The last factor is 0 in f32, but inf * 0 in the addend is not.
    for (const Factors& factors :
         {Factors{1, 0}, Factors{1, 1}, Factors{0.3, -1.7}, Factors{0.5, 1e-60}}) {
      if (whole && factors.alpha != 1) continue;
      for (std::int64_t n : testing::kLengths)
        compare_axpby(pair[0], pair[1], in_order(n), factors);
      for (std::int64_t first : {1, 2, 4})
        compare_axpby(pair[0], pair[1], in_order(1030, first), factors);
      for (const Layouts& layouts : strided_layouts())
        compare_axpby(pair[0], pair[1], layouts, factors);
    }
  }
}

TEST_CASE("axpby: transposes go through tiles") {
  const Layouts transposes[] = {
      {"one tile and a bit", {65, 66}, {1, 65}, {}, {66, 1}},
      {"long and narrow", {16, 300}, {1, 16}, {}, {300, 1}},
      {"wide rows with gaps", {130, 17}, {1, 140}, {}, {20, 1}},
      {"several matrices", {3, 20, 70}, {1400, 1, 20}, {}, {1400, 70, 1}},
      {"heads and positions", {2, 18, 3, 33}, {1782, 1, 594, 18}, {}, {1782, 99, 33, 1}},
  };
  const Layouts many = {"more tiles than blocks", {4200, 16, 17}, {272, 1, 16}, {}, {272, 17, 1}};
  compare_axpby(DType::kF32, DType::kBF16, many, {1, 0});
  for (const Layouts& layouts : transposes) {
    for (DType from : kAllDTypes) {
      for (DType to : {from, DType::kF32, DType::kBF16, DType::kI64}) {
        for (const Factors& factors : {Factors{1, 0}, Factors{3, 0}, Factors{2, 1}})
          compare_axpby(from, to, layouts, factors);
      }
    }
  }
}

TEST_CASE("axpby: in place, and a number alone") {
  for (DType dtype : kAllDTypes) {
    for (const Layouts& layouts : {in_order(2061), in_order(1025, 1), strided_layouts()[8]}) {
      AxpbyKernel::Args args;
      const HostTensor x = numbers_of(dtype, layouts, layouts.y, 1);
      args.x = x;
      args.y = x;
      args.alpha = 2;
      args.beta = 1;
      compare_devices<AxpbyKernel>("in place, " + say(dtype, dtype, layouts), args);
    }
    const auto fill = [&](const Layouts& layouts) {
      for (double number : {0.0, -0.0, 1.0, 0.1, 77.0}) {
        AxpbyKernel::Args args;
        const HostTensor y = tensor_of(dtype, layouts, layouts.y);
        args.y = y;
        args.number = number;
        compare_devices<AxpbyKernel>("filled, " + say(dtype, dtype, layouts), args);
      }
    };
    for (std::int64_t n : testing::kLengths) fill(in_order(n));
    fill(in_order(1025, 1));
    for (const Layouts& layouts : strided_layouts()) fill(layouts);
  }
}

// ---- elements that move ------------------------------------------------------------------------

TEST_CASE("masked fill: every dtype and layout") {
  for (DType dtype : kAllDTypes) {
    const auto compare = [&](const Layouts& layouts, DType mask_dtype) {
      MaskedFillKernel::Args args;
      const HostTensor x = numbers_of(dtype, layouts, layouts.y, 1);
      const HostTensor mask = tensor_of(mask_dtype, layouts, layouts.b).filled([](std::int64_t i) {
        return i % 3 == 0 ? 1.0 : 0.0;
      });
      const HostTensor y = tensor_of(dtype, layouts, layouts.y);
      args.x = x;
      args.mask = mask;
      args.y = y;
      args.value = is_floating(dtype) ? -1e9 : 1;
      compare_devices<MaskedFillKernel>(say(mask_dtype, dtype, layouts), args);
      args.y = x;
      compare_devices<MaskedFillKernel>("in place, " + say(mask_dtype, dtype, layouts), args);
    };
    for (std::int64_t n : testing::kLengths) compare(in_order(n), DType::kBool);
    compare(in_order(1025, 1), DType::kU8);
    for (const Layouts& layouts : strided_layouts()) compare(layouts, DType::kBool);
  }
}

TEST_CASE("masked scatter: every dtype and layout, and a source that is too short") {
  for (DType dtype : kAllDTypes) {
    const auto compare = [&](const Layouts& layouts, std::int64_t source_elements) {
      MaskedScatterKernel::Args args;
      const HostTensor x = numbers_of(dtype, layouts, layouts.y, 1);
      const auto is_set = [](std::int64_t i) { return i % 3 == 0 ? 1.0 : 0.0; };
      const HostTensor mask = tensor_of(DType::kBool, layouts, layouts.b).filled(is_set);
      // Of the elements in row-major order.
      const HostTensor places =
          tensor_of(DType::kI64, layouts, layouts.y).filled([](std::int64_t i) {
            return static_cast<double>(i / 3 + 1);
          });
      const Layouts line = in_order(source_elements);
      const HostTensor source = numbers_of(dtype, line, line.y, 2);
      const HostTensor y = tensor_of(dtype, layouts, layouts.y);
      args.x = x;
      args.mask = mask;
      args.places = places;
      args.source = source;
      args.y = y;
      const std::string what =
          say(DType::kBool, dtype, layouts) + ", source " + std::to_string(source_elements);
      compare_devices<MaskedScatterKernel>(what, args);
      args.y = x;
      compare_devices<MaskedScatterKernel>("in place, " + what, args);
    };
    for (std::int64_t n : testing::kLengths) compare(in_order(n), n / 3 + 1);
    compare(in_order(1025, 1), 342);
    compare(in_order(1025, 1), 5);
    compare(in_order(33), 0);
    for (const Layouts& layouts : strided_layouts()) compare(layouts, 4000);
  }
}

TEST_CASE("triangles: every dtype, diagonals inside and outside") {
  const Layouts matrices[] = {
      {"a matrix", {33, 40}, {40, 1}, {}, {40, 1}},
      {"an odd matrix", {17, 23}, {23, 1}, {}, {23, 1}},
      {"from a transpose", {20, 16}, {1, 20}, {}, {16, 1}},
      {"three matrices", {3, 12, 12}, {144, 12, 1}, {}, {160, 13, 1}},
      {"a row", {1, 8}, {8, 1}, {}, {8, 1}},
      {"a column", {9, 1}, {1, 1}, {}, {1, 1}},
      {"none", {0, 5}, {5, 1}, {}, {5, 1}},
  };
  for (const Layouts& layouts : matrices) {
    for (DType dtype : kAllDTypes) {
      for (std::int64_t diagonal : {-100, -3, 0, 1, 5, 100}) {
        for (bool upper : {false, true}) {
          TriangleKernel::Args args;
          const HostTensor x = numbers_of(dtype, layouts, layouts.a, 1);
          const HostTensor y = tensor_of(dtype, layouts, layouts.y);
          args.x = x;
          args.y = y;
          args.diagonal = diagonal;
          args.upper = upper;
          compare_devices<TriangleKernel>(say(dtype, dtype, layouts) + ", diagonal " +
                                              std::to_string(diagonal) + (upper ? ", upper" : ""),
                                          args);
        }
      }
    }
  }
}

TEST_CASE("flips: every dtype, layout and choice of dims") {
  for (DType dtype : kAllDTypes) {
    const auto compare = [&](const Layouts& layouts) {
      for (unsigned dims = 0; dims < 1u << layouts.shape.ndim(); ++dims) {
        FlipKernel::Args args;
        const HostTensor x = numbers_of(dtype, layouts, layouts.a, 1);
        const HostTensor y = tensor_of(dtype, layouts, layouts.y);
        args.x = x;
        args.y = y;
        for (std::size_t d = 0; d < kMaxDims; ++d) args.reversed[d] = ((dims >> d) & 1u) != 0;
        compare_devices<FlipKernel>(say(dtype, dtype, layouts) + ", dims " + std::to_string(dims),
                                    args);
      }
    };
    for (std::int64_t n : {1, 8, 1025}) compare(in_order(n));
    for (const Layouts& layouts : strided_layouts()) compare(layouts);
  }
}

TEST_CASE("cat: rows with and without gaps, every dtype") {
  for (DType dtype : kAllDTypes) {
    const auto part = [&](std::int64_t columns, std::int64_t step, int seed) {
      return with_numbers(HostTensor(dtype, {20, columns}, {step, 1}), dtype, seed);
    };
    const HostTensor rows = part(33, 33, 1), gaps = part(9, 12, 2), repeated = part(8, 0, 3);
    for (std::int64_t step : {83, 85, 96}) {
      const HostTensor y(dtype, {20, 83}, {step, 1});
      compare_devices<CatKernel>(std::string(dtype_name(dtype)) + ", " + std::to_string(step),
                                 {.parts = {rows, gaps, repeated, rows}, .y = y});
    }
  }
}

// ---- numbers computed from positions ------------------------------------------------------------

TEST_CASE("arange: both halves, every dtype") {
  for (DType dtype : kAllDTypes) {
    for (std::int64_t n : {0, 1, 2, 100, 1025}) {
      for (std::int64_t mirror : {std::int64_t{0}, n / 2, n}) {
        ArangeKernel::Args args;
        const HostTensor y(dtype, {n});
        args.y = y;
        args.first = -3;
        args.step = is_floating(dtype) ? 0.1 : 2;
        args.last = 100;
        args.mirror = mirror;
        compare_devices<ArangeKernel>(dtype_name(dtype), args);
      }
    }
  }
}

[[noreturn]] void throw_bad_index(std::int64_t index, std::int64_t position, std::int64_t extent,
                                  int dim) {
  throw std::out_of_range(std::to_string(index) + " at " + std::to_string(position) + " of " +
                          std::to_string(extent) + " in " + std::to_string(dim));
}

HostTensor indices(DType dtype, const Shape& shape, const Shape& strides, int extent) {
  return HostTensor(dtype, shape, strides).filled([=](std::int64_t i) {
    return static_cast<double>((i * 7 + 3) % extent);
  });
}

TEST_CASE("linear index: indices of both dtypes, broadcast and strided") {
  const Shape shape = {4, 9};
  const HostTensor rows = indices(DType::kI64, shape, {1, 0}, 5),
                   columns = indices(DType::kI32, shape, {0, 1}, 7),
                   planes = indices(DType::kI64, shape, {1, 4}, 3);
  const HostTensor y(DType::kI64, shape);
  LinearIndexKernel::Args args;
  args.y = y;
  args.bad_index = throw_bad_index;
  args.extents = {5};
  args.indices[0] = rows;
  compare_devices<LinearIndexKernel>("one", args);
  args.extents = {5, 7, 3};
  args.indices[1] = columns;
  args.indices[2] = planes;
  compare_devices<LinearIndexKernel>("three", args);
}

std::string fault_of(const LinearIndexKernel::Args& args) {
  LinearIndexKernel::cuda(nullptr, args, {});
  testing::cuda_check(cudaDeviceSynchronize());
  const std::exception_ptr fault = cuda::take_fault(*cuda::fault_slot(nullptr));
  if (!fault) return "none";
  try {
    std::rethrow_exception(fault);
  } catch (const std::out_of_range& error) {
    return error.what();
  }
}

TEST_CASE("linear index: what is out of range is reported as on the CPU") {
  const testing::DeviceBuffer<std::int64_t> good({0, 1, 2, 3, 4, 0}), bad({0, 1, 2, 3, 9, 0}),
      negative({0, -1}), beyond({0, -6}), y(std::vector<std::int64_t>(6, -7));
  LinearIndexKernel::Args args;
  args.bad_index = throw_bad_index;
  args.extents = {5, 5};
  const auto operand = [](const testing::DeviceBuffer<std::int64_t>& buffer, const Shape& strides) {
    return ConstView{
        .data = buffer.data(), .dtype = DType::kI64, .shape = {2, 3}, .strides = strides};
  };
  args.y = {.data = y.data(), .dtype = DType::kI64, .shape = {2, 3}, .strides = {3, 1}};
  args.indices[0] = operand(good, {3, 1});
  args.indices[1] = operand(good, {3, 1});
  CHECK(fault_of(args) == "none");
  CHECK(y.values() == std::vector<std::int64_t>{0, 6, 12, 18, 24, 0});
  args.indices[1] = operand(bad, {3, 1});
  CHECK(fault_of(args) == "9 at 4 of 5 in 1");
  CHECK(y.values() == std::vector<std::int64_t>{0, 6, 12, 18, 20, 0});
  args.indices[1] = operand(negative, {1, 0});
  CHECK(fault_of(args) == "none");
  CHECK(y.values() == std::vector<std::int64_t>{0, 5, 10, 19, 24, 4});
  args.indices[1] = operand(beyond, {1, 0});  // a repeated index counts once
  CHECK(fault_of(args) == "-6 at 1 of 5 in 1");
}

}  // namespace
}  // namespace tessera
