#include "tessera/tests/support/reference.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace tessera::testing {
namespace {

using Json = nlohmann::json;

template <class T>
Tensor tensor_of(const Json& values, const Shape& shape) {
  return Tensor::from_vector(values.get<std::vector<T>>(), shape);
}

Tensor tensor_of(const Json& json) {
  Shape shape;
  for (const Json& extent : json.at("shape")) shape.push_back(extent.get<std::int64_t>());
  const Json& values = json.at("values");
  const std::string dtype = json.at("dtype");
  if (dtype == "f64") return tensor_of<double>(values, shape);
  if (dtype == "i64") return tensor_of<std::int64_t>(values, shape);
  if (dtype != "bool") throw std::runtime_error("reference values of dtype " + dtype);
  std::vector<bool> flags;
  for (const Json& value : values) flags.push_back(value.get<int>() != 0);
  return Tensor::from_vector(flags, shape);
}

void add_option(ReferenceCase& out, const std::string& name, const Json& value) {
  if (value.is_string()) {
    out.texts[name] = value;
  } else if (value.is_boolean()) {
    out.numbers[name] = {value.get<bool>() ? 1.0 : 0.0};
  } else if (value.is_array()) {
    out.numbers[name] = value.get<std::vector<double>>();
  } else {
    out.numbers[name] = {value.get<double>()};
  }
}

}  // namespace

std::vector<std::int64_t> ReferenceCase::list(const std::string& key) const {
  const std::vector<double>& from = numbers.at(key);
  return {from.begin(), from.end()};
}

Tensor ReferenceCase::optional(const std::string& key) const {
  const auto found = tensors.find(key);
  return found == tensors.end() ? Tensor() : found->second;
}

std::vector<ReferenceCase> load_reference(const std::string& file) {
  const std::string path = "tests/tensor/reference/" + file + ".json";
  std::ifstream in(path);
  if (!in) throw std::runtime_error("cannot read " + path);
  std::vector<ReferenceCase> out;
  for (const Json& json : Json::parse(in)) {
    ReferenceCase c;
    c.name = json.at("name");
    for (const auto& [name, value] : json.at("options").items()) add_option(c, name, value);
    for (const auto& [name, value] : json.at("tensors").items()) c.tensors[name] = tensor_of(value);
    out.push_back(std::move(c));
  }
  return out;
}

std::vector<ReferenceCase> load_reference(const std::string& file, const std::string& function) {
  std::vector<ReferenceCase> all = load_reference(file);
  std::erase_if(all, [&](const ReferenceCase& c) { return c.text("function") != function; });
  if (all.empty()) throw std::runtime_error(file + ".json has no case of " + function);
  return all;
}

}  // namespace tessera::testing
