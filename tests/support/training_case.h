// A case of tests/nn/reference/: what PyTorch computed in 20 training steps, and the formula that
// says what it began with. tests/reference/make_values.py writes the files.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tessera/tensor/tensor.h"

namespace tessera::testing {

constexpr int kTrainingSteps = 20;

// `count` numbers in [offset - scale, offset + scale) without a pattern, the same in Python.
std::vector<double> formula_numbers(std::int64_t count, int seed, double offset, double scale);

// All elements of a small tensor; of a large one its product with fixed numbers, its square, and
// some elements.
std::vector<double> digest(const Tensor& tensor);

// How a tensor is made.
struct TensorFormula {
  std::string name;
  Shape shape;
  double offset = 0;
  double scale = 0;
  int integers = 0;                 // not 0: whole numbers below this
  bool is_bool = false;             // of `values`
  std::vector<double> values = {};  // the same in every step

  // Floating numbers in `dtype`, whole ones in i64, others bool.
  Tensor make(int seed, DType dtype) const;
};

struct RecordedTensor {
  Shape shape;
  std::vector<double> numbers;  // a digest
};

// An input of each step, or a parameter or buffer.
struct RecordedState {
  TensorFormula formula;
  int seed = 0;
  std::optional<std::vector<double>> gradient = {};  // of the first step
  std::vector<double> final = {};                    // parameters and buffers: after all steps
};

struct TrainingCase {
  std::string name;
  std::map<std::string, double> sgd;  // options; empty where the case has an optimizer of its own
  std::vector<RecordedState> inputs;
  std::vector<RecordedState> state;
  RecordedTensor output;       // of the first step
  std::vector<double> losses;  // of each step
  RecordedTensor evaluated;    // output in evaluation on the batch after the last

  // The inputs of a step by name.
  std::map<std::string, Tensor> batch(int step, DType dtype) const;
};

// Throws std::runtime_error when tests/nn/reference/<file>.json cannot be read or lacks the case.
TrainingCase load_training_case(const std::string& file, const std::string& name);

// The learning rates of each step, by the name of the schedule.
std::map<std::string, std::vector<double>> load_schedules();

}  // namespace tessera::testing
