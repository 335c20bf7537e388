#include "tools/trace/pickle_machine.h"

#include <algorithm>
#include <charconv>
#include <cstddef>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"

namespace weir::trace {
namespace {

constexpr size_t kMaxNumberBytes = 1024;  // of a LONG; what exceeds 8 is no size or time
constexpr uint64_t kMaxMemoGap = 1024;    // picklers number the memo in sequence

const absl::flat_hash_map<std::string_view, Atom>& Atoms() {
  static const auto* atoms = new absl::flat_hash_map<std::string_view, Atom>{
#define WEIR_ATOM_ENTRY(name) {#name, Atom::name},
      WEIR_PICKLE_ATOMS(WEIR_ATOM_ENTRY)
#undef WEIR_ATOM_ENTRY
  };
  return *atoms;
}

// The opcodes that can import, call or build; null for any other.
const char* CodeOpcodeName(int opcode) {
  switch (opcode) {
    case 'c':
      return "GLOBAL";
    case 0x93:
      return "STACK_GLOBAL";
    case 'i':
      return "INST";
    case 'o':
      return "OBJ";
    case 'R':
      return "REDUCE";
    case 'b':
      return "BUILD";
    case 0x81:
      return "NEWOBJ";
    case 0x92:
      return "NEWOBJ_EX";
    case 0x82:
      return "EXT1";
    case 0x83:
      return "EXT2";
    case 0x84:
      return "EXT4";
    case 'P':
      return "PERSID";
    case 'Q':
      return "BINPERSID";
    default:
      return nullptr;
  }
}

}  // namespace

bool PickleMachine::Fail(std::string_view text) {
  if (status_.ok()) status_ = input_.status().ok() ? input_.ErrorHere(text) : input_.status();
  return false;
}

absl::Status PickleMachine::Run(PickleValue* root) {
  while (true) {
    const int opcode = input_.ReadByte();
    if (opcode < 0) {
      Fail("the pickle ends too early (truncated file?)");
      return status_;
    }
    if (opcode == '.') break;
    if (Step(opcode)) continue;
    if (const char* name = CodeOpcodeName(opcode); name != nullptr && status_.ok()) {
      Fail(
          absl::StrCat("refused: opcode ", name, " can run code; a memory snapshot is plain data"));
    }
    Fail(absl::StrCat("unknown pickle opcode ", opcode));
    return status_;
  }
  if (stack_.size() != 1 || !marks_.empty()) {
    Fail("the pickle stops with an unfinished value");
    return status_;
  }
  *root = stack_.back();
  return absl::OkStatus();
}

bool PickleMachine::Step(int opcode) {
  switch (opcode) {
    case 0x80: {  // PROTO
      const int version = input_.ReadByte();
      if (version < 0 || version > 5) return Fail("unknown pickle protocol");
      return true;
    }
    case 0x95:  // FRAME: only a hint for buffering
      return input_.Skip(8) || Fail("");
    case '(':
      marks_.push_back(stack_.size());
      return HasRoom();
    case '0':  // POP, of a mark too
      if (!marks_.empty() && marks_.back() == stack_.size()) {
        marks_.pop_back();
      } else if (stack_.empty()) {
        return Fail("nothing to pop");
      } else {
        stack_.pop_back();
      }
      return true;
    case '1': {  // POP_MARK
      size_t first_item = 0;
      if (!PopMark(&first_item)) return false;
      stack_.resize(first_item);
      return true;
    }
    case '2':  // DUP
      if (stack_.empty()) return Fail("nothing to duplicate");
      return Push(stack_.back());
    default:
      return StepMemo(opcode) || (status_.ok() && StepString(opcode)) ||
             (status_.ok() && StepNumber(opcode)) || (status_.ok() && StepContainer(opcode));
  }
}

bool PickleMachine::StepNumber(int opcode) {
  uint64_t value = 0;
  switch (opcode) {
    case 'N':
      return Push({});
    case 0x88:
      return PushInteger(1);
    case 0x89:
      return PushInteger(0);
    case 'J':
      return ReadUnsigned(4, &value) && PushInteger(static_cast<int32_t>(value));
    case 'K':
      return ReadUnsigned(1, &value) && PushInteger(static_cast<int64_t>(value));
    case 'M':
      return ReadUnsigned(2, &value) && PushInteger(static_cast<int64_t>(value));
    case 'G':
      return ReadUnsigned(8, &value) && Push({});  // a float
    case 'F':
      return ReadTextLine(/*may_be_long=*/false) && Push({});
    case 0x8a:
      return ReadUnsigned(1, &value) && PushLong(value);
    case 0x8b:
      return ReadUnsigned(4, &value) && PushLong(value);
    case 'I':
    case 'L': {
      int64_t number = 0;
      bool fits = false;
      if (!ReadDecimalLine(&number, &fits)) return false;
      return fits ? PushInteger(number) : Push({});
    }
    default:
      return false;
  }
}

bool PickleMachine::StepString(int opcode) {
  uint64_t bytes = 0;
  switch (opcode) {
    case 0x8c:
      return ReadUnsigned(1, &bytes) && PushString(bytes);  // SHORT_BINUNICODE
    case 'U':
      return ReadUnsigned(1, &bytes) && PushString(bytes);
    case 'X':
      return ReadUnsigned(4, &bytes) && PushString(bytes);
    case 'T':
      return ReadUnsigned(4, &bytes) && PushString(bytes);
    case 0x8d:
      return ReadUnsigned(8, &bytes) && PushString(bytes);
    case 'C':  // bytes and byte arrays are never looked at
      return ReadUnsigned(1, &bytes) && (input_.Skip(bytes) || Fail("")) && Push({});
    case 'B':
      return ReadUnsigned(4, &bytes) && (input_.Skip(bytes) || Fail("")) && Push({});
    case 0x8e:
    case 0x96:
      return ReadUnsigned(8, &bytes) && (input_.Skip(bytes) || Fail("")) && Push({});
    case 'V':
      return ReadTextLine(/*may_be_long=*/true) && PushAtomOrOther(text_);
    case 'S': {
      if (!ReadTextLine(/*may_be_long=*/true)) return false;
      std::string_view text = text_;
      if (text.size() >= 2) text = text.substr(1, text.size() - 2);  // the quotes
      return PushAtomOrOther(text);
    }
    default:
      return false;
  }
}

bool PickleMachine::StepContainer(int opcode) {
  const auto pick = [&](size_t items) {
    if (stack_.size() >= items) return true;
    return Fail("values are missing on the stack");
  };
  size_t first = 0;
  switch (opcode) {
    case ']':
    case ')':
      return PushContainer(PickleValue::kList, stack_.size());
    case '}':
      return PushContainer(PickleValue::kDict, stack_.size());
    case 0x8f:
      return Push({});  // EMPTY_SET
    case 'l':
    case 't':
      return PopMark(&first) && PushContainer(PickleValue::kList, first);
    case 'd':
      return PopMark(&first) && PushContainer(PickleValue::kDict, first);
    case 0x85:
    case 0x86:
    case 0x87: {
      const auto items = static_cast<size_t>(opcode - 0x84);
      return pick(items) && PushContainer(PickleValue::kList, stack_.size() - items);
    }
    case 'a':
      return pick(2) && AddItems(PickleValue::kList, stack_.size() - 2, stack_.size() - 1);
    case 's':
      return pick(3) && AddItems(PickleValue::kDict, stack_.size() - 3, stack_.size() - 2);
    case 'e':
      return PopMark(&first) && AddItems(PickleValue::kList, first - 1, first);
    case 'u':
      return PopMark(&first) && AddItems(PickleValue::kDict, first - 1, first);
    case 0x90:
      return PopMark(&first) && AddItems(PickleValue::kOther, first - 1, first);
    case 0x91:  // FROZENSET
      if (!PopMark(&first)) return false;
      stack_.resize(first);
      return Push({});
    default:
      return false;
  }
}

bool PickleMachine::StepMemo(int opcode) {
  uint64_t index = 0;
  int64_t decimal = 0;
  bool fits = false;
  switch (opcode) {
    case 0x94:
      return MemoPut(memo_.size());
    case 'h':
      return ReadUnsigned(1, &index) && MemoGet(index);
    case 'j':
      return ReadUnsigned(4, &index) && MemoGet(index);
    case 'q':
      return ReadUnsigned(1, &index) && MemoPut(index);
    case 'r':
      return ReadUnsigned(4, &index) && MemoPut(index);
    case 'g':
    case 'p':
      if (!ReadDecimalLine(&decimal, &fits)) return false;
      if (!fits || decimal < 0) return Fail("the memo number is out of range");
      index = static_cast<uint64_t>(decimal);
      return opcode == 'g' ? MemoGet(index) : MemoPut(index);
    default:
      return false;
  }
}

bool PickleMachine::HasRoom(uint64_t more) {
  const uint64_t values =
      stack_.size() + marks_.size() + memo_.size() + slots_.size() + objects_.size();
  if (values + more <= kMaxPickleValues) return true;
  return Fail(absl::StrCat("the pickle holds more than ", kMaxPickleValues, " values"));
}

bool PickleMachine::Push(PickleValue value) {
  if (!HasRoom()) return false;
  stack_.push_back(value);
  return true;
}

bool PickleMachine::PushInteger(int64_t integer) {
  PickleValue value;
  value.type = PickleValue::kInteger;
  value.integer = integer;
  return Push(value);
}

bool PickleMachine::PushAtomOrOther(std::string_view text) {
  PickleValue value;
  if (auto found = Atoms().find(text); found != Atoms().end()) {
    value.type = PickleValue::kAtom;
    value.atom = found->second;
  }
  return Push(value);
}

bool PickleMachine::PushString(uint64_t bytes) {
  char text[32];  // longer than every atom
  if (bytes > sizeof(text)) return (input_.Skip(bytes) || Fail("")) && Push({});
  if (!input_.Read(text, static_cast<size_t>(bytes))) return Fail("");
  return PushAtomOrOther(std::string_view(text, static_cast<size_t>(bytes)));
}

bool PickleMachine::PushLong(uint64_t bytes) {
  if (bytes > kMaxNumberBytes) return Fail("a number has too many digits");
  unsigned char digits[kMaxNumberBytes];
  if (!input_.Read(digits, static_cast<size_t>(bytes))) return Fail("");
  // Two's complement, little-endian. Leading bytes that only repeat the sign do not count.
  while (bytes > 8 && digits[bytes - 1] == (digits[bytes - 2] >= 0x80 ? 0xff : 0)) --bytes;
  if (bytes > 8) return Push({});
  uint64_t value = bytes > 0 && digits[bytes - 1] >= 0x80 ? ~uint64_t{0} : 0;
  for (uint64_t i = bytes; i-- > 0;) value = value << 8 | digits[i];
  return PushInteger(static_cast<int64_t>(value));
}

bool PickleMachine::ReadUnsigned(size_t bytes, uint64_t* value) {
  unsigned char raw[8] = {};
  if (!input_.Read(raw, bytes)) return Fail("");
  *value = 0;
  for (size_t i = bytes; i-- > 0;) *value = *value << 8 | raw[i];
  return true;
}

bool PickleMachine::ReadTextLine(bool may_be_long) {
  text_.clear();
  while (true) {
    const int byte = input_.ReadByte();
    if (byte < 0) return Fail("the pickle ends too early (truncated file?)");
    if (byte == '\n') return true;
    if (text_.size() < kMaxNumberBytes) {
      text_.push_back(static_cast<char>(byte));
    } else if (!may_be_long) {
      return Fail("a number has too many digits");
    }
  }
}

bool PickleMachine::ReadDecimalLine(int64_t* value, bool* fits) {
  if (!ReadTextLine(/*may_be_long=*/false)) return false;
  std::string_view text = text_;
  if (text.ends_with('L')) text.remove_suffix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  if (error == std::errc::invalid_argument || end != text.data() + text.size()) {
    return Fail("a number is not decimal");
  }
  *fits = error == std::errc();
  return true;
}

bool PickleMachine::MemoPut(uint64_t index) {
  if (stack_.empty()) return Fail("nothing to remember");
  if (index > memo_.size() + kMaxMemoGap) return Fail("the memo number is out of range");
  if (index >= memo_.size()) {
    if (!HasRoom()) return false;
    memo_.resize(static_cast<size_t>(index) + 1);
  }
  memo_[static_cast<size_t>(index)] = stack_.back();
  return true;
}

bool PickleMachine::MemoGet(uint64_t index) {
  if (index >= memo_.size()) return Fail(absl::StrCat("nothing was remembered as ", index));
  return Push(memo_[static_cast<size_t>(index)]);
}

bool PickleMachine::PopMark(size_t* first_item) {
  if (marks_.empty() || marks_.back() > stack_.size()) return Fail("the mark is missing");
  *first_item = marks_.back();
  marks_.pop_back();
  return true;
}

bool PickleMachine::Reserve(Object* object, uint64_t more) {
  const uint64_t needed = object->count + more;
  if (needed <= object->capacity) return true;
  const uint64_t capacity = std::max<uint64_t>(needed, object->capacity + object->capacity / 2);
  if (slots_.size() + capacity > kMaxPickleValues) return HasRoom(capacity);
  if (object->first + object->capacity != slots_.size()) {
    const size_t moved = slots_.size();
    slots_.resize(moved + object->count);
    std::copy_n(slots_.begin() + object->first, object->count,
                slots_.begin() + static_cast<std::ptrdiff_t>(moved));
    object->first = static_cast<uint32_t>(moved);
  }
  slots_.resize(object->first + static_cast<size_t>(capacity));
  object->capacity = static_cast<uint32_t>(capacity);
  return HasRoom();
}

bool PickleMachine::AddTo(const PickleValue& container, size_t first_item) {
  if (container.type == PickleValue::kOther) return true;  // a set
  Object& object = objects_[static_cast<size_t>(container.integer)];
  if (container.type == PickleValue::kList) {
    if (!Reserve(&object, stack_.size() - first_item)) return false;
    for (size_t i = first_item; i < stack_.size(); ++i) {
      slots_[object.first + object.count++] = stack_[i];
    }
    return true;
  }
  if ((stack_.size() - first_item) % 2 != 0) return Fail("a dictionary's key has no value");
  uint64_t known = 0;
  for (size_t i = first_item; i < stack_.size(); i += 2) {
    known += stack_[i].type == PickleValue::kAtom ? 1 : 0;
  }
  if (!Reserve(&object, known)) return false;
  for (size_t i = first_item; i < stack_.size(); i += 2) {
    if (stack_[i].type != PickleValue::kAtom) continue;
    PickleValue value = stack_[i + 1];
    value.key = stack_[i].atom;
    slots_[object.first + object.count++] = value;
  }
  return true;
}

bool PickleMachine::AddItems(PickleValue::Type type, size_t container, size_t first_item) {
  if (first_item == 0 || stack_[container].type != type) {
    return Fail("items for a value that is no container of their kind");
  }
  if (!AddTo(stack_[container], first_item)) return false;
  stack_.resize(first_item);
  return true;
}

bool PickleMachine::PushContainer(PickleValue::Type type, size_t first_item) {
  if (!HasRoom()) return false;
  PickleValue container;
  container.type = type;
  container.integer = static_cast<int64_t>(objects_.size());
  objects_.emplace_back();
  if (!AddTo(container, first_item)) return false;
  stack_.resize(first_item);
  return Push(container);
}

PickleMachine::Values PickleMachine::ValuesOf(const PickleValue& container) const {
  if (container.type != PickleValue::kList && container.type != PickleValue::kDict) {
    return {nullptr, 0};
  }
  const Object& object = objects_[static_cast<size_t>(container.integer)];
  return {slots_.data() + object.first, object.count};
}

const PickleValue* PickleMachine::Find(const PickleValue& dict, Atom key) const {
  if (dict.type != PickleValue::kDict) return nullptr;
  const Values values = ValuesOf(dict);
  // The last one counts, as in Python.
  for (uint64_t i = values.count; i-- > 0;) {
    if (values.first[i].key == key) return &values.first[i];
  }
  return nullptr;
}

}  // namespace weir::trace
