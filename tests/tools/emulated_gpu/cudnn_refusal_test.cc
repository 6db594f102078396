// What the emulated cuDNN refuses, and what its heuristics offer.

#include <cstring>
#include <string>

#include "tessera/tests/tools/emulated_gpu/cudnn_graphs.h"

namespace tessera::testing {
namespace {

constexpr auto kTensor = CUDNN_BACKEND_TENSOR_DESCRIPTOR;
constexpr auto kInt = CUDNN_TYPE_INT64;

TEST_CASE("attributes have types and counts, and a time to be set") {
  Backend t(kTensor);
  const Dims dims = {2, 3};
  REQUIRE(t.try_set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_FLOAT, dims) ==
          CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE);
  REQUIRE(t.try_set(CUDNN_ATTR_TENSOR_UNIQUE_ID, kInt, dims) == CUDNN_STATUS_BAD_PARAM);
  REQUIRE(t.try_set(CUDNN_ATTR_TENSOR_UNIQUE_ID, kInt, Dims{}) == CUDNN_STATUS_BAD_PARAM);
  REQUIRE(t.try_set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, dims) ==
          CUDNN_STATUS_BAD_PARAM);
  t.set(CUDNN_ATTR_TENSOR_DIMENSIONS, kInt, dims).set(CUDNN_ATTR_TENSOR_STRIDES, kInt, Dims{3, 1});
  REQUIRE(t.try_finalize() == CUDNN_STATUS_BAD_PARAM);  // no type, id, alignment
  t.set<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, {CUDNN_DATA_FLOAT})
      .set<std::int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID, kInt, {7})
      .set<std::int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, kInt, {16});
  std::int64_t id = 0, count = 0, read[4] = {};
  const auto get = [&](cudnnBackendAttributeName_t name, std::int64_t room, std::int64_t* to) {
    return cudnnBackendGetAttribute(t.handle(), name, kInt, room, &count, to);
  };
  REQUIRE(get(CUDNN_ATTR_TENSOR_UNIQUE_ID, 1, &id) == CUDNN_STATUS_NOT_INITIALIZED);
  t.finalize();
  REQUIRE(t.try_finalize() == CUDNN_STATUS_BAD_PARAM);
  REQUIRE(t.try_set(CUDNN_ATTR_TENSOR_UNIQUE_ID, kInt, Dims{8}) == CUDNN_STATUS_BAD_PARAM);
  REQUIRE(get(CUDNN_ATTR_TENSOR_UNIQUE_ID, 1, &id) == CUDNN_STATUS_SUCCESS);
  REQUIRE(id == 7);
  REQUIRE(get(CUDNN_ATTR_TENSOR_DIMENSIONS, 4, read) == CUDNN_STATUS_SUCCESS);
  REQUIRE((count == 2 && read[1] == 3));
  REQUIRE(get(CUDNN_ATTR_TENSOR_DIMENSIONS, 0, nullptr) == CUDNN_STATUS_SUCCESS);
  REQUIRE(count == 2);
}

TEST_CASE("handles that are none") {
  char text[256];
  REQUIRE(cudnnBackendFinalize(nullptr) == CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
  REQUIRE(cudnnBackendDestroyDescriptor(nullptr) == CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
  cudnnGetLastErrorString(text, sizeof text);
  REQUIRE(std::string(text) == "cudnnBackendDestroyDescriptor: no live descriptor");
  REQUIRE(cudnnDestroy(nullptr) == CUDNN_STATUS_NOT_INITIALIZED);
  REQUIRE(cudnnSetStream(nullptr, nullptr) == CUDNN_STATUS_NOT_INITIALIZED);
  REQUIRE(cudnnGetVersion() == CUDNN_VERSION);
  REQUIRE(std::string(cudnnGetErrorString(CUDNN_STATUS_BAD_PARAM)) == "CUDNN_STATUS_BAD_PARAM");
  REQUIRE(std::string(cudnnGetErrorString(cudnnStatus_t(77))) == "CUDNN_UNKNOWN_STATUS");
  cudnnBackendDescriptor_t norm = nullptr;
  REQUIRE(cudnnBackendCreateDescriptor(CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR, &norm) ==
          CUDNN_STATUS_NOT_SUPPORTED);
}

cudnnStatus_t tensor_status(const Dims& dims, const Dims& strides, std::int64_t alignment,
                            bool is_virtual, bool by_value) {
  Backend t(kTensor);
  return t
      .set<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, {CUDNN_DATA_FLOAT})
      .set(CUDNN_ATTR_TENSOR_DIMENSIONS, kInt, dims)
      .set(CUDNN_ATTR_TENSOR_STRIDES, kInt, strides)
      .set<std::int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID, kInt, {1})
      .set<std::int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, kInt, {alignment})
      .set<char>(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, {is_virtual})
      .set<char>(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, {by_value})
      .try_finalize();
}

