// The values of the pickle machine: memo, marks, lists and dictionaries, and their limit.
#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "tools/trace/pickle_machine.h"

namespace weir::trace {
namespace {

constexpr uint64_t kMaxMemoGap = 1024;  // picklers number the memo in sequence

}  // namespace

bool PickleMachine::HasRoom(uint64_t more) {
  const uint64_t values =
      stack_.size() + marks_.size() + memo_.size() + slots_.size() + objects_.size();
  if (values + more <= kMaxPickleValues) return true;
  return Fail(absl::StrCat("the pickle holds more than ", kMaxPickleValues, " values"));
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
