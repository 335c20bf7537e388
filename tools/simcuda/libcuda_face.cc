// libcuda.so.1: the ELF symbols of the driver, each a jump to the function in libsimcuda.so. The
// jumps are written in assembler because they forward calls of every signature, which C++ cannot.
// Refuses to work on a machine that has a real driver, unless WEIR_SIMCUDA_FORCE=1.
#include "tools/simcuda/faces.h"

#if defined(__x86_64__)
#define WEIR_FACE_JUMP(slot) "endbr64\n jmp *" slot "(%rip)\n"
#elif defined(__aarch64__)
#define WEIR_FACE_JUMP(slot) \
  "bti c\n adrp x16, " slot "\n ldr x16, [x16, #:lo12:" slot "]\n br x16\n"
#else
#error "libcuda_face.cc: write the jump for this architecture"
#endif

// Where each symbol jumps to.
extern "C" {
#define ABI(name, version, elf_name, implementation) \
  __attribute__((visibility("hidden"))) void* weir_slot_##elf_name = nullptr;
#define ABI_PTSZ ABI
#define ABI_PTDS ABI
#include "tools/simcuda/entry_points.inc"
}

#define ABI(name, version, elf_name, implementation)                                               \
  __asm__(".text\n .globl " #elf_name "\n .type " #elf_name ", %function\n .balign 16\n" #elf_name \
          ":\n" WEIR_FACE_JUMP("weir_slot_" #elf_name) ".size " #elf_name ", . - " #elf_name       \
                                                       "\n");
#define ABI_PTSZ ABI
#define ABI_PTDS ABI
#include "tools/simcuda/entry_points.inc"

namespace {

__attribute__((constructor)) void Attach() {
#define ABI(name, version, elf_name, implementation) \
  weir_slot_##elf_name = simcuda_find_entry(#name, version, 0);
#define ABI_PTSZ(name, version, elf_name, implementation) \
  weir_slot_##elf_name = simcuda_find_entry(#name, version, 1);
#define ABI_PTDS(name, version, elf_name, implementation) \
  weir_slot_##elf_name = simcuda_find_entry(#name, version, 1);
#include "tools/simcuda/entry_points.inc"
  simcuda_attach_face();
}

}  // namespace