TEST_CASE("tensors that cannot be") {
  REQUIRE(tensor_status({2, 3}, {3, 1}, 16, false, false) == CUDNN_STATUS_SUCCESS);
  REQUIRE(tensor_status({2, 3}, {3}, 16, false, false) == CUDNN_STATUS_BAD_PARAM);
  REQUIRE(tensor_status({2, 0}, {3, 1}, 16, false, false) == CUDNN_STATUS_BAD_PARAM);
  REQUIRE(tensor_status({2, 3}, {3, 1}, 12, false, false) == CUDNN_STATUS_BAD_PARAM);
  REQUIRE(tensor_status({2, 3}, {3, 1}, 16, false, true) == CUDNN_STATUS_BAD_PARAM);
  REQUIRE(tensor_status({1, 1}, {1, 1}, 16, true, true) == CUDNN_STATUS_BAD_PARAM);
}

TEST_CASE("operations whose tensors do not suit each other") {
  GraphMaker g;
  const auto a = g.tensor({.dims = {2, 3, 4, 8}}), b = g.tensor({.dims = {2, 2, 8, 5}}),
             c = g.tensor({.dims = {2, 3, 4, 5}});
  Backend how(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  Backend product(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  const std::vector<void*> held = {how.handle()};
  REQUIRE(product.try_set(CUDNN_ATTR_OPERATION_MATMUL_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, held) ==
          CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED);
  how.set<cudnnDataType_t>(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, {CUDNN_DATA_FLOAT})
      .finalize();
  product.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, how)
      .set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, g.of(a))
      .set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, g.of(c));
  REQUIRE(product.try_finalize() == CUDNN_STATUS_BAD_PARAM);  // no B
  product.set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, how);
  REQUIRE(product.try_finalize() == CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE);
  product.set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, g.of(b));
  REQUIRE(product.try_finalize() == CUDNN_STATUS_BAD_PARAM);  // 3 heads by 2
}

cudnnStatus_t graph_status(GraphMaker& g) {
  std::vector<void*> handles;
  for (const auto& one : g.operations) handles.push_back(one->handle());
  Backend graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  return graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, handles)
      .try_finalize();
}

TEST_CASE("modes that Tessera does not use are not emulated") {
  GraphMaker g;
  const auto x = g.tensor({.dims = {2, 2}}), y = g.tensor({.dims = {2, 2}});
  Backend how(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  how.set<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE,
                                {CUDNN_POINTWISE_TANH_FWD})
      .set<cudnnDataType_t>(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE,
                            {CUDNN_DATA_FLOAT})
      .finalize();
  Backend tanh(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  tanh.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how)
      .set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, g.of(x))
      .set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, g.of(y));
  REQUIRE(tanh.try_finalize() == CUDNN_STATUS_NOT_SUPPORTED);
}

TEST_CASE("graphs that cannot be") {
  GraphMaker nobody;
  const auto x = nobody.virtual_tensor({2, 2}), y = nobody.tensor({.dims = {2, 2}});
  nobody.pointwise(CUDNN_POINTWISE_EXP, {x}, y);
  REQUIRE(graph_status(nobody) == CUDNN_STATUS_BAD_PARAM);
  GraphMaker circle;
  const auto a = circle.virtual_tensor({2, 2}), b = circle.virtual_tensor({2, 2});
  circle.pointwise(CUDNN_POINTWISE_EXP, {a}, b);
  circle.pointwise(CUDNN_POINTWISE_EXP, {b}, a);
  REQUIRE(graph_status(circle) == CUDNN_STATUS_BAD_PARAM);
  GraphMaker twice;
  const auto in = twice.tensor({.dims = {2, 2}}), out = twice.tensor({.dims = {2, 2}});
  twice.pointwise(CUDNN_POINTWISE_EXP, {in}, out);
  twice.pointwise(CUDNN_POINTWISE_LOG, {in}, out);
  REQUIRE(graph_status(twice) == CUDNN_STATUS_BAD_PARAM);
}

