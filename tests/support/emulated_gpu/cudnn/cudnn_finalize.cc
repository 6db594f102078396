#include "tessera/tests/support/emulated_gpu/cudnn/cudnn_finalize.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>

namespace tessera::emulated::cudnn {
namespace {

Refused bad(std::string why) { return {CUDNN_STATUS_BAD_PARAM, std::move(why)}; }

Refused check_attributes(const Descriptor& d) {
  for (const Schema* schema : schemas_of(d.type)) {
    if (schema->required && !d.has(schema->attribute)) {
      return bad(fmt::format("attribute {} is not set", schema->attribute));
    }
  }
  return {};
}

Refused check_tensor(const Descriptor& d) {
  const Tensor t = tensor_of(d);
  if (size_of(t.type) == 0) {
    return {CUDNN_STATUS_NOT_SUPPORTED, fmt::format("data type {}", static_cast<int>(t.type))};
  }
  if (t.dims.size() != t.strides.size()) {
    return bad(fmt::format("{} dimensions, {} strides", t.dims.size(), t.strides.size()));
  }
  for (std::size_t i = 0; i < t.dims.size(); ++i) {
    if (t.dims[i] < 1 || t.strides[i] < 0) {
      return bad(
          fmt::format("dimension {} has extent {} and stride {}", i, t.dims[i], t.strides[i]));
    }
  }
  if (t.alignment < 1 || (t.alignment & (t.alignment - 1)) != 0) {
    return bad(fmt::format("alignment {} is no power of two", t.alignment));
  }
  if (t.is_virtual && t.by_value) return bad("a tensor is virtual and by value");
  if (t.by_value && t.numel() != 1) return bad("a tensor of several elements is by value");
  return {};
}

Refused check_convolution(const Descriptor& d) {
  const auto spatial = d.one<std::int64_t>(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 0);
  const struct {
    int attribute;
    std::int64_t least;
  } lists[] = {{CUDNN_ATTR_CONVOLUTION_DILATIONS, 1},
               {CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 1},
               {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 0},
               {CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 0}};
  for (const auto& list : lists) {
    const auto values = d.all<std::int64_t>(list.attribute);
    const bool fits =
        static_cast<std::int64_t>(values.size()) == spatial &&
        std::all_of(values.begin(), values.end(), [&](std::int64_t x) { return x >= list.least; });
    if (!fits)
      return bad(fmt::format("attribute {} does not suit {} dimensions", list.attribute, spatial));
  }
  return {};
}

bool is_operation(int type) {
  switch (type) {
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
      return true;
    default:
      return false;
  }
}

// What kind of descriptor an attribute holds; -1 for any operation.
int wanted_kind(int attribute) {
  switch (attribute) {
    case CUDNN_ATTR_OPERATIONGRAPH_OPS:
      return -1;
    case CUDNN_ATTR_OPERATION_MATMUL_DESC:
      return CUDNN_BACKEND_MATMUL_DESCRIPTOR;
    case CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR:
      return CUDNN_BACKEND_POINTWISE_DESCRIPTOR;
    case CUDNN_ATTR_OPERATION_REDUCTION_DESC:
      return CUDNN_BACKEND_REDUCTION_DESCRIPTOR;
    case CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC:
    case CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC:
    case CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC:
      return CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR;
    case CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH:
    case CUDNN_ATTR_ENGINE_OPERATION_GRAPH:
      return CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR;
    case CUDNN_ATTR_ENGINECFG_ENGINE:
      return CUDNN_BACKEND_ENGINE_DESCRIPTOR;
    case CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG:
      return CUDNN_BACKEND_ENGINECFG_DESCRIPTOR;
    default:
      return CUDNN_BACKEND_TENSOR_DESCRIPTOR;
  }
}

Refused check_held(const Descriptor& d) {
  for (const auto& [attribute, value] : d.values) {
    for (const DescriptorPointer& held : value.descriptors) {
      const int wanted = wanted_kind(attribute);
      if (wanted < 0 ? !is_operation(held->type) : held->type != wanted) {
        return {CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE,
                fmt::format("attribute {} holds a descriptor of kind {}", attribute,
                            static_cast<int>(held->type))};
      }
      if (!held->finalized) {
        return {CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED,
                fmt::format("attribute {} holds a descriptor that is not finalized", attribute)};
      }
    }
  }
  return {};
}

Refused check_pack(const Descriptor& d) {
  const auto ids = d.all<std::int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  if (ids.size() != d.all<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS).size()) {
    return bad("there are as many ids as pointers");
  }
  if (std::set(ids.begin(), ids.end()).size() == ids.size()) return {};
  return {CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES, "an id stands twice in the variant pack"};
}

Refused finalize_engine(Descriptor& d) {
  d.graph = d.descriptor(CUDNN_ATTR_ENGINE_OPERATION_GRAPH)->graph;
  const auto index = d.one<std::int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, -1);
  if (index < 0 || index >= kEngines) return bad(fmt::format("there is no engine {}", index));
  d.engine = static_cast<int>(index);
  return {};
}

