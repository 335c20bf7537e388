// PickleMachine: reads a Python pickle of plain data (numbers, strings, lists, tuples,
// dictionaries; protocols 0 to 5) without running anything. Every opcode that can name code or
// make objects of a class is refused, so a hostile file can do no more than be wrong.
//
// Only what a memory snapshot needs is kept: of strings the ones in WEIR_PICKLE_ATOMS, of
// dictionaries the entries whose key is one of them. Memory is bounded by kMaxPickleValues,
// whatever the file says.
#ifndef WEIR_TOOLS_TRACE_PICKLE_MACHINE_H_
#define WEIR_TOOLS_TRACE_PICKLE_MACHINE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "tools/trace/input.h"

namespace weir::trace {

// Elements, entries, containers, memo places and stack places together; 16 bytes each.
inline constexpr uint64_t kMaxPickleValues = uint64_t{48} << 20;

#define WEIR_PICKLE_ATOMS(X)                                                                      \
  X(segments)                                                                                     \
  X(device_traces) X(action) X(addr) X(size) X(stream) X(time_us) X(device) X(address) X(blocks)  \
      X(state) X(requested_size) X(alloc) X(free_requested) X(free_completed) X(active_allocated) \
          X(active_pending_free)
enum class Atom : uint8_t {
#define WEIR_DECLARE_ATOM(name) name,
  WEIR_PICKLE_ATOMS(WEIR_DECLARE_ATOM)
#undef WEIR_DECLARE_ATOM
};

struct PickleValue {
  enum Type : uint8_t {
    kOther,    // None, floats, bytes, sets, numbers beyond 64 bits, strings that are no atoms
    kInteger,  // `integer`, bools too
    kAtom,     // `atom`
    kList,     // a list or tuple; `integer` is its object number
    kDict,     // likewise
  };
  Type type = kOther;
  Atom atom = {};
  Atom key = {};  // of the entry of a dictionary whose value this is
  int64_t integer = 0;

  bool Is(Atom other) const { return type == kAtom && atom == other; }
};

class PickleMachine {
 public:
  explicit PickleMachine(Input& input) : input_(input) {}

  // Reads up to the end of the pickle. An error names the byte. Not to be called again.
  absl::Status Run(PickleValue* root);

  // The elements of a list or the known entries of a dictionary; empty for everything else. Valid
  // for the life of the machine.
  struct Values {
    const PickleValue* first;
    uint64_t count;
    const PickleValue* begin() const { return first; }
    const PickleValue* end() const { return first + count; }
  };
  Values ValuesOf(const PickleValue& container) const;
  // The entry, or null if it is absent or `dict` is no dictionary.
  const PickleValue* Find(const PickleValue& dict, Atom key) const;

 private:
  // One list or dictionary: a run of slots, moved to the end of slots_ to grow.
  struct Object {
    uint32_t first = 0;
    uint32_t count = 0;
    uint32_t capacity = 0;
  };

  // Each executes the opcode if it is one of its kind; false otherwise and on errors.
  bool Step(int opcode);
  bool StepNumber(int opcode);
  bool StepString(int opcode);
  bool StepContainer(int opcode);
  bool StepMemo(int opcode);
  bool Fail(std::string_view text);

  bool HasRoom(uint64_t more = 1);
  bool Push(PickleValue value);
  bool PushInteger(int64_t integer);
  bool PushString(uint64_t bytes);
  bool PushAtomOrOther(std::string_view text);
  bool PushLong(uint64_t bytes);
  bool PushContainer(PickleValue::Type type, size_t first_item);
  bool ReadUnsigned(size_t bytes, uint64_t* value);  // little-endian
  bool ReadTextLine(bool may_be_long);               // into text_
  bool ReadDecimalLine(int64_t* value, bool* fits);
  bool MemoPut(uint64_t index);
  bool MemoGet(uint64_t index);
  // The first place above the topmost mark, which is removed.
  bool PopMark(size_t* first_item);
  // Moves what lies from `first_item` on into the container just below it.
  bool AddItems(PickleValue::Type type, size_t container, size_t first_item);
  bool AddTo(const PickleValue& container, size_t first_item);
  bool Reserve(Object* object, uint64_t more);

  Input& input_;
  absl::Status status_;
  std::vector<PickleValue> stack_;
  std::vector<size_t> marks_;  // heights of stack_
  std::vector<PickleValue> memo_;
  std::vector<Object> objects_;
  std::vector<PickleValue> slots_;
  std::string text_;
};

}  // namespace weir::trace

#endif  // WEIR_TOOLS_TRACE_PICKLE_MACHINE_H_
