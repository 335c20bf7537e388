// A part of a test in a child process of its own: the pool of a process can be set up once.
#ifndef WEIR_TESTS_CAPI_IN_CHILD_H_
#define WEIR_TESTS_CAPI_IN_CHILD_H_

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "tests/support/catch.h"
#include "weir/weir.h"

namespace weir::test {

// Runs body in a child with this environment (nullptr: unset). The body returns the number of the
// line that failed, 0 for none.
template <typename Body>
int InChild(const char* conf, const char* disable, Body body) {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    conf == nullptr ? unsetenv("WEIR_CONF") : setenv("WEIR_CONF", conf, 1);
    disable == nullptr ? unsetenv("WEIR_DISABLE") : setenv("WEIR_DISABLE", disable, 1);
    const int line = body();
    if (line != 0) std::fprintf(stderr, "line %d; last error: %s\n", line, weir_last_error());
    _exit(line == 0 ? 0 : 1);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

#define EXPECT_IN_CHILD(condition)     \
  do {                                 \
    if (!(condition)) return __LINE__; \
  } while (false)

}  // namespace weir::test

#endif  // WEIR_TESTS_CAPI_IN_CHILD_H_
