// Cross entropy and its derivative on a GPU against the CPU's.
#include <catch2/catch.hpp>
#include <limits>
#include <stdexcept>

#include "tessera/tensor/cuda/faults.h"
#include "tessera/tensor/kernels/cross_entropy.h"
#include "tessera/tests/gpu/row_tensors.h"

namespace tessera::testing {
namespace {

[[noreturn]] void bad_target(std::int64_t row, std::int64_t target, std::int64_t classes) {
  throw std::out_of_range("row " + std::to_string(row) + ": " + std::to_string(target) + " of " +
                          std::to_string(classes));
}

struct Case {
  DType dtype = DType::kF32;
  std::int64_t rows = 5;
  std::int64_t classes = 10;
  RowLayout layout = RowLayout::kContiguous;
  bool weighted = false;
  double smoothing = 0;
  DType target_dtype = DType::kI64;
  std::int64_t target_stride = 1;
  std::int64_t first = 0;  // class of the first column
  std::int64_t all = 0;    // classes of all parts; 0: the logits have all

  std::int64_t all_classes() const { return all > 0 ? all : classes; }
  DType compute() const { return dtype == DType::kF64 ? DType::kF64 : DType::kF32; }
  std::string name() const {
    return row_case(dtype, rows, classes, layout) + (weighted ? ", weighted" : "") +
           (smoothing > 0 ? ", smoothed" : "") +
           (all > 0 ? ", from " + std::to_string(first) + " of " + std::to_string(all) : "");
  }
};

// Operands that outlive the arguments; every third target is ignored.
struct Operands {
  explicit Operands(const Case& c)
      : logits(rows_tensor(c.dtype, c.rows, c.classes, c.layout).random(-5, 5)),
        targets(HostTensor(c.target_dtype, {c.rows}, {c.target_stride}).filled([&](std::int64_t i) {
          return i % 3 == 2 ? -100.0 : static_cast<double>((i * 7 + 1) % c.all_classes());
        })),
        weight(HostTensor(c.compute(), {c.all_classes()}).random(0.5, 2)),
        first(c.compute(), {c.rows}),
        second(HostTensor(c.compute(), {c.rows}).random(2, 3)),
        third(HostTensor(c.compute(), {c.rows}).random(-1, 1)),
        largest(c.compute(), {c.rows}) {
    shared.targets = targets;
    if (c.weighted) shared.weight = weight;
    shared.first = c.first;
    shared.classes = c.all_classes();
    shared.smoothing = c.smoothing;
    shared.bad_target = bad_target;
  }
  HostTensor logits, targets, weight, first, second, third, largest;
  CrossEntropyTargets shared;
};

void compare_forward(const Case& c) {
  const Operands o(c);
  CrossEntropyKernel::Args args;
  args.logits = o.logits;
  args.targets = o.shared;
  args.loss = o.first;
  args.log_sum_exp = o.second;
  args.row_weight = o.third;
  if (c.all > 0) args.largest = o.largest;
  Tolerance tolerance = close_in(c.compute());
  if (c.smoothing > 0) tolerance.rtol *= 4;  // a sum over all classes
  compare_devices<CrossEntropyKernel>(c.name(), args, tolerance);
}

// The CPU's bits if no class weights are summed, except in f64, whose exp() differs; elements of 16
// bits may be rounded to a neighbour.
Tolerance backward_tolerance(const Case& c) {
  if (c.dtype == DType::kF64 || (c.weighted && c.smoothing > 0)) return close_in(c.dtype);
  switch (c.dtype) {
    case DType::kBF16:
      return {.rtol = 0x1p-7, .atol = 0};
    case DType::kF16:
      return {.rtol = 0x1p-10, .atol = 0x1p-24};
    default:
      return {};
  }
}

void compare_backward(const Case& c, bool in_place) {
  const Operands o(c);
  const HostTensor dlogits = rows_tensor(c.dtype, c.rows, c.classes, c.layout);
  CrossEntropyBackwardKernel::Args args;
  args.dloss = o.third;
  args.logits = o.logits;
  args.targets = o.shared;
  args.log_sum_exp = o.second;
  args.dlogits = in_place ? o.logits : dlogits;
  compare_devices<CrossEntropyBackwardKernel>(c.name() + (in_place ? ", in place" : ""), args,
                                              backward_tolerance(c));
}

void compare_both(const Case& c) {
  compare_forward(c);
  compare_backward(c, false);
  compare_backward(c, true);
}

}  // namespace

TEST_CASE("cross entropy on a GPU is the CPU's, for every dtype, layout and number of classes") {
  for (const DType dtype : kFloating) {
    for (const RowLayout layout : kRowLayouts) {
      for (const std::int64_t classes : {1, 3, 31, 33, 64, 1025})
        compare_both({.dtype = dtype, .classes = classes, .layout = layout});
    }
  }
}

TEST_CASE("cross entropy with class weights and smoothing") {
  for (const DType dtype : kFloating) {
    for (const std::int64_t classes : {7, 200, 3000}) {
      compare_both({.dtype = dtype, .classes = classes, .weighted = true});
      compare_both({.dtype = dtype, .classes = classes, .smoothing = 0.1});
      compare_both({.dtype = dtype, .classes = classes, .weighted = true, .smoothing = 0.1});
    }
  }
}

// Most targets are in other parts.
TEST_CASE("cross entropy of a part of the classes") {
  for (const DType dtype : kFloating) {
    for (const double smoothing : {0.0, 0.1}) {
      for (const bool weighted : {false, true}) {
        for (const std::int64_t first : {0, 3, 8, 33}) {
          for (const std::int64_t classes : {1, 8, 1000})
            compare_both({.dtype = dtype,
                          .rows = 19,
                          .classes = classes,
                          .weighted = weighted,
                          .smoothing = smoothing,
                          .first = first,
                          .all = first + classes + 5});
        }
      }
    }
  }
  for (const bool weighted : {false, true}) {
    compare_both({.classes = 0, .weighted = weighted, .first = 7, .all = 7});
    compare_both({.classes = 0, .weighted = weighted, .smoothing = 0.1, .first = 7, .all = 7});
  }
}

TEST_CASE("cross entropy of large vocabularies, of many rows, of i32 targets with a stride") {
  compare_both({.dtype = DType::kBF16, .rows = 3, .classes = 50257});
  compare_both({.dtype = DType::kF32, .rows = 2, .classes = 128256});
  compare_both({.dtype = DType::kF32, .rows = 700, .classes = 12});
  compare_both({.target_dtype = DType::kI32, .target_stride = 3});
  compare_both({.rows = 0});
}

TEST_CASE("cross entropy of infinite logits gives what the CPU gives") {
  Case c{.rows = 4, .classes = 70};
  Operands o(c);
  const double infinity = std::numeric_limits<double>::infinity();
  o.logits = HostTensor(DType::kF32, {4, 70}).filled([=](std::int64_t i) {
    if (i / 70 == 0) return i % 70 == 1 ? 2.0 : -infinity;
    if (i / 70 == 1) return i % 70 == 3 ? infinity : 1.0;
    return i / 70 == 2 ? std::nan("") : 1e4 * static_cast<double>(i % 70);
  });
  o.shared.ignore_index = -1;
  o.targets =
      HostTensor(DType::kI64, {4}).filled([](std::int64_t i) { return i == 3 ? 69.0 : 1.0; });
  o.shared.targets = o.targets;
  CrossEntropyKernel::Args args;
  args.logits = o.logits;
  args.targets = o.shared;
  args.loss = o.first;
  args.log_sum_exp = o.second;
  args.row_weight = o.third;
  compare_devices<CrossEntropyKernel>("special", args, close_in(DType::kF32));
  // A part of which nothing, or only NaN, is a number.
  args.targets.classes = 90;
  args.largest = o.largest;
  args.targets.smoothing = 0.1;
  const HostTensor low = HostTensor(DType::kF32, {4, 70}).filled([=](std::int64_t i) {
    return i / 70 == 1 ? std::nan("") : i / 70 == 2 && i % 70 > 60 ? 1.0 : -infinity;
  });
  args.logits = low;
  compare_devices<CrossEntropyKernel>("low", args, close_in(DType::kF32));
}

// Nothing is read or written out of range, and the next wait throws the CPU's text.
TEST_CASE("a target outside the classes is reported, by forward and backward") {
  for (const double bad : {-1.0, 10.0, 1e12}) {
    const DeviceBuffer<float> logits(std::vector<float>(20, 1.0f)),
        out(std::vector<float>(20, 7.f));
    const DeviceBuffer<std::int64_t> targets({3, static_cast<std::int64_t>(bad)});
    const auto row = [&](int i) {
      return View{.data = out.data() + 2 * i, .dtype = DType::kF32, .shape = {2}, .strides = {1}};
    };
    CrossEntropyTargets shared;
    shared.targets = {.data = targets.data(), .dtype = DType::kI64, .shape = {2}, .strides = {1}};
    shared.bad_target = bad_target;
    shared.classes = 10;
    const ConstView x{
        .data = logits.data(), .dtype = DType::kF32, .shape = {2, 10}, .strides = {10, 1}};
    CrossEntropyKernel::Args forward;
    forward.logits = x;
    forward.targets = shared;
    forward.loss = row(0);
    forward.log_sum_exp = row(1);
    forward.row_weight = row(2);
    CrossEntropyKernel::cuda(nullptr, forward, {});
    const std::string expected =
        "row 1: " + std::to_string(static_cast<std::int64_t>(bad)) + " of 10";
    const auto fault_text = [] {
      cuda_check(cudaDeviceSynchronize());
      const std::exception_ptr fault = cuda::take_fault(*cuda::fault_slot(nullptr));
      if (!fault) return std::string("no fault");
      try {
        std::rethrow_exception(fault);
      } catch (const std::out_of_range& error) {
        return std::string(error.what());
      }
    };
    CHECK(fault_text() == expected);
    CHECK(out.values()[1] == 0);  // as for an ignored row
    CrossEntropyBackwardKernel::Args backward;
    backward.dloss = {.data = out.data(), .dtype = DType::kF32, .shape = {2}, .strides = {1}};
    backward.logits = x;
    backward.targets = shared;
    backward.log_sum_exp = backward.dloss;
    backward.dlogits = {
        .data = logits.data(), .dtype = DType::kF32, .shape = {2, 10}, .strides = {10, 1}};
    CrossEntropyBackwardKernel::cuda(nullptr, backward, {});
    CHECK(fault_text() == expected);
    CHECK(logits.values()[15] == 0);
  }
}

}  // namespace tessera::testing
