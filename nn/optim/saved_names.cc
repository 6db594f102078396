#include "tessera/nn/optim/saved_names.h"

#include <set>

#include "tessera/tensor/check.h"

namespace tessera::nn::optim {

std::map<std::string, Parameter> parameters_by_name(const char* where,
                                                    const std::vector<Parameter>& parameters) {
  std::map<std::string, Parameter> out;
  std::vector<std::string> problems;
  std::set<std::string> doubled;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& parameter = parameters[i];
    const std::string& name = parameter.name();
    if (name.empty()) {
      problems.push_back(fmt::format("number {} of shape {} has none", i, parameter.shape().str()));
    } else if (!out.emplace(name, parameter).second && doubled.insert(name).second) {
      problems.push_back(fmt::format("several are called \"{}\"", name));
    }
  }
  TESSERA_CHECK(problems.empty(), where,
                "state is saved by the names of parameters: {}; nn::initialize(model) names them",
                fmt::join(problems, "; "));
  return out;
}

void throw_problems(const char* where, const std::string& what,
                    const std::vector<std::string>& problems) {
  TESSERA_CHECK(problems.empty(), where, "the saved state does not fit this {}: {}", what,
                fmt::join(problems, "; "));
}

}  // namespace tessera::nn::optim
