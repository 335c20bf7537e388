#include "tools/simcuda/runtime/registration.h"

#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "tools/simcuda/runtime/copy.h"
#include "tools/simcuda/runtime/face.h"

namespace weir::sim::runtime {
namespace {

struct Variable {
  size_t bytes;
  uint64_t generation = 0;           // of the simulator that the addresses belong to
  std::map<int, void*> addresses{};  // by device
};

// One binary of device code; what compilers call its handle points here.
struct Module {
  std::vector<const void*> kernels;
  std::vector<const void*> variables;
};

struct Registry {
  std::mutex lock;
  std::unordered_map<const void*, Kernel> kernels;
  std::unordered_map<const void*, Variable> variables;
  std::unordered_map<Module*, std::unique_ptr<Module>> modules;
};

// Never destroyed: libraries unregister their code while the process ends.
Registry& Registered() {
  static Registry* const registry = new Registry;
  return *registry;
}

}  // namespace

bool FindKernel(const void* host_stub, Kernel* kernel) {
  Registry& registry = Registered();
  const std::lock_guard<std::mutex> hold(registry.lock);
  const auto found = registry.kernels.find(host_stub);
  if (found == registry.kernels.end()) return false;
  *kernel = found->second;
  return true;
}

bool SetKernel(const void* host_stub, const Kernel& kernel) {
  Registry& registry = Registered();
  const std::lock_guard<std::mutex> hold(registry.lock);
  const auto found = registry.kernels.find(host_stub);
  if (found == registry.kernels.end()) return false;
  found->second = kernel;
  return true;
}

cudaError_t FindVariable(const void* host_shadow, void** address, size_t* bytes) {
  Registry& registry = Registered();
  const std::lock_guard<std::mutex> hold(registry.lock);
  const auto found = registry.variables.find(host_shadow);
  if (found == registry.variables.end()) return cudaErrorInvalidSymbol;
  Variable& variable = found->second;
  if (variable.generation != simcuda_generation()) {
    variable.generation = simcuda_generation();
    variable.addresses.clear();
  }
  void*& memory = variable.addresses[CurrentDevice()];
  if (memory == nullptr) {
    const CUresult result = Driver().cuMemAlloc(AddressOut(&memory), variable.bytes);
    if (result != CUDA_SUCCESS) return Translate(result);
  }
  *address = memory;
  *bytes = variable.bytes;
  return cudaSuccess;
}

void ForgetVariables(int device) {
  Registry& registry = Registered();
  const std::lock_guard<std::mutex> hold(registry.lock);
  for (auto& [shadow, variable] : registry.variables) variable.addresses.erase(device);
}

namespace {

// Where in a variable a copy goes.
cudaError_t VariableRange(const void* host_shadow, size_t offset, size_t bytes, void** address) {
  void* base = nullptr;
  size_t size = 0;
  const cudaError_t error = FindVariable(host_shadow, &base, &size);
  if (error != cudaSuccess) return error;
  if (offset > size || bytes > size - offset) return cudaErrorInvalidValue;
  *address = static_cast<char*>(base) + offset;
  return cudaSuccess;
}

}  // namespace
}  // namespace weir::sim::runtime

using namespace weir::sim::runtime;

extern "C" {

// ---- Called by what compilers generate ----------------------------------------------------------

void** __cudaRegisterFatBinary(void*) {
  Registry& registry = Registered();
  const std::lock_guard<std::mutex> hold(registry.lock);
  auto made = std::make_unique<Module>();
  Module* const module = made.get();
  registry.modules[module] = std::move(made);
  return reinterpret_cast<void**>(module);
}

void __cudaRegisterFatBinaryEnd(void**) {}

// Nothing is compiled, so nothing can fail.
char __cudaInitModule(void**) { return 1; }

void __cudaRegisterFunction(void** handle, const char* host_stub, char*, const char* name, int,
                            uint3*, uint3*, dim3*, dim3*, int*) {
  Registry& registry = Registered();
  const std::lock_guard<std::mutex> hold(registry.lock);
  registry.kernels[host_stub] = Kernel{.name = name};
  reinterpret_cast<Module*>(handle)->kernels.push_back(host_stub);
}

void __cudaRegisterVar(void** handle, char* host_shadow, char*, const char*, int, size_t bytes, int,
                       int) {
  Registry& registry = Registered();
  const std::lock_guard<std::mutex> hold(registry.lock);
  registry.variables[host_shadow] = Variable{.bytes = bytes};
  reinterpret_cast<Module*>(handle)->variables.push_back(host_shadow);
}

void __cudaUnregisterFatBinary(void** handle) {
  Registry& registry = Registered();
  const std::lock_guard<std::mutex> hold(registry.lock);
  const auto module = registry.modules.find(reinterpret_cast<Module*>(handle));
  if (module == registry.modules.end()) return;
  for (const void* kernel : module->second->kernels) registry.kernels.erase(kernel);
  for (const void* variable : module->second->variables) registry.variables.erase(variable);
  registry.modules.erase(module);
}

// ---- Variables ----------------------------------------------------------------------------------

cudaError_t cudaGetSymbolAddress(void** address, const void* symbol) {
  if (address == nullptr) return Finish(cudaErrorInvalidValue);
  return InContext([=](const DriverTable&) {
    size_t bytes = 0;
    return FindVariable(symbol, address, &bytes);
  });
}

cudaError_t cudaGetSymbolSize(size_t* bytes, const void* symbol) {
  if (bytes == nullptr) return Finish(cudaErrorInvalidValue);
  return InContext([=](const DriverTable&) {
    void* address = nullptr;
    return FindVariable(symbol, &address, bytes);
  });
}

cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* from, size_t bytes, size_t offset,
                               cudaMemcpyKind kind) {
  return InContext([=](const DriverTable&) {
    void* to = nullptr;
    const cudaError_t error = VariableRange(symbol, offset, bytes, &to);
    return error == cudaSuccess ? CopyNow(to, from, bytes, kind) : error;
  });
}

cudaError_t cudaMemcpyFromSymbol(void* to, const void* symbol, size_t bytes, size_t offset,
                                 cudaMemcpyKind kind) {
  return InContext([=](const DriverTable&) {
    void* from = nullptr;
    const cudaError_t error = VariableRange(symbol, offset, bytes, &from);
    return error == cudaSuccess ? CopyNow(to, from, bytes, kind) : error;
  });
}

}  // extern "C"
