// The weir command as a user runs it: traces in a folder of their own, output, exit status.
#ifndef WEIR_TESTS_REPLAY_COMMAND_FIXTURE_H_
#define WEIR_TESTS_REPLAY_COMMAND_FIXTURE_H_

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "tests/support/catch.h"

namespace weir::replay {

inline const std::string kHeader = "t_us,op,id,size,stream,device\n";
// 3 MiB and 5 MiB live together at most; the second block stays live.
inline const std::string kSmall =
    kHeader + "1,a,1,3145728,0,0\n2,a,2,5242880,0,0\n3,f,1,0,0,0\n4,a,3,1000,0,0\n5,f,3,0,0,0\n";
// Blocks of one stream that another uses, and that another frees.
inline const std::string kStreams =
    kHeader +
    "1,a,1,4194304,0,0\n2,u,1,0,7,0\n3,f,1,0,0,0\n4,a,2,4194304,0,0\n"
    "5,a,3,4194304,7,0\n6,f,2,0,7,0\n7,a,4,4194304,7,0\n8,f,3,0,7,0\n"
    "9,f,4,0,0,0\n";

class Folder {
 public:
  Folder() {
    char name[] = "/tmp/weir-command-XXXXXX";
    REQUIRE(mkdtemp(name) != nullptr);
    path_ = name;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string Path(const std::string& name) const { return path_ + "/" + name; }
  std::string Write(const std::string& name, const std::string& text) const {
    std::ofstream(Path(name)) << text;
    return Path(name);
  }
  std::string Read(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(Path(name)).rdbuf();
    return text.str();
  }

 private:
  std::string path_;
};

struct Outcome {
  int status = -1;
  std::string text;  // stdout and stderr

  bool Says(const std::string& part) const { return text.find(part) != std::string::npos; }
};

inline Outcome Shell(const std::string& command) {
  Outcome outcome;
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  REQUIRE(pipe != nullptr);
  char piece[4096];
  while (const size_t got = fread(piece, 1, sizeof(piece), pipe)) outcome.text.append(piece, got);
  const int status = pclose(pipe);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

inline Outcome Weir(const std::string& arguments) { return Shell(WEIR_COMMAND " " + arguments); }

// Runs `weir COMMAND --json FILE ARGUMENTS`, which must end with the status, and reads the file.
inline nlohmann::json WeirJson(const Folder& folder, const std::string& command,
                               const std::string& arguments, int status) {
  const Outcome outcome = Weir(command + " --json " + folder.Path("out.json") + " " + arguments);
  INFO(outcome.text);
  REQUIRE(outcome.status == status);
  return nlohmann::json::parse(folder.Read("out.json"));
}

}  // namespace weir::replay

#endif  // WEIR_TESTS_REPLAY_COMMAND_FIXTURE_H_
