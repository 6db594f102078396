#pragma once

/// What recurrent layers and their cells share. Private to this folder.

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/autograd/variable.h"
#include "tessera/nn/parameter.h"

namespace tessera::nn::detail {

enum class RecurrentKind : std::uint8_t { kTanh, kRelu, kLstm, kGru };

/// Rows of a weight for each hidden feature.
std::int64_t gates_of(RecurrentKind kind);

struct RecurrentSizes {
  std::int64_t input_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t num_layers = 1;
  bool bias = true;
  bool batch_first = false;
  double dropout = 0;
  bool bidirectional = false;
  DType dtype = DType::kF32;
};

/// What goes from step to step; c is the LSTM's, elsewhere undefined.
struct RecurrentState {
  Variable h;
  Variable c;
};

/// The parameters of one layer in one direction; biases may be undefined.
struct RecurrentWeights {
  Variable weight_ih, weight_hh, bias_ih, bias_hh;
};

/// The state after a step. `from_input` is x weight_ih^T + bias_ih [..., gates hidden].
RecurrentState recurrent_step(RecurrentKind kind, const Variable& from_input,
                              const RecurrentState& state, const RecurrentWeights& weights);

/// weight_ih, weight_hh, bias_ih and bias_hh, registered by `module` under these names and `suffix`; all start uniform
/// in [-1/sqrt(hidden), 1/sqrt(hidden)).
class RecurrentParameters {
 public:
  /// Throws InvalidArgument for sizes below 1.
  RecurrentParameters(const char* where, RecurrentKind kind, const RecurrentSizes& sizes);
  /// Adds a set; its input has `input` features.
  void add(std::int64_t input, std::string suffix);
  template <class Register>
  void register_with(const Register& registered) {
    for (std::size_t i = 0; i < all_.size(); ++i) registered(names_[i], all_[i]);
  }
  RecurrentWeights weights(std::size_t set) const;
  /// Of set `set`: 0 weight_ih, 1 weight_hh, 2 bias_ih, 3 bias_hh. Throws StateError for a bias where
  /// it was built without.
  Parameter& at(std::size_t set, std::size_t which);
  const Parameter& at(std::size_t set, std::size_t which) const {
    return all_[set * per_set() + which];
  }
  std::size_t sets() const { return all_.size() / per_set(); }

 private:
  std::size_t per_set() const { return sizes_.bias ? 4 : 2; }

  const char* where_;
  RecurrentKind kind_;
  RecurrentSizes sizes_;
  std::deque<Parameter> all_;  // set after set; they stay where they are
  std::vector<std::string> names_;
};

struct CellInputs {
  const Variable& x;
  const RecurrentState& state;
};
/// The state after one step; zeros where it is undefined. Throws InvalidArgument, tagged `where`, for operands that do
/// not fit.
RecurrentState run_cell(const char* where, RecurrentKind kind,
                        const RecurrentParameters& parameters, const CellInputs& in);

/// The steps of all layers and directions.
class RecurrentStack {
 public:
  RecurrentStack(const char* where, RecurrentKind kind, const RecurrentSizes& sizes);

  struct Result {
    Variable output;
    RecurrentState state;
  };
  /// Draws of dropout are those of `layer`. Throws InvalidArgument for operands that do not fit.
  Result run(const Variable& x, const RecurrentState& initial, bool training,
             std::string_view layer) const;
  RecurrentParameters& parameters() { return parameters_; }
  Parameter& parameter(std::int64_t layer, bool reverse, std::size_t which);

 private:
  std::size_t directions() const { return sizes_.bidirectional ? 2 : 1; }
  void check_input(const Variable& x) const;
  /// `state` [layers * directions, samples, hidden], also for x without samples; zeros where it is undefined.
  Variable initial_state(const char* name, const Variable& state, const Variable& sequence,
                         bool batched) const;
  Variable run_direction(const Variable& sequence, std::size_t set, RecurrentState& state) const;

  const char* where_;
  RecurrentKind kind_;
  RecurrentSizes sizes_;
  RecurrentParameters parameters_;
};

}  // namespace tessera::nn::detail
