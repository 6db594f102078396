#include "tessera/autograd/engine.h"

#include "tessera/autograd/backward_pass.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/create.h"

namespace tessera {
namespace {

Tensor root_gradient(const Tensor& root, const Tensor& given, std::size_t i, const char* where) {
  if (!given.defined()) {
    TESSERA_CHECK(root.numel() == 1, where,
                  "root {} has shape {}; only roots of one element may leave the gradient out: "
                  "pass one, or sum the root",
                  i, root.shape().str());
    return ones(root.shape(), root.options());
  }
  TESSERA_CHECK(given.shape() == root.shape() && given.dtype() == root.dtype() &&
                    given.device() == root.device(),
                where,
                "the gradient given for root {} has shape {}, {} on {}, the root has shape {}, {} "
                "on {}; make both equal",
                i, given.shape().str(), dtype_name(given.dtype()), given.device().str(),
                root.shape().str(), dtype_name(root.dtype()), root.device().str());
  return given;
}

void add_roots(detail::BackwardPass& pass, std::span<const Variable> roots,
               std::span<const Tensor> gradients, const char* where) {
  TESSERA_CHECK(gradients.empty() || gradients.size() == roots.size(), where,
                "{} gradients for {} roots; give one for each root, or none", gradients.size(),
                roots.size());
  for (std::size_t i = 0; i < roots.size(); ++i) {
    GradientEdge edge = roots[i].gradient_edge();
    TESSERA_CHECK_AS(StateError, edge.node != nullptr, where,
                     "root {} has no graph: nothing it was made from requires a gradient, or grad "
                     "mode was off",
                     i);
    const Tensor given = gradients.empty() ? Tensor() : gradients[i];
    pass.add_root(std::move(edge), Variable(root_gradient(roots[i].tensor(), given, i, where)));
  }
}

detail::PassOptions pass_options(const BackwardOptions& options, bool selective) {
  return {.retain_graph = options.retain_graph || options.create_graph,
          .create_graph = options.create_graph,
          .selective = selective};
}

}  // namespace

void backward(const Variable& root, const BackwardOptions& options) {
  BackwardOptions rest = options;
  const Tensor gradient = std::exchange(rest.gradient, Tensor());
  backward({&root, 1}, {&gradient, 1}, rest);
}

void backward(std::span<const Variable> roots, std::span<const Tensor> gradients,
              const BackwardOptions& options) {
  TESSERA_CHECK(!options.gradient.defined(), "backward",
                "options.gradient belongs to a single root; pass gradients beside the roots");
  detail::BackwardPass pass(pass_options(options, !options.inputs.empty()));
  add_roots(pass, roots, gradients, "backward");
  for (std::size_t i = 0; i < options.inputs.size(); ++i) {
    const Variable& input = options.inputs[i];
    TESSERA_CHECK(input.defined() && input.is_leaf() && input.requires_grad(), "backward",
                  "options.inputs[{}] is not a leaf that requires a gradient; for other variables "
                  "use grad()",
                  i);
    pass.accumulate_only(input.gradient_edge());
  }
  pass.execute();
}

std::vector<Variable> grad(std::span<const Variable> outputs, std::span<const Variable> inputs,
                           const BackwardOptions& options) {
  TESSERA_CHECK(options.inputs.empty(), "grad",
                "options.inputs is for backward(); pass the inputs beside the outputs");
  TESSERA_CHECK(!options.gradient.defined() || outputs.size() == 1, "grad",
                "options.gradient belongs to a single output, got {} outputs", outputs.size());
  detail::BackwardPass pass(pass_options(options, /*selective=*/true));
  const std::span<const Tensor> gradients(&options.gradient, options.gradient.defined() ? 1 : 0);
  add_roots(pass, outputs, gradients, "grad");
  std::vector<Variable> captured(inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    TESSERA_CHECK(inputs[i].requires_grad(), "grad",
                  "input {} does not require a gradient; set_requires_grad(true) before it is used",
                  i);
    pass.capture(inputs[i].gradient_edge(), &captured[i]);
  }
  pass.execute();
  return captured;
}

bool in_backward() { return detail::BackwardPass::current() != nullptr; }

void queue_callback(std::function<void(bool failed)> callback) {
  detail::BackwardPass* pass = detail::BackwardPass::current();
  TESSERA_CHECK_AS(StateError, pass != nullptr, "queue_callback",
                   "no backward pass runs on this thread; call it from a hook or a derivative");
  pass->queue_callback(std::move(callback));
}

}  // namespace tessera
