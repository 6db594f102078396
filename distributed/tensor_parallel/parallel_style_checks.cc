#include <type_traits>
#include <variant>

#include "tessera/distributed/tensor_parallel/parallel_styles.h"
#include "tessera/nn/layers/dropout.h"
#include "tessera/nn/layers/embedding.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/layers/norm.h"
#include "tessera/nn/layers/transformer/attention.h"
#include "tessera/tensor/check.h"

namespace tessera::distributed::detail {
namespace {

constexpr const char* kWhere = "distributed.parallelize";

template <class... Layers>
bool is_any(const nn::Module& module) {
  return ((dynamic_cast<const Layers*>(&module) != nullptr) || ...);
}

void check_module(const StyledModule& styled, bool fits, const char* layers) {
  TESSERA_CHECK(fits, kWhere, "{} cannot be {}, which is for {}", styled.text(),
                style_name(*styled.style), layers);
}

void check_layout(const StyledModule& styled, const Placement& layout) {
  const Shard* shard = std::get_if<Shard>(&layout);
  const bool known =
      shard != nullptr ? shard->turn == 0 : std::holds_alternative<Replicate>(layout);
  TESSERA_CHECK(known, kWhere, "{}: layout {} of {}; it is Replicate or a Shard of turn 0",
                styled.text(), str(layout), style_name(*styled.style));
}

// The index of an embedding is looked up whole.
void check_index(const StyledModule& styled, const Placement& input) {
  const bool is_index = is_any<nn::Embedding>(*styled.module);
  TESSERA_CHECK(!is_index || !is_shard(input), kWhere,
                "{}: input_layout {}; every rank looks the same index up: Replicate", styled.text(),
                str(input));
}

struct Check {
  const StyledModule& styled;
  const ParallelLayouts& layouts;

  void operator()(const ColwiseParallel& style) const {
    check_module(styled, is_any<nn::Linear, nn::Embedding>(*styled.module), "Linear and Embedding");
    check_layout(styled, style.input_layout);
    check_layout(styled, style.output_layout);
    check_index(styled, style.input_layout);
  }
  void operator()(const RowwiseParallel& style) const {
    check_module(styled, is_any<nn::Linear, nn::Embedding>(*styled.module), "Linear and Embedding");
    check_layout(styled, style.input_layout.value_or(Replicate{}));
    check_layout(styled, style.output_layout);
    check_index(styled, style.input_layout.value_or(Replicate{}));
  }
  void operator()(const HeadParallel& style) const {
    auto* attention = dynamic_cast<nn::MultiheadAttention*>(styled.module);
    check_module(styled, attention != nullptr, "MultiheadAttention");
    check_layout(styled, style.input_layout);
    check_layout(styled, style.output_layout);
    const std::int64_t heads =
        attention->out_proj().weight().spec().global_shape[1] / attention->head_dim();
    const std::int64_t kv_heads = heads / attention->heads_per_kv_head();
    TESSERA_CHECK(kv_heads % layouts.size() == 0, kWhere,
                  "{} has {} key-value heads, which {} ranks cannot share evenly: use a divisor",
                  styled.text(), kv_heads, layouts.size());
  }
  void operator()(const SequenceParallel&) const {
    check_module(styled, is_any<nn::LayerNorm, nn::RMSNorm, nn::Dropout>(*styled.module),
                 "LayerNorm, RMSNorm and Dropout");
  }
  void operator()(const PrepareModuleInput& style) const { check_changes(style.inputs); }
  void operator()(const PrepareModuleOutput& style) const { check_changes(style.outputs); }

  void check_changes(const std::vector<std::optional<LayoutChange>>& changes) const {
    check_module(styled, !styled.module->is_container(), "modules that are called, not containers");
    for (const auto& change : changes) {
      if (!change) continue;
      check_layout(styled, change->from);
      check_layout(styled, change->to);
    }
  }
};

}  // namespace

const char* style_name(const ParallelStyle& style) {
  constexpr const char* kNames[] = {"ColwiseParallel",    "RowwiseParallel",
                                    "HeadParallel",       "SequenceParallel",
                                    "PrepareModuleInput", "PrepareModuleOutput"};
  static_assert(std::variant_size_v<ParallelStyle> == std::size(kNames));
  return kNames[style.index()];
}

std::string StyledModule::text() const {
  return name.empty() ? fmt::format("the module itself ({})", module->type_name())
                      : fmt::format("\"{}\" ({})", name, module->type_name());
}

void check_style(const StyledModule& styled, const ParallelLayouts& layouts) {
  std::visit(Check{styled, layouts}, *styled.style);
}

}  // namespace tessera::distributed::detail
