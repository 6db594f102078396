#include "tessera/tests/support/emulated_gpu/cudnn/cudnn_descriptor.h"

#include <fmt/core.h>

#include <mutex>

#include "tessera/tests/support/emulated_gpu/cudnn/cudnn_finalize.h"
#include "tessera/tests/support/emulated_gpu/vendor_memory.h"

namespace tessera::emulated::cudnn {
namespace {

struct Live {
  std::mutex mutex;
  std::map<void*, DescriptorPointer> descriptors;
};
Live& live() {
  static Live all;
  return all;
}

struct LastError {
  std::mutex mutex;
  std::string text;
};
LastError& last_error() {
  static LastError last;
  return last;
}

Refused bad(std::string why) { return {CUDNN_STATUS_BAD_PARAM, std::move(why)}; }

Refused check_type(const Schema* schema, int attribute, cudnnBackendAttributeType_t type) {
  if (schema == nullptr) return bad(fmt::format("there is no attribute {} here", attribute));
  if (type != schema->type && type != schema->other_type) {
    return {CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE,
            fmt::format("attribute {} has type {}, {} was given", attribute,
                        static_cast<int>(schema->type), static_cast<int>(type))};
  }
  return {};
}

Refused set(Descriptor& d, int attribute, cudnnBackendAttributeType_t type, std::int64_t count,
            const void* elements) {
  const Schema* schema = find_schema(d.type, attribute);
  if (Refused r = check_type(schema, attribute, type); !r.ok()) return r;
  if (d.finalized) return bad("the descriptor is finalized");
  if (schema->computed) return bad(fmt::format("attribute {} can only be read", attribute));
  if (count < schema->least || count > schema->most || elements == nullptr) {
    return bad(fmt::format("attribute {} has {} to {} elements, {} were given", attribute,
                           schema->least, schema->most, elements == nullptr ? 0 : count));
  }
  Value value{.type = type, .count = count, .bytes = {}, .descriptors = {}};
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    for (std::int64_t i = 0; i < count; ++i) {
      auto held = find(static_cast<const cudnnBackendDescriptor_t*>(elements)[i]);
      if (held == nullptr) return {CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no live descriptor"};
      if (!held->finalized) {
        return {CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED,
                fmt::format("attribute {} is given a descriptor that is not finalized", attribute)};
      }
      value.descriptors.push_back(std::move(held));
    }
  } else {
    const char* bytes = static_cast<const char*>(elements);
    value.bytes.assign(bytes, bytes + static_cast<std::size_t>(count) * size_of(type));
  }
  d.values[attribute] = std::move(value);
  return {};
}

Refused get(const Descriptor& d, int attribute, cudnnBackendAttributeType_t type, std::int64_t room,
            std::int64_t* count, void* elements) {
  const Schema* schema = find_schema(d.type, attribute);
  if (Refused r = check_type(schema, attribute, type); !r.ok()) return r;
  if (!d.finalized) return {CUDNN_STATUS_NOT_INITIALIZED, "the descriptor is not finalized"};
  if (room < 0 || (room > 0 && elements == nullptr)) return bad("no place for the elements");
  if (schema->computed || attribute == CUDNN_ATTR_ENGINECFG_ENGINE) {
    return read_computed(d, attribute, room, elements, count);
  }
  const auto found = d.values.find(attribute);
  const std::int64_t there = found == d.values.end() ? 0 : found->second.count;
  const std::int64_t given = std::min(room, there);
  if (given > 0) {
    std::memcpy(elements, found->second.bytes.data(),
                static_cast<std::size_t>(given) * size_of(type));
  }
  if (count != nullptr) *count = room == 0 ? there : given;
  return {};
}

cudnnStatus_t report(const char* function, const Refused& refused) {
  return refused.ok() ? refused.status : refuse(function, refused.status, refused.why);
}

}  // namespace

double Descriptor::number(int attribute, double otherwise) const {
  const auto found = values.find(attribute);
  if (found == values.end()) return otherwise;
  if (found->second.type == CUDNN_TYPE_DOUBLE) return one<double>(attribute, otherwise);
  return one<float>(attribute, static_cast<float>(otherwise));
}

DescriptorPointer Descriptor::descriptor(int attribute) const {
  const auto found = values.find(attribute);
  return found == values.end() ? nullptr : found->second.descriptors.at(0);
}

DescriptorPointer find(cudnnBackendDescriptor_t handle) {
  const std::lock_guard lock(live().mutex);
  const auto found = live().descriptors.find(handle);
  return found == live().descriptors.end() ? nullptr : found->second;
}

cudnnStatus_t refuse(const char* function, cudnnStatus_t status, const std::string& why) {
  const std::string text = fmt::format("{}: {}", function, why);
  {
    const std::lock_guard lock(last_error().mutex);
    last_error().text = text;
  }
  return emulated::refuse(function, status, cudnnGetErrorString(status), why);
}

}  // namespace tessera::emulated::cudnn

using namespace tessera::emulated::cudnn;  // NOLINT: what follows is the API itself

extern "C" {

void cudnnGetLastErrorString(char* message, size_t room) {
  if (message == nullptr || room == 0) return;
  const std::lock_guard lock(last_error().mutex);
  std::snprintf(message, room, "%s", last_error().text.c_str());
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t* descriptor) {
  if (descriptor == nullptr) {
    return refuse(__func__, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no place given");
  }
  if (schemas_of(type).empty()) {
    return refuse(__func__, CUDNN_STATUS_NOT_SUPPORTED,
                  fmt::format("descriptors of kind {} are not emulated", static_cast<int>(type)));
  }
  auto made = std::make_shared<Descriptor>();
  made->type = type;
  *descriptor = made.get();
  const std::lock_guard lock(live().mutex);
  live().descriptors[made.get()] = made;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  const std::lock_guard lock(live().mutex);
  if (live().descriptors.erase(descriptor) == 1) return CUDNN_STATUS_SUCCESS;
  return refuse(__func__, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no live descriptor");
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  const auto found = find(descriptor);
  if (found == nullptr) {
    return refuse(__func__, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no live descriptor");
  }
  return report(__func__, finalize(*found));
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count,
                                       const void* elements) {
  const auto found = find(descriptor);
  if (found == nullptr) {
    return refuse(__func__, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no live descriptor");
  }
  return report(__func__, set(*found, name, type, count, elements));
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t room,
                                       int64_t* count, void* elements) {
  const auto found = find(descriptor);
  if (found == nullptr) {
    return refuse(__func__, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no live descriptor");
  }
  return report(__func__, get(*found, name, type, room, count, elements));
}

}  // extern "C"