struct Offer {
  std::vector<cudnnBackendNumericalNote_t> notes;
  cudnnStatus_t plan;
  std::int64_t engine, workspaces;  // -1: has no knob
};
// The choice for an offer's knob, of which cuDNN does not say beforehand whether there is one.
std::int64_t workspaces_of(cudnnBackendDescriptor_t config) {
  Backend choice(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
  auto* place = choice.handle();
  const auto choices = [&](std::int64_t room) {
    std::int64_t count = -1;
    REQUIRE(cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                                     CUDNN_TYPE_BACKEND_DESCRIPTOR, room, &count,
                                     &place) == CUDNN_STATUS_SUCCESS);
    return count;
  };
  REQUIRE(choices(0) == 0);
  if (choices(1) == 0) return -1;
  cudnnBackendKnobType_t knob{};
  std::int64_t value = 0, count = 0;
  REQUIRE(cudnnBackendGetAttribute(place, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1,
                                   &count, &knob) == CUDNN_STATUS_SUCCESS);
  REQUIRE(knob == CUDNN_KNOB_TYPE_WORKSPACE);
  REQUIRE(cudnnBackendGetAttribute(place, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1,
                                   &count, &value) == CUDNN_STATUS_SUCCESS);
  return value;
}
std::vector<Offer> offers(Backend& graph, cudnnBackendHeurMode_t mode) {
  Backend heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph)
      .set<cudnnBackendHeurMode_t>(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, {mode})
      .finalize();
  std::int64_t count = 0;
  std::vector<std::unique_ptr<Backend>> configs;
  std::vector<void*> handles;
  for (int i = 0; i < 8; ++i) {
    configs.push_back(std::make_unique<Backend>(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
    handles.push_back(configs.back()->handle());
  }
  REQUIRE(cudnnBackendGetAttribute(heuristics.handle(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                   CUDNN_TYPE_BACKEND_DESCRIPTOR, 8, &count,
                                   handles.data()) == CUDNN_STATUS_SUCCESS);
  std::vector<Offer> all;
  for (int i = 0; i < count; ++i) {
    Backend engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR), plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    auto* place = engine.handle();
    cudnnBackendNumericalNote_t notes[8];
    std::int64_t found = 0;
    REQUIRE(cudnnBackendGetAttribute(handles[i], CUDNN_ATTR_ENGINECFG_ENGINE,
                                     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &found,
                                     &place) == CUDNN_STATUS_SUCCESS);
    REQUIRE(cudnnBackendGetAttribute(engine.handle(), CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                     CUDNN_TYPE_NUMERICAL_NOTE, 8, &found,
                                     notes) == CUDNN_STATUS_SUCCESS);
    std::int64_t index = -1, indices = 0;
    REQUIRE(cudnnBackendGetAttribute(engine.handle(), CUDNN_ATTR_ENGINE_GLOBAL_INDEX,
                                     CUDNN_TYPE_INT64, 1, &indices,
                                     &index) == CUDNN_STATUS_SUCCESS);
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, *configs[i]);
    all.push_back({{notes, notes + found}, plan.try_finalize(), index, workspaces_of(handles[i])});
  }
  return all;
}

TEST_CASE("heuristics offer what callers must look at") {
  GraphMaker g;
  const auto x = g.tensor({.dims = {2, 2}}), y = g.tensor({.dims = {2, 2}});
  g.pointwise(CUDNN_POINTWISE_EXP, {x}, y);
  Backend& graph = g.graph();
  const auto all = offers(graph, CUDNN_HEUR_MODE_A);
  using Notes = std::vector<cudnnBackendNumericalNote_t>;
  REQUIRE(all.size() == 4);
  REQUIRE(all[0].notes == Notes{CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC});
  REQUIRE(all[1].plan == CUDNN_STATUS_NOT_SUPPORTED);
  REQUIRE(all[2].notes ==
          Notes{CUDNN_NUMERICAL_NOTE_TENSOR_CORE, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS});
  REQUIRE(all[3].notes.empty());
  REQUIRE(all[3].plan == CUDNN_STATUS_SUCCESS);
  REQUIRE(offers(graph, CUDNN_HEUR_MODE_FALLBACK).size() == 1);
}

