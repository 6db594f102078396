// Results of PyTorch, from tests/tensor/reference/. tests/reference/make_values.py writes the files
// and describes them.
//
//     for (const ReferenceCase& c : load_reference("softmax")) {
//       INFO(c.name);
//       CHECK(all_close(softmax(c.tensor("x"), static_cast<int>(c.number("dim"))), c.tensor("y")));
//     }
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tessera/tensor/tensor.h"

namespace tessera::testing {

// One case: options and tensors by name, f64, i64 or bool. Its functions throw std::out_of_range
// for a name that the case does not have.
struct ReferenceCase {
  std::string name;
  std::map<std::string, std::vector<double>>
      numbers;  // a flag is 0 or 1; a number is a list of one
  std::map<std::string, std::string> texts;
  std::map<std::string, Tensor> tensors;

  double number(const std::string& key) const { return numbers.at(key).at(0); }
  bool flag(const std::string& key) const { return number(key) != 0; }
  std::vector<std::int64_t> list(const std::string& key) const;
  const std::string& text(const std::string& key) const { return texts.at(key); }
  const Tensor& tensor(const std::string& key) const { return tensors.at(key); }
  // Undefined if the case has no such tensor, such as a bias.
  Tensor optional(const std::string& key) const;
};

// The cases of tests/tensor/reference/<file>.json. Throws std::runtime_error if it cannot be read.
std::vector<ReferenceCase> load_reference(const std::string& file);

// The cases whose option "function" is `function`.
std::vector<ReferenceCase> load_reference(const std::string& file, const std::string& function);

}  // namespace tessera::testing
