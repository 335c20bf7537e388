// Counters with a current value, a peak and a total, as fields of weir_stats_t or
// weir_size_stats_t.
#ifndef WEIR_POOL_STATS_H_
#define WEIR_POOL_STATS_H_

#include <algorithm>

#include "weir/weir.h"

#define WEIR_STAT_ADD(stats, name, amount)                             \
  do {                                                                 \
    (stats).name += (amount);                                          \
    (stats).total_##name += (amount);                                  \
    (stats).peak_##name = std::max((stats).peak_##name, (stats).name); \
  } while (false)

#define WEIR_STAT_SUB(stats, name, amount) ((stats).name -= (amount))

namespace weir {

// All peaks become the current values.
template <typename Stats>
void LowerPeaksOf(Stats* stats) {
#define WEIR_LOWER_PEAK(name) stats->peak_##name = stats->name;
  WEIR_STAT_FIELDS(WEIR_LOWER_PEAK)
#undef WEIR_LOWER_PEAK
}

}  // namespace weir

#endif  // WEIR_POOL_STATS_H_
