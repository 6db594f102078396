// Every operation, from the table of rows: works on the null device as on the CPU, and rejects
// invalid operands with a message that says what is wrong.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <optional>

#include "tessera/tensor/error.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/trace.h"
#include "tessera/tests/support/throws.h"
#include "tessera/tests/tensor/every_operation/operation.h"
#include "tessera/tests/tensor/ops/ops_support.h"

namespace tessera::testing {

Operations every_operation() {
  Operations all;
  for (auto part :
       {elementwise_operations, in_place_operations,  unary_operations,     create_operations,
        random_operations,      reduce_operations,    shape_operations,     index_operations,
        scatter_operations,     mask_operations,      rearrange_operations, splitting_operations,
        stacking_operations,    matmul_operations,    nn_operations,        norm_operations,
        optim_operations,       attention_operations, window_operations,    activation_operations,
        product_operations}) {
    for (Operation& operation : part()) all.push_back(std::move(operation));
  }
  return all;
}

namespace {

// Floating numbers between 0 and 1; positions within every extent above 1.
Tensor made(const Operand& operand, Device device) {
  const double value = is_floating(operand.dtype) ? 0.5 : 1;
  return full(operand.shape, value, {.dtype = operand.dtype, .device = device});
}

Call valid_call(const Operation& operation, Device device) {
  Call call{.tensors = {}, .device = device};
  for (const Operand& operand : operation.operands) call.tensors.push_back(made(operand, device));
  return call;
}

// What is wrong with the outcome of a call with `replacement` as operand i; empty: nothing.
std::string complaint(const Operation& operation, std::size_t i, const Tensor& replacement,
                      const std::vector<std::string>& facts) {
  Call call = valid_call(operation, kCpu);
  call.tensors[i] = replacement;
  const std::string text = thrown<InvalidArgument>([&] { operation.call(call); });
  const std::string tag = operation.tag.empty() ? operation.name : operation.tag;
  if (!text.starts_with("[" + tag + "] "))
    return fmt::format("\n  the message does not begin with [{}]: {}", tag, text);
  for (const std::string& fact : facts) {
    if (text.find(fact) == std::string::npos)
      return fmt::format("\n  the message does not say \"{}\": {}", fact, text);
  }
  return "";
}

// The complaints of `check(row, operand number)` over all rows, as one list.
template <class Check>
void check_operands(Check&& check) {
  for (const Operation& operation : every_operation()) {
    std::string complaints;
    for (std::size_t i = 0; i < operation.operands.size(); ++i) {
      const std::string text = check(operation, i);
      if (!text.empty()) complaints += fmt::format("\n operand {}:{}", i, text);
    }
    INFO(operation.name << complaints);
    CHECK(complaints.empty());
  }
}

struct Plan {
  std::vector<std::string> kernels;
  std::int64_t peak = 0;
  std::int64_t workspace = 0;
};

// With the f32 operands in another floating dtype; empty if that is rejected.
std::optional<Plan> plan_of(const Operation& operation, Device device, DType dtype) {
  return with_threads(2, [&]() -> std::optional<Plan> {
    Operation other = operation;
    for (Operand& operand : other.operands)
      if (operand.dtype == DType::kF32) operand.dtype = dtype;
    const Call call = valid_call(other, device);
    ExecutionTrace trace;
    current_rank_context()->set_trace(&trace);
    bool refused = false;
    try {
      operation.call(call);
    } catch (const InvalidArgument&) {
      if (dtype == DType::kF32) throw;
      refused = true;
    }
    current_rank_context()->set_trace(nullptr);
    if (refused) return std::nullopt;
    const MemoryCounters& memory = current_rank_context()->memory();
    Plan plan{.kernels = {},
              .peak = memory.peak_total(),
              .workspace = memory.peak()[MemoryCategory::kWorkspace]};
    for (const KernelRecord& record : trace.all<KernelRecord>()) {
      // Nothing is read from the null device.
      if (record.name != "copy_to_host") plan.kernels.push_back(record.name);
    }
    return plan;
  });
}

TEST_CASE("the null device runs every operation, with the kernels and bytes of the CPU") {
  std::size_t kernels = 0;
  for (const Operation& operation : every_operation()) {
    CHECK(operation.name.starts_with(operation.tag));
    for (DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16}) {
      INFO(operation.name << " of " << dtype_name(dtype));
      if (operation.values_decide) {
        const std::string text =
            thrown<StateError>([&] { operation.call(valid_call(operation, kNull)); });
        CHECK(text.starts_with("[" + operation.name + "] the "));
        CHECK_NOTHROW(operation.call(valid_call(operation, kCpu)));
        continue;
      }
      const std::optional<Plan> cpu = plan_of(operation, kCpu, dtype),
                                null = plan_of(operation, kNull, dtype);
      REQUIRE(cpu.has_value() == null.has_value());
      if (!cpu) continue;
      CHECK(cpu->kernels == null->kernels);
      CHECK(cpu->peak == null->peak);
      CHECK(cpu->workspace == null->workspace);
      kernels += cpu->kernels.size();
    }
  }
  CHECK(kernels > 800);
}

TEST_CASE("every operation refuses tensors that are undefined") {
  check_operands([](const Operation& operation, std::size_t i) {
    if (!operation.operands[i].optional) return complaint(operation, i, {}, {"undefined"});
    Call call = valid_call(operation, kCpu);
    call.tensors[i] = {};
    operation.call(call);
    return std::string();
  });
}

TEST_CASE("every operation refuses operands on two devices, and names both") {
  check_operands([](const Operation& operation, std::size_t i) {
    if (operation.operands.size() < 2) return std::string();
    return complaint(operation, i, made(operation.operands[i], kNull), {"cpu", "null"});
  });
}

TEST_CASE("every operation refuses wrong dtypes, and names them") {
  check_operands([](const Operation& operation, std::size_t i) {
    std::string text;
    for (DType dtype : operation.operands[i].wrong_dtypes) {
      Operand wrong = operation.operands[i];
      wrong.dtype = dtype;
      text += complaint(operation, i, made(wrong, kCpu), {dtype_name(dtype)});
    }
    return text;
  });
}

TEST_CASE("every operation refuses wrong shapes, and shows them") {
  check_operands([](const Operation& operation, std::size_t i) {
    std::string text;
    for (const WrongShape& shape : operation.operands[i].wrong_shapes) {
      Operand wrong = operation.operands[i];
      wrong.shape = shape.shape;
      const std::string fact = shape.says.empty() ? shape.shape.str() : shape.says;
      text += complaint(operation, i, made(wrong, kCpu), {fact});
    }
    return text;
  });
}

}  // namespace
}  // namespace tessera::testing