Refused finalize_kind(Descriptor& d) {
  if (is_operation(d.type)) return check_operation(d);
  switch (d.type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
      return check_tensor(d);
    case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR:
      return check_convolution(d);
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR:
      return check_pack(d);
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR: {
      const MadeGraph made = make_graph(d.values.at(CUDNN_ATTR_OPERATIONGRAPH_OPS).descriptors);
      d.graph = made.graph;
      return made.refused;
    }
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
      d.graph = d.descriptor(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH)->graph;
      return {};
    case CUDNN_BACKEND_ENGINE_DESCRIPTOR:
      return finalize_engine(d);
    case CUDNN_BACKEND_ENGINECFG_DESCRIPTOR:
      d.graph = d.descriptor(CUDNN_ATTR_ENGINECFG_ENGINE)->graph;
      d.engine = d.descriptor(CUDNN_ATTR_ENGINECFG_ENGINE)->engine;
      return {};
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR: {
      const auto config = d.descriptor(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
      const MadePlan made = make_plan(config->graph, {config->engine, config->workspaces});
      d.plan = made.plan;
      return made.refused;
    }
    default:
      return {};
  }
}

// Fills descriptors that the caller made.
Refused fill_configs(const Descriptor& d, std::int64_t room, void* to, std::int64_t* count) {
  const auto mode = d.one(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_HEUR_MODE_A);
  const std::vector<Config> configs = configs_for(*d.graph, mode);
  const auto there = static_cast<std::int64_t>(configs.size());
  if (count != nullptr) *count = room == 0 ? there : std::min(room, there);
  for (std::int64_t i = 0; i < std::min(room, there); ++i) {
    const auto config = find(static_cast<cudnnBackendDescriptor_t*>(to)[i]);
    if (config == nullptr || config->type != CUDNN_BACKEND_ENGINECFG_DESCRIPTOR) {
      return {CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "results go into engine configurations"};
    }
    config->graph = d.graph, config->engine = configs[i].engine;
    config->workspaces = configs[i].workspaces;
    config->finalized = true;
  }
  return {};
}

template <class T>
void keep(Descriptor& d, int attribute, cudnnBackendAttributeType_t type, T value) {
  const char* bytes = reinterpret_cast<const char*>(&value);
  d.values[attribute] = {
      .type = type, .count = 1, .bytes = {bytes, bytes + sizeof(T)}, .descriptors = {}};
}

// Fills an engine that the caller made.
Refused fill_engine(const Descriptor& d, std::int64_t room, void* to, std::int64_t* count) {
  const auto engine = room == 1 ? find(*static_cast<cudnnBackendDescriptor_t*>(to)) : nullptr;
  if (engine == nullptr || engine->type != CUDNN_BACKEND_ENGINE_DESCRIPTOR) {
    return {CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "the engine goes into an engine"};
  }
  engine->graph = d.graph, engine->engine = d.engine;
  keep(*engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, std::int64_t{d.engine});
  engine->finalized = true;
  if (count != nullptr) *count = 1;
  return {};
}

// As cuDNN does, reports none if only the number is asked for.
Refused fill_knob_choices(const Descriptor& d, std::int64_t room, void* to, std::int64_t* count) {
  const std::int64_t given = d.engine == kPlain && room > 0 ? 1 : 0;
  if (count != nullptr) *count = given;
  if (given == 0) return {};
  const auto choice = find(*static_cast<cudnnBackendDescriptor_t*>(to));
  if (choice == nullptr || choice->type != CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR) {
    return {CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "choices go into choices for knobs"};
  }
  keep(*choice, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, CUDNN_KNOB_TYPE_WORKSPACE);
  keep(*choice, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, d.workspaces);
  choice->finalized = true;
  return {};
}

template <class T>
Refused give(const std::vector<T>& values, std::int64_t room, void* to, std::int64_t* count) {
  const auto there = static_cast<std::int64_t>(values.size());
  const std::int64_t given = std::min(room, there);
  if (given > 0) std::memcpy(to, values.data(), static_cast<std::size_t>(given) * sizeof(T));
  if (count != nullptr) *count = room == 0 ? there : given;
  return {};
}

}  // namespace

Refused finalize(Descriptor& d) {
  if (d.finalized) return bad("the descriptor was finalized before");
  if (Refused r = check_attributes(d); !r.ok()) return r;
  if (Refused r = check_held(d); !r.ok()) return r;
  if (Refused r = finalize_kind(d); !r.ok()) return r;
  d.finalized = true;
  return {};
}

Refused read_computed(const Descriptor& d, int attribute, std::int64_t room, void* to,
                      std::int64_t* count) {
  switch (attribute) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS:
      return fill_configs(d, room, to, count);
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
      return give(notes_of(d.engine, *d.graph), room, to, count);
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
      return give(std::vector<std::int64_t>{static_cast<std::int64_t>(d.plan->workspace)}, room, to,
                  count);
    case CUDNN_ATTR_ENGINECFG_KNOB_CHOICES:
      return fill_knob_choices(d, room, to, count);
    default:
      return fill_engine(d, room, to, count);
  }
}

}  // namespace tessera::emulated::cudnn
