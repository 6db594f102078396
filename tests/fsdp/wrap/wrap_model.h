#pragma once

/// Helpers of the tests of wrapping: a step's records as text, and the names of modules.

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/fsdp/runtime/annotations.h"
#include "tessera/nn/init.h"
#include "tessera/nn/module.h"
#include "tessera/tensor/trace.h"
#include "tessera/tests/fsdp/chain.h"
#include "tessera/tests/fsdp/reference.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {

/// Names of modules within `model`, joined by spaces.
inline std::string names_in(nn::Module& model, const std::vector<nn::Module*>& modules) {
  std::string out;
  for (const nn::Module* module : modules) {
    for (const nn::NamedModule& named : model.named_modules()) {
      if (named.module == module) out += (out.empty() ? "" : " ") + named.name;
    }
  }
  return out;
}

/// FSDP annotations and collectives in order, without counters that grow during a run.
inline std::string records_text(const ExecutionTrace& trace) {
  std::string out;
  for (const TraceRecord& record : trace.records()) {
    if (const auto* a = std::get_if<TraceAnnotation>(&record);
        a != nullptr && a->domain == fsdp::kAnnotationDomain) {
      out += a->phase + " " + a->name + "\n";
    } else if (const auto* c = std::get_if<CollectiveRecord>(&record)) {
      out += c->op + " " + c->reduction + " " + c->group + " " + dtype_name(c->dtype) + " " +
             c->label + " " + std::to_string(c->bytes_sent) + ":";
      for (const CollectiveMember& member : c->members)
        out +=
            " " + std::to_string(member.elements_in) + "->" + std::to_string(member.elements_out);
      out += "\n";
    }
  }
  return out;
}

/// Initialises the model and runs two forwards and backwards of `rows` rows of `width`. Returns the
/// records and the losses' bits.
template <class Model>
std::string trained_records(Model& model, std::int64_t width) {
  nn::initialize(model, {.seed = 1});
  ExecutionTrace trace;
  std::string losses;
  for (int step = 0; step < 2; ++step) {
    const Variable x(random_rows(3, width, DType::kF64, 1 + static_cast<std::uint64_t>(step)));
    const TraceScope recording(trace);
    const Variable loss = mul(sum(square(model(x))), 0.5);
    backward(loss);
    losses += fmt::format("loss {:a}\n", loss.item<double>());
  }
  return records_text(trace) + losses;
}

}  // namespace tessera::testing
