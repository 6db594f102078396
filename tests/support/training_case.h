// A case of tests/nn/reference/: the results of 20 training steps in PyTorch, and the formula of
// their initial values and inputs. tests/reference/make_values.py writes the files.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tessera/tensor/tensor.h"

namespace tessera::testing {

constexpr int kTrainingSteps = 20;

// `count` pseudo-random numbers in [offset - scale, offset + scale), the same as in Python.
std::vector<double> formula_numbers(std::int64_t count, int seed, double offset, double scale);

// All elements of a small tensor; for a large one, its dot product with fixed numbers, its sum of
// squares, and some elements.
std::vector<double> digest(const Tensor& tensor);

// The formula of a tensor's elements.
struct TensorFormula {
  std::string name;
  Shape shape;
  double offset = 0;
  double scale = 0;
  int integers = 0;                 // if not 0: whole numbers below this
  bool is_bool = false;             // of `values`
  std::vector<double> values = {};  // the same in every step

  // Floating values in `dtype`, whole numbers as i64, else bool.
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
  std::optional<std::vector<double>> gradient = {};  // in the first step
  std::vector<double> final = {};                    // of parameters and buffers: after all steps
};

struct TrainingCase {
  std::string name;
  std::map<std::string, double> sgd;  // options; empty if the case has its own optimizer
  std::vector<RecordedState> inputs;
  std::vector<RecordedState> state;
  RecordedTensor output;       // of the first step
  std::vector<double> losses;  // of each step
  RecordedTensor evaluated;    // output in evaluation mode on the next batch

  // The inputs of a step by name.
  std::map<std::string, Tensor> batch(int step, DType dtype) const;
};

// Throws std::runtime_error if tests/nn/reference/<file>.json cannot be read or does not have the
// case.
TrainingCase load_training_case(const std::string& file, const std::string& name);

// The learning rates of each step, by the name of the schedule.
std::map<std::string, std::vector<double>> load_schedules();

}  // namespace tessera::testing
