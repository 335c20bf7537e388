// The one place that reads the environment.
#ifndef WEIR_BASE_ENV_H_
#define WEIR_BASE_ENV_H_

#include <string>

namespace weir {

// The value of a variable, "" if it is not set.
std::string ReadEnvironment(const char* name);

}  // namespace weir

#endif  // WEIR_BASE_ENV_H_
