// The plans of a graph, as Tessera lists them and chooses among them: the emulated cuDNN says which
// there are.

#include <catch2/catch.hpp>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "tessera/tensor/kernels/cuda/cudnn/cudnn_graph.h"

namespace tessera::cuda {
namespace {

// y = exp(x), in this type.
void add_exp(CudnnGraph& graph, cudnnDataType_t dtype) {
  const CudnnTensor tensor{
      .dtype = dtype, .shape = {2, 2}, .strides = {}, .kind = CudnnTensorKind::kReal};
  const auto x = graph.tensor(tensor), y = graph.tensor(tensor);
  graph.pointwise(CUDNN_POINTWISE_EXP, {.x = x, .compute = dtype}, y);
}

using Named = std::vector<std::pair<std::string, std::size_t>>;  // with the bytes of workspace

Named offered(cudnnDataType_t dtype) {
  CudnnGraph graph("here");
  add_exp(graph, dtype);
  Named all;
  for (const auto& plan :
       graph.offered_plans({.handle = cudnn_handle(nullptr, "here"), .properties = {}}))
    all.emplace_back(plan->name(), plan->workspace_bytes());
  return all;
}

std::string chosen(const CudnnNumerics& numerics) {
  CudnnGraph graph("here");
  add_exp(graph, CUDNN_DATA_FLOAT);
  return graph.plan({.handle = cudnn_handle(nullptr, "here"), .properties = {}}, numerics)->name();
}

}  // namespace

TEST_CASE("plans of all modes are offered, each once, but those that cannot be built") {
  CHECK(offered(CUDNN_DATA_FLOAT) == Named{{"engine 0", 0},
                                           {"engine 2", 0},
                                           {"engine 3, knob 25=1", 512},
                                           {"engine 3, knob 25=2", 1024}});
  CHECK(offered(CUDNN_DATA_DOUBLE) ==
        Named{{"engine 0", 0}, {"engine 3, knob 25=1", 512}, {"engine 3, knob 25=2", 1024}});
}

TEST_CASE("the plan that is chosen is the first offer that numerics allow") {
  CHECK(chosen({}) == "engine 2");
  CHECK(chosen({.tensor_cores = false}) == "engine 3, knob 25=1");
}

}  // namespace tessera::cuda
