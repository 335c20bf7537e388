// BenchProgram: another allocator's benchmark program (bench/replay_server.h), which replays one
// trace on simulated devices of the sizes that it is asked for. One conversation at a time.
#ifndef WEIR_TOOLS_REPLAY_BENCH_PROGRAM_H_
#define WEIR_TOOLS_REPLAY_BENCH_PROGRAM_H_

#include <sys/types.h>

#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

namespace weir::replay {

class BenchProgram {
 public:
  // Where the program of an allocator is built: beside this one.
  static std::string PathOf(const std::string& allocator);

  // Starts it. A process that does this ignores SIGPIPE from then on.
  BenchProgram(const std::string& allocator, const std::string& trace_path, uint64_t scale);
  ~BenchProgram();  // ends it
  BenchProgram(const BenchProgram&) = delete;
  BenchProgram& operator=(const BenchProgram&) = delete;

  // {"runs": [...]} or {"error": TEXT}. Blocks until the replay has ended.
  nlohmann::json Replay(uint64_t bytes, uint64_t passes);

 private:
  const std::string path_;
  pid_t child_ = -1;
  FILE* requests_ = nullptr;
  FILE* answers_ = nullptr;
};

}  // namespace weir::replay

#endif  // WEIR_TOOLS_REPLAY_BENCH_PROGRAM_H_
