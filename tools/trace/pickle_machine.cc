#include "tools/trace/pickle_machine.h"

#include <charconv>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"

namespace weir::trace {
namespace {

constexpr size_t kMaxNumberBytes = 1024;  // of a LONG; what exceeds 8 is no size or time

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

}  // namespace weir::trace
