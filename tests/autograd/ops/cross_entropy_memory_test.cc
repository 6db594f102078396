// Cross entropy whose gradient takes the memory of the logits: when it does, that it has the bits
// of a gradient of its own, and that logits which someone holds stay as they are.

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops/autocast.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/autograd/recompute.h"
#include "tessera/tensor/memory_counters.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tensor/streams/stream.h"
#include "tessera/tests/autograd/fixtures.h"
#include "tessera/tests/support/close.h"

namespace tessera::testing {
namespace {

using Catch::Contains;

// The last result of the derivative of a cross entropy.
struct Answer {
  bool in_place = false;
  Tensor gradient;
};

std::shared_ptr<Answer> watch(const Variable& loss) {
  auto answer = std::make_shared<Answer>();
  loss.gradient_edge().node->add_post_hook([answer](const Gradients& gradients) {
    const Tensor& gradient = gradients.front().tensor();
    const char* writer = gradient.last_writer();
    *answer = {
        .in_place = writer != nullptr && std::string(writer) == "cross_entropy_rows_backward_",
        .gradient = clone(gradient)};
  });
  return answer;
}

// Rows 2 and 5 are ignored.
Tensor some_targets(const Shape& rows = {6}) {
  return Tensor::from_vector<std::int64_t>({1, 0, -100, 2, 4, -100}, rows);
}

// Logits that an operation made, which keeps no handle of them.
struct Made {
  Variable source;
  Variable logits;

  explicit Made(const Tensor& values) : source(clone(values), true), logits(mul(source, 1.0)) {}
};

void run_backward(const Variable& loss, BackwardOptions options = {}) {
  if (loss.ndim() > 0) options.gradient = cast(irregular(loss.shape(), -1, 1, 0.3), loss.dtype());
  backward(loss, options);
}

// The result for logits that only the loss holds, and for logits with another handle.
Answer answer_for(const Tensor& values, const CrossEntropyOptions& options, bool held) {
  Made made(values);
  const Variable loss =
      cross_entropy(made.logits, some_targets(values.shape().without(values.ndim() - 1)), options);
  if (!held) made.logits = Variable();
  const auto answer = watch(loss);
  run_backward(loss);
  if (held) CHECK(all_equal(made.logits.tensor(), values));
  CHECK(all_equal(made.source.grad(), answer->gradient));
  return *answer;
}

void check_bits(const Tensor& values, const CrossEntropyOptions& options) {
  const Answer own = answer_for(values, options, true), over = answer_for(values, options, false);
  CHECK_FALSE(own.in_place);
  CHECK(over.in_place);
  CHECK(all_equal(over.gradient, own.gradient));
}

TEST_CASE("cross entropy: over the logits or not, the gradient has the same bits") {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16}) {
    for (const LossReduction reduction :
         {LossReduction::kNone, LossReduction::kMean, LossReduction::kSum}) {
      for (const double smoothing : {0.0, 0.2}) {
        for (const bool weighted : {false, true}) {
          INFO(dtype_name(dtype) << " " << static_cast<int>(reduction) << " " << smoothing << " "
                                 << weighted);
          const CrossEntropyOptions options{.reduction = reduction,
                                            .label_smoothing = smoothing,
                                            .weight = weighted ? irregular({5}, 0.5, 2) : Tensor()};
          check_bits(cast(irregular({6, 5}, -3, 3), dtype), options);
          check_bits(cast(irregular({2, 3, 5}, -3, 3), dtype), options);
        }
      }
    }
  }
}

// A cast to f32 before the loss, and of the gradient afterwards, changes no bit on the CPU.
TEST_CASE("cross entropy of 16-bit logits: the bits of logits that were cast to f32") {
  const bool bits = default_device().is_cpu();
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const LossReduction reduction :
         {LossReduction::kNone, LossReduction::kMean, LossReduction::kSum}) {
      for (const double smoothing : {0.0, 0.2}) {
        for (const bool weighted : {false, true}) {
          INFO(dtype_name(dtype) << " " << static_cast<int>(reduction) << smoothing << weighted);
          const CrossEntropyOptions options{.reduction = reduction,
                                            .label_smoothing = smoothing,
                                            .weight = weighted ? irregular({5}, 0.5, 2) : Tensor()};
          const Tensor values = cast(irregular({2, 3, 5}, -3, 3), dtype);
          const auto result = [&](bool casts) {
            const Variable x(clone(values), true);
            const Variable loss = cross_entropy(casts ? cast(x, DType::kF32) : mul(x, 1.0),
                                                some_targets({2, 3}), options);
            run_backward(loss);
            return std::pair(loss.tensor(), x.grad());
          };
          const auto [loss, gradient] = result(false);
          const auto [cast_loss, cast_gradient] = result(true);
          CHECK(loss.dtype() == DType::kF32);
          CHECK(gradient.dtype() == dtype);
          const CloseResult losses = bits ? all_equal(loss, cast_loss) : all_close(loss, cast_loss);
          const double ulp = dtype == DType::kBF16 ? 0x1p-7 : 0x1p-10;
          const CloseResult gradients = bits ? all_equal(gradient, cast_gradient)
                                             : all_close(gradient, cast_gradient, {ulp, 0x1p-24});
          INFO(losses.message << gradients.message);
          CHECK(losses);
          CHECK(gradients);
        }
      }
    }
  }
}

