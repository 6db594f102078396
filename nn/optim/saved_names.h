#pragma once

/// For optim's own files: names under which the state of parameters is saved.

#include <map>
#include <string>
#include <vector>

#include "tessera/nn/parameter.h"

namespace tessera::nn::optim {

/// Throws InvalidArgument listing parameters without a name and names that several have.
std::map<std::string, Parameter> parameters_by_name(const char* where,
                                                    const std::vector<Parameter>& parameters);

/// Throws InvalidArgument with all of them unless there are none; `what` is what was loaded into.
void throw_problems(const char* where, const std::string& what,
                    const std::vector<std::string>& problems);

}  // namespace tessera::nn::optim
