// All check functions, by file. What each asks stands in check_table.cc.
#ifndef WEIR_TOOLS_GPU_CHECK_CHECKS_H_
#define WEIR_TOOLS_GPU_CHECK_CHECKS_H_

#include "tools/gpu_check/check.h"

namespace weir::gpu_check {

// memory_checks.cc
Answer CheckGranularity(const Gpu& gpu);
Answer CheckHostGranularity(const Gpu& gpu);
Answer CheckClassicAlignment(const Gpu& gpu);
Answer CheckMemInfoStep(const Gpu& gpu);

// mapping_checks.cc
Answer CheckPartialMapping(const Gpu& gpu);
Answer CheckMappingAcrossReservations(const Gpu& gpu);
Answer CheckAliasVisibility(const Gpu& gpu);
Answer CheckAliasDisjointBytes(const Gpu& gpu);
Answer CheckUnmapSeveral(const Gpu& gpu);
Answer CheckUnmapPart(const Gpu& gpu);

// alias_checks.cc
Answer CheckAliasStreamOrder(const Gpu& gpu);
Answer CheckAccessOverSeveral(const Gpu& gpu);
Answer CheckAliasRemap(const Gpu& gpu);
Answer CheckAliasMapBesideWork(const Gpu& gpu);
Answer CheckAliasUnmapBesideWork(const Gpu& gpu);

// layout_checks.cc
Answer CheckStructLayout(const Gpu& gpu);

// pointer_checks.cc
Answer CheckMappedContext(const Gpu& gpu);
Answer CheckIpcCapable(const Gpu& gpu);
Answer CheckBufferId(const Gpu& gpu);

// capture_checks.cc
Answer CheckCaptureRelaxed(const Gpu& gpu);
Answer CheckCaptureTable(const Gpu& gpu);

// latency_checks.cc
Answer CheckMappingLatency(const Gpu& gpu);
Answer CheckClassicLatency(const Gpu& gpu);
Answer CheckHostLatency(const Gpu& gpu);
Answer CheckEventLatency(const Gpu& gpu);

// alias_latency_checks.cc
Answer CheckStitchLatency(const Gpu& gpu);
Answer CheckMergeLatency(const Gpu& gpu);
Answer CheckStitchedBandwidth(const Gpu& gpu);

// weir_checks.cc
Answer CheckWeirTight(const Gpu& gpu);
Answer CheckWeirServing(const Gpu& gpu);

// order_checks.cc
Answer CheckContextEventCovers(const Gpu& gpu);
Answer CheckContextEventAfterLaunch(const Gpu& gpu);
Answer CheckUnmapWaits(const Gpu& gpu);
Answer CheckReleaseWaits(const Gpu& gpu);
Answer CheckFreeWaits(const Gpu& gpu);
Answer CheckAllocWaits(const Gpu& gpu);
Answer CheckHostFreeWaits(const Gpu& gpu);

}  // namespace weir::gpu_check

#endif  // WEIR_TOOLS_GPU_CHECK_CHECKS_H_