// How someone may hold logits of [6, 5], and what they read there.
using Reader = std::function<Tensor()>;
struct Holder {
  const char* what;
  std::function<Reader(const Variable&)> hold;
};

std::vector<Holder> holders() {
  return {
      {"the variable", [](const Variable& x) { return [x] { return x.tensor(); }; }},
      {"detached", [](const Variable& x) { return [y = x.detach()] { return y.tensor(); }; }},
      {"the tensor", [](const Variable& x) { return [y = x.tensor()] { return y; }; }},
      {"a view",
       [](const Variable& x) { return [y = x.tensor().view({30})] {
                                 return y.view({6, 5});
                               }; }},
      {"a variable's view",
       [](const Variable& x) {
         return [y = transpose(x, 0, 1)] { return contiguous(y.tensor().transpose(0, 1)); };
       }},
      {"a family of its own",
       [](const Variable& x) { return [y = x.tensor().detached_version()] { return y; }; }},
      {"the storage",
       [](const Variable& x) {
         return [storage = x.tensor().storage()] {
           return Tensor::over(storage, {6, 5}, {5, 1}, 0, DType::kF64);
         };
       }},
      {"a hook",
       [](const Variable& x) {
         const auto kept = std::make_shared<Tensor>();
         Variable same = x;
         same.register_hook([kept, y = x.tensor()](const Variable&) {
           *kept = y;
           return Variable();
         });
         return [kept] { return *kept; };
       }},
  };
}

TEST_CASE("cross entropy: logits that someone holds keep their values") {
  const Tensor values = irregular({6, 5}, -3, 3);
  const Tensor expected = answer_for(values, {}, true).gradient;
  for (const Holder& holder : holders()) {
    INFO(holder.what);
    Made made(values);
    const Reader reader = holder.hold(made.logits);
    const Variable loss = cross_entropy(made.logits, some_targets());
    made.logits = Variable();
    const auto answer = watch(loss);
    backward(loss);
    CHECK_FALSE(answer->in_place);
    CHECK(all_equal(answer->gradient, expected));
    CHECK(all_equal(reader(), values));
  }
  const Variable leaf(clone(values), true);
  const Variable loss = cross_entropy(leaf, some_targets());
  const auto answer = watch(loss);
  backward(loss);
  CHECK_FALSE(answer->in_place);
  CHECK(all_equal(leaf.tensor(), values));
}

TEST_CASE("cross entropy: views of logits, the base gone or held") {
  const Tensor values = irregular({2, 3, 5}, -3, 3);
  for (const bool held : {false, true}) {
    Made made(values);
    const Variable loss = cross_entropy(reshape(made.logits, {6, 5}), some_targets());
    if (!held) made.logits = Variable();
    const auto answer = watch(loss);
    backward(loss);
    CHECK(answer->in_place == !held);
    if (held) CHECK(all_equal(made.logits.tensor(), values));
  }
  // A slice of the base tensor would keep all of it, and a permuted view would stay one tensor.
  const auto answer_of = [&](const std::function<Variable(const Variable&)>& view) {
    const Variable loss =
        cross_entropy(view(Made(irregular({6, 6}, -3, 3)).logits), some_targets());
    const auto answer = watch(loss);
    backward(loss);
    return answer->in_place;
  };
  CHECK(answer_of([](const Variable& x) { return view(x, {6, 6}); }));
  // On a GPU a row of 5 with room for 6 is a row of its own.
  CHECK(answer_of([](const Variable& x) { return slice(x, 1, 0, 5); }) !=
        default_device().is_cpu());
  CHECK_FALSE(answer_of([](const Variable& x) { return slice(x, 1, 1, 6); }));
  CHECK_FALSE(answer_of([](const Variable& x) { return transpose(x, 0, 1); }));
  const Variable rows = cross_entropy(slice(Made(irregular({8, 5})).logits, 0, 2, 8),
                                      some_targets());  // contiguous, but not the whole storage
  const auto answer = watch(rows);
  backward(rows);
  CHECK_FALSE(answer->in_place);
}