TEST_CASE("offers have an engine and choices for its knobs, other ones in another mode") {
  GraphMaker g;
  const auto x = g.tensor({.dims = {2, 2}}), y = g.tensor({.dims = {2, 2}});
  g.pointwise(CUDNN_POINTWISE_EXP, {x}, y);
  Backend& graph = g.graph();
  for (const auto mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_INSTANT}) {
    const auto all = offers(graph, mode);
    REQUIRE(all.size() == 4);
    for (int i = 0; i < 4; ++i) {
      REQUIRE(all[i].engine == i);
      REQUIRE(all[i].workspaces == (i == 3 ? 1 : -1));
    }
  }
  const auto others = offers(graph, CUDNN_HEUR_MODE_B);
  REQUIRE(others.size() == 4);
  REQUIRE(others[0].engine == 3);
  REQUIRE(others[0].workspaces == 2);
  REQUIRE(others[0].plan == CUDNN_STATUS_SUCCESS);
  REQUIRE(others[1].engine == 0);
}

TEST_CASE("the engine that is not deterministic is not, the one with tensor cores rounds") {
  GraphMaker g;
  const std::vector<float> a = {1e8f, 1, -1e8f, 1}, ones = {1, 1, 1, 1};
  const auto x = g.input({.dims = {1, 1, 1, 4}}, a), y = g.input({.dims = {1, 1, 4, 1}}, ones);
  const auto z = g.input({.dims = {1, 1, 1, 1}}, std::vector<float>{0});
  g.matmul(x, y, z);
  Backend& shuffled = g.plan(0);
  REQUIRE(g.execute(shuffled, g.memory) == CUDNN_STATUS_SUCCESS);
  const float first = g.read(z, 1)[0];
  REQUIRE(g.execute(shuffled, g.memory) == CUDNN_STATUS_SUCCESS);
  REQUIRE(g.read(z, 1)[0] != first);

  GraphMaker fine;
  const auto p = fine.input({.dims = {1, 1, 1, 1}}, std::vector<float>{1 + 0x1p-12f});
  const auto q = fine.input({.dims = {1, 1, 1, 1}}, std::vector<float>{1});
  const auto r = fine.input({.dims = {1, 1, 1, 1}}, std::vector<float>{0});
  fine.matmul(p, q, r);
  REQUIRE(fine.execute(fine.plan(2), fine.memory) == CUDNN_STATUS_SUCCESS);
  REQUIRE(fine.read(r, 1)[0] == 1);
  fine.run();
  REQUIRE(fine.read(r, 1)[0] == 1 + 0x1p-12f);
}

TEST_CASE("an execution needs all tensors, aligned, on the GPU, and its workspace") {
  GraphMaker g;
  const auto x = g.input({.dims = {1, 4}}, std::vector<float>(8));
  const auto y = g.input({.dims = {1, 4}}, std::vector<float>(8));
  g.pointwise(CUDNN_POINTWISE_EXP, {x}, y);
  Backend& plan = g.plan(2);
  auto places = g.memory;
  places.erase(y);
  REQUIRE(g.execute(plan, places) == CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
  places[y] = static_cast<float*>(g.memory[y]) + 1;
  REQUIRE(g.execute(plan, places) == CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER);
  alignas(16) float on_host[4];
  places[y] = on_host;
  REQUIRE(g.execute(plan, places) == CUDNN_STATUS_EXECUTION_FAILED);
  REQUIRE(g.execute(plan, g.memory) == CUDNN_STATUS_SUCCESS);
  Backend& plain = g.plan(3);
  REQUIRE(g.execute(plain, g.memory) == CUDNN_STATUS_BAD_PARAM);
  Backend pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  REQUIRE(cudnnBackendExecute(g.handle, plan.handle(), pack.handle()) ==
          CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED);
  REQUIRE(cudnnBackendExecute(nullptr, plan.handle(), pack.handle()) ==
          CUDNN_STATUS_NOT_INITIALIZED);
  pack.set<std::int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, kInt, {1, 1})
      .set<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, {on_host, on_host});
  REQUIRE(pack.try_finalize() == CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES);
}

}  // namespace
}  // namespace tessera::testing
