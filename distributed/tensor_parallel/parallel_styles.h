#pragma once

/// What each style of tensor_parallel.h does to a module. For its own files.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/distributed/tensor_parallel/parallel_layouts.h"
#include "tessera/distributed/tensor_parallel/tensor_parallel.h"
#include "tessera/nn/mesh/shard_spec.h"
#include "tessera/nn/module.h"
#include "tessera/nn/parameter.h"

namespace tessera::distributed::detail {

/// "ColwiseParallel" ...
const char* style_name(const ParallelStyle& style);

/// A module and its style.
struct StyledModule {
  std::string name;
  nn::Module* module;
  const ParallelStyle* style;

  std::string text() const;  ///< "blocks.0.up" (Linear), or the module itself (Linear)
};

/// What becomes of one of its parameters.
struct ParameterUse {
  std::string name;
  nn::Parameter parameter;
  std::optional<nn::ShardSpec> cut = {};  ///< none: stays whole
  bool sums_gradient = false;             ///< each rank has a term of the gradient
};

/// Throws InvalidArgument where the style is not for the module, or its layouts cannot be.
void check_style(const StyledModule& styled, const ParallelLayouts& layouts);
/// Children that the style has a part in, beside the module itself.
std::vector<nn::Module*> styled_children(const StyledModule& styled);
std::vector<ParameterUse> parameter_uses(const StyledModule& styled, const DeviceMesh& mesh);
/// Puts the hooks in.
void apply_style(const StyledModule& styled, const std::shared_ptr<ParallelLayouts>& layouts);

}  // namespace tessera::distributed::detail