Tensor targets_below(std::int64_t classes) {
  std::vector<std::int64_t> targets = {0, 1, -100, 2, 4, 3};
  for (std::int64_t& target : targets) target = target < 0 ? target : target % classes;
  return Tensor::from_vector(targets, {2, 3});
}

TEST_CASE("cross entropy: logits with aligned rows") {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16}) {
    for (const std::int64_t classes : {1, 5, 8, 13}) {
      for (const bool held : {false, true}) {
        INFO(dtype_name(dtype) << classes << held);
        const auto gradients = [&](RowPitch pitch) {
          const Variable x(cast(irregular({2, 3, 7}, -1, 1), dtype), true);
          const Variable w(cast(irregular({classes, 7}, -1, 1, 0.5), dtype), true);
          Variable logits = linear(x, w, Variable(), ActivationKind::kNone, pitch);
          const Variable loss = cross_entropy(logits, targets_below(classes));
          const Tensor before = clone(logits.tensor());
          const auto answer = watch(loss);
          if (!held) logits = Variable();
          backward(loss);
          if (held) CHECK(all_equal(logits.tensor(), before));
          CHECK(answer->in_place == !held);
          return std::vector<Tensor>{loss.tensor(), answer->gradient, x.grad(), w.grad()};
        };
        const auto packed = gradients(RowPitch::kPacked), aligned = gradients(RowPitch::kAligned);
        const double slack = dtype == DType::kF64 ? 1e-13 : dtype == DType::kF32 ? 1e-5 : 0x1p-6;
        for (std::size_t i = 0; i < packed.size(); ++i) {
          const bool bits = default_device().is_cpu();
          const CloseResult close = bits ? all_equal(aligned[i], packed[i])
                                         : all_close(aligned[i], packed[i], {slack, slack});
          INFO(close.message);
          CHECK(close);
        }
      }
    }
  }
}

// Square saves the logits too; the node that was recorded last runs first.
TEST_CASE("cross entropy: another node that saved the logits, and runs later or earlier") {
  const Tensor values = irregular({6, 5}, -3, 3);
  const auto run = [&](bool square_first, bool held) {
    Made made(values);
    Variable squares, loss;
    if (square_first) squares = sum(square(made.logits));
    loss = cross_entropy(made.logits, some_targets());
    if (!square_first) squares = sum(square(made.logits));
    const auto answer = watch(loss);
    const Variable total = add(loss, squares);
    squares = Variable();
    if (!held) made.logits = Variable();
    backward(total);
    CHECK(answer->in_place == (!held && !square_first));
    return made.source.grad();
  };
  CHECK(all_equal(run(true, false), run(true, true)));
  CHECK(all_equal(run(false, false), run(false, true)));
}

TEST_CASE("cross entropy: what backward is asked to keep, it keeps") {
  Made made(irregular({6, 5}, -3, 3));
  const Variable loss = cross_entropy(made.logits, some_targets());
  made.logits = Variable();
  const auto answer = watch(loss);
  backward(loss, {.retain_graph = true});
  CHECK_FALSE(answer->in_place);
  const Tensor first = answer->gradient;
  const std::vector<Variable> twice = grad({&loss, 1}, {&made.source, 1}, {.create_graph = true});
  CHECK_FALSE(answer->in_place);
  CHECK(all_close(answer->gradient, first));
  backward(sum(square(twice[0])), {.retain_graph = true});
  backward(loss, {.retain_graph = true});
  CHECK_FALSE(answer->in_place);
  CHECK(all_equal(answer->gradient, first));
  backward(loss);
  CHECK(answer->in_place);
  CHECK(all_equal(answer->gradient, first));
}

TEST_CASE("cross entropy: recomputed logits are nobody's, even where the graph is retained") {
  const Variable x = leaf({6, 5}, -3, 3);
  auto answer = std::make_shared<Answer>();
  const Variable loss = recompute(
      [&](const Variable& in) {
        const Variable out = cross_entropy(mul(in, 1.0), some_targets());
        if (out.requires_grad()) answer = watch(out);
        return out;
      },
      x);
  const Tensor expected = answer_for(x.tensor(), {}, true).gradient;
  for (int i = 0; i < 2; ++i) {
    backward(loss, {.retain_graph = true});
    CHECK(answer->in_place);
    CHECK(all_equal(answer->gradient, expected));
  }
}

