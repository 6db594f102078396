#include "tessera/tensor/kernels/cuda/cudnn/cudnn_attention_offers.h"

#include <memory>
#include <utility>

#include "tessera/tensor/kernels/cuda/cudnn/cudnn_attention_launch.h"
#include "tessera/tensor/kernels/cuda/cudnn/cudnn_graph.h"
#include "tessera/tensor/kernels/cuda/cudnn/cudnn_graphs.h"

namespace tessera::cuda {
namespace {

// A plan, and the handle that must outlive it.
struct Offered {
  std::shared_ptr<cudnnContext> handle;
  std::unique_ptr<CudnnPlan> plan;
  AttentionIds ids;
  AttentionProblem problem;

  std::size_t bytes() const { return attention_scratch_bytes(problem) + plan->workspace_bytes(); }
};

// Bound operands: constants among them are read from `launch`.
struct Bound {
  AttentionLaunch launch;
  CudnnDescriptor pack;

  template <class Args>
  Bound(const Offered& x, const Args& a, void* scratch)
      : launch(x.ids, x.problem, x.problem, a, scratch),
        pack(x.plan->bind(launch.bindings(0, 0),
                          static_cast<char*>(scratch) + attention_scratch_bytes(x.problem))) {}
};

// A separate handle that stays set to `stream`; cudnn_handle() sets the thread's handle to other
// streams.
std::shared_ptr<cudnnContext> handle_of(CudaStream stream, const char* where) {
  const std::shared_ptr<cudnnContext> handle(create_cudnn_handle(where), cudnnDestroy);
  check_cudnn(cudnnSetStream(handle.get(), stream), where, "cudnnSetStream");
  return handle;
}

template <class Args>
std::vector<AttentionOffer> offers_for(CudaStream stream, const Args& a,
                                       const AttentionProblem& problem, const char* where) {
  CudnnGraph graph(where);
  const AttentionIds ids = add_attention(graph, problem);
  const std::shared_ptr<cudnnContext> handle = handle_of(stream, where);
  std::vector<AttentionOffer> offers;
  for (std::unique_ptr<CudnnPlan>& plan :
       graph.offered_plans({.handle = handle.get(), .properties = {}})) {
    const auto x = std::make_shared<const Offered>(
        Offered{.handle = handle, .plan = std::move(plan), .ids = ids, .problem = problem});
    const auto bind = [x, a](Workspace scratch) -> std::function<void()> {
      const auto bound = std::make_shared<const Bound>(*x, a, scratch.data);
      return [x, bound] { x->plan->execute(x->handle.get(), bound->pack); };
    };
    offers.push_back(
        {.plan = attention_plan_name(x->problem, *x->plan), .bytes = x->bytes(), .bind = bind});
  }
  return offers;
}

}  // namespace

std::vector<AttentionOffer> attention_offers(CudaStream stream, const AttentionKernel::Args& a) {
  return offers_for(stream, a, attention_problem(a, current_device(AttentionKernel::kName)),
                    AttentionKernel::kName);
}
std::vector<AttentionOffer> attention_offers(CudaStream stream,
                                             const AttentionBackwardKernel::Args& a) {
  std::vector<AttentionOffer> offers;
  AttentionProblem problem = attention_problem(a, current_device(AttentionBackwardKernel::kName));
  for (const bool fixed_order : {true, false}) {
    problem.fixed_order = fixed_order;
    for (AttentionOffer& offer : offers_for(stream, a, problem, AttentionBackwardKernel::kName))
      offers.push_back(std::move(offer));
  }
  return offers;
}

}  // namespace tessera::cuda
