#include "tessera/tests/support/training_case.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "tessera/tensor/ops/elementwise.h"

namespace tessera::testing {
namespace {

using Json = nlohmann::json;

// The same as in tests/reference/training/cases.py.
constexpr std::size_t kFull = 15;
constexpr std::size_t kSamples = 4;
constexpr int kStateSeed = 1;
constexpr int kInputSeed = 1000;
constexpr int kStepSeed = 101;
constexpr int kDotSeed = 7;
constexpr int kLevels = 4096;

int level(std::uint32_t i, int seed) {
  std::uint32_t x = i * 2654435761u + static_cast<std::uint32_t>(seed) * 2246822519u + 374761393u;
  x ^= x >> 15;
  x *= 2654435761u;
  x ^= x >> 13;
  return static_cast<int>(x >> 20);
}

std::vector<double> numbers_of(const Json& json) { return json.get<std::vector<double>>(); }

Shape shape_of(const Json& json) {
  Shape shape;
  for (const Json& extent : json) shape.push_back(extent.get<std::int64_t>());
  return shape;
}

TensorFormula formula_of(const Json& json) {
  TensorFormula formula{.name = json.at("name"),
                        .shape = shape_of(json.at("shape")),
                        .offset = json.value("offset", 0.0),
                        .scale = json.value("scale", 0.0),
                        .integers = json.value("integers", 0),
                        .is_bool = json.value("dtype", "") == "bool"};
  if (json.contains("values")) formula.values = numbers_of(json.at("values"));
  return formula;
}

std::vector<RecordedState> states_of(const Json& list, int first_seed) {
  std::vector<RecordedState> out;
  for (const Json& json : list) {
    RecordedState state{.formula = formula_of(json),
                        .seed = first_seed + static_cast<int>(out.size())};
    const auto gradient = json.find("gradient");
    if (gradient != json.end() && !gradient->is_null()) state.gradient = numbers_of(*gradient);
    if (json.contains("final")) state.final = numbers_of(json.at("final"));
    out.push_back(std::move(state));
  }
  return out;
}

RecordedTensor tensor_of(const Json& json) {
  return {shape_of(json.at("shape")), numbers_of(json.at("numbers"))};
}

TrainingCase case_of(const Json& json) {
  TrainingCase out{.name = json.at("name"),
                   .sgd = {},
                   .inputs = states_of(json.at("inputs"), kInputSeed),
                   .state = states_of(json.at("state"), kStateSeed),
                   .output = tensor_of(json.at("output")),
                   .losses = numbers_of(json.at("losses")),
                   .evaluated = tensor_of(json.at("evaluated"))};
  if (!json.at("sgd").is_null()) out.sgd = json.at("sgd").get<std::map<std::string, double>>();
  return out;
}

Json read(const std::string& file) {
  const std::string path = "tests/nn/reference/" + file + ".json";
  std::ifstream in(path);
  if (!in) throw std::runtime_error("cannot read " + path);
  return Json::parse(in);
}

}  // namespace

std::vector<double> formula_numbers(std::int64_t count, int seed, double offset, double scale) {
  std::vector<double> out;
  for (std::int64_t i = 0; i < count; ++i) {
    const double steps = level(static_cast<std::uint32_t>(i), seed) - kLevels / 2;
    out.push_back(offset + scale * steps / (kLevels / 2));
  }
  return out;
}

std::vector<double> digest(const Tensor& tensor) {
  const std::vector<double> all = cast(tensor, DType::kF64).to_vector<double>();
  if (all.size() <= kFull) return all;
  const std::vector<double> weights = formula_numbers(tensor.numel(), kDotSeed, 0, 1);
  std::vector<double> out(2, 0.0);
  for (std::size_t i = 0; i < all.size(); ++i) {
    out[0] += all[i] * weights[i];
    out[1] += all[i] * all[i];
  }
  for (std::size_t j = 0; j < kSamples; ++j) {
    out.push_back(all[(2 * j + 1) * all.size() / (2 * kSamples)]);
  }
  return out;
}

Tensor TensorFormula::make(int seed, DType dtype) const {
  if (!values.empty()) {
    return cast(Tensor::from_vector(values, shape), is_bool ? DType::kBool : dtype);
  }
  if (integers == 0) {
    return cast(Tensor::from_vector(formula_numbers(shape.numel(), seed, offset, scale), shape),
                dtype);
  }
  std::vector<std::int64_t> whole;
  for (std::int64_t i = 0; i < shape.numel(); ++i) {
    whole.push_back(level(static_cast<std::uint32_t>(i), seed) % integers);
  }
  return Tensor::from_vector(whole, shape);
}

std::map<std::string, Tensor> TrainingCase::batch(int step, DType dtype) const {
  std::map<std::string, Tensor> out;
  for (const RecordedState& input : inputs) {
    out[input.formula.name] = input.formula.make(input.seed + kStepSeed * step, dtype);
  }
  return out;
}

TrainingCase load_training_case(const std::string& file, const std::string& name) {
  for (const Json& json : read(file)) {
    if (json.at("name") == name) return case_of(json);
  }
  throw std::runtime_error(file + ".json has no case \"" + name + "\"");
}

std::map<std::string, std::vector<double>> load_schedules() {
  std::map<std::string, std::vector<double>> out;
  for (const Json& json : read("schedule")) out[json.at("name")] = numbers_of(json.at("rates"));
  return out;
}

}  // namespace tessera::testing