TEST_CASE("cross entropy: autocast's copy of the logits is nobody's") {
  const Variable h(cast(irregular({6, 4}), DType::kF32), true);
  const Variable w(cast(irregular({5, 4}, -3, 3), DType::kF32), true);
  Variable logits, loss;
  {
    const AutocastGuard lower(DType::kBF16);
    logits = linear(h, w, Variable());
    loss = cross_entropy(logits, some_targets());
  }
  CHECK(logits.dtype() == DType::kBF16);
  const Tensor before = clone(logits.tensor());
  const auto answer = watch(loss);
  backward(loss);
  CHECK(answer->in_place);
  CHECK(answer->gradient.dtype() == DType::kF32);
  CHECK(all_equal(answer->gradient, answer_for(cast(before, DType::kF32), {}, true).gradient));
  CHECK(all_equal(logits.tensor(), before));
}

// Its memory would go back to a stream that knows nothing of the one that reads the gradient.
TEST_CASE("cross entropy: not over the logits of another stream") {
  const Tensor values = irregular({6, 5}, -3, 3);
  const Tensor expected = answer_for(values, {}, true).gradient;
  const DeviceStream other = DeviceStream::create(default_device(), StreamKind::kQueued, "other");
  Made made(values);
  const Variable loss = cross_entropy(made.logits, some_targets());
  made.logits = Variable();
  const auto answer = watch(loss);
  const DeviceStream own = current_stream(default_device());
  other.wait(own.record());
  // What backward lets go of lies behind this, so it is read before its stream takes it back.
  stream_sleep(own, 300);
  {
    const StreamGuard guard(other);
    backward(loss);
    other.synchronize();
  }
  CHECK_FALSE(answer->in_place);
  CHECK(all_equal(answer->gradient, expected));
}

TEST_CASE("cross entropy: a pass that failed after the gradient was written cannot run again") {
  Made made(irregular({6, 5}));
  const Variable loss = cross_entropy(made.logits, some_targets());
  made.logits = Variable();
  loss.gradient_edge().node->add_post_hook(
      [](const Gradients&) { throw std::runtime_error("stop"); });
  CHECK_THROWS_AS(backward(loss), std::runtime_error);
  CHECK_THAT(thrown<StateError>([&] { backward(loss); }),
             Contains("that \"cross_entropy\" saved was overwritten since by "
                      "\"cross_entropy_rows_backward_\""));
}

}  // namespace

namespace {

// The peak of memory of a backward pass through a cross entropy.

// Bytes of activations that backward allocates beyond the live ones, for logits = h w^T with and
// without another handle.
std::int64_t growth(const Variable& h, const Variable& w, bool held, bool retain_graph = false) {
  const Tensor targets = zeros({h.dim(0)}, {.dtype = DType::kI64, .device = h.device()});
  Variable logits = linear(h, w, Variable());
  const Variable loss = cross_entropy(logits, targets);
  if (!held) logits = Variable();
  MemoryCounters& memory = current_rank_context()->memory();
  memory.reset_peak();
  const std::int64_t before = memory.current()[MemoryCategory::kActivation];
  backward(loss, {.retain_graph = retain_graph});
  return memory.peak()[MemoryCategory::kActivation] - before;
}

TEST_CASE("cross entropy: backward takes one tensor of logits less") {
  constexpr std::int64_t kRows = 128, kClasses = 1000;
  constexpr std::int64_t kNumbers = 4096;  // casts of single numbers, at the peak or not
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const auto fresh = [&](bool held, bool retain_graph) {
      const Variable h(cast(irregular({kRows, 8}), dtype));
      const Variable w(cast(irregular({kClasses, 8}), dtype), true);
      return growth(h, w, held, retain_graph);
    };
    const auto bytes = kRows * kClasses * static_cast<std::int64_t>(dtype_size(dtype));
    const std::int64_t over = fresh(false, false);
    INFO(dtype_name(dtype));
    CHECK(over < bytes / 2);
    CHECK(std::abs(fresh(true, false) - over - bytes) <= kNumbers);
    CHECK(fresh(false, true) >= over + bytes - kNumbers);  // the rest of the graph stays too
  }
}

TEST_CASE("cross entropy: a plan shows it, of a vocabulary that this machine need not hold") {
  const TensorOptions kind{.dtype = DType::kF32, .device = kNull};
  constexpr std::int64_t kRows = 8192, kClasses = 50257, kBytes = kRows * kClasses * 4;
  const Variable h(zeros({kRows, 64}, kind)), w(zeros({kClasses, 64}, kind), true);
  CHECK(growth(h, w, false) < kBytes / 10);
  CHECK(growth(h, w, true) >= kBytes);
}

}  // namespace
}  // namespace tessera::testing
