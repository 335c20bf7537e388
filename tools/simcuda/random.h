// The simulator's random numbers: SplitMix64, small, fast and the same on every platform.
#ifndef WEIR_TOOLS_SIMCUDA_RANDOM_H_
#define WEIR_TOOLS_SIMCUDA_RANDOM_H_

#include <cstdint>

namespace weir::sim {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  uint64_t Below(uint64_t bound) { return Next() % bound; }  // the bias is of no concern here
  double Fraction() { return static_cast<double>(Next() >> 11) * 0x1p-53; }

 private:
  uint64_t state_;
};

}  // namespace weir::sim

#endif  // WEIR_TOOLS_SIMCUDA_RANDOM_H_
