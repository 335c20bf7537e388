// The table of checks: name, question, what Weir assumes, function.
#include "tools/gpu_check/checks.h"

namespace weir::gpu_check {

const std::vector<Check>& AllChecks() {
  static const std::vector<Check> checks = {
      {"granularity", "In which unit is device memory mapped?",
       "2 MiB, minimum and recommended, with and without RDMA", CheckGranularity},
      {"host_granularity", "In which unit is HOST and HOST_NUMA memory mapped?",
       "nothing: the part that maps host memory asks", CheckHostGranularity},
      {"classic_alignment", "How is cuMemAlloc memory aligned?", "to 512 bytes at least",
       CheckClassicAlignment},
      {"mem_info_step", "In which steps does cuMemGetInfo's free memory fall?", "2 MiB",
       CheckMemInfoStep},

      {"partial_mapping", "May a mapping be smaller than its handle?",
       "yes (Weir maps whole handles only)", CheckPartialMapping},
      {"mapping_across_reservations", "May one mapping span two adjacent reservations?",
       "no: INVALID_VALUE", CheckMappingAcrossReservations},
      {"alias_visibility", "Does a kernel see what an earlier kernel wrote through another alias?",
       "yes", CheckAliasVisibility},
      {"alias_disjoint_bytes",
       "Do two kernels that run at once and write disjoint bytes through two aliases lose writes?",
       "no", CheckAliasDisjointBytes},
      {"alias_stream_order",
       "Do memsets, copies and kernels see what earlier ones wrote through another alias, in one "
       "stream and behind an event?",
       "yes (documented)", CheckAliasStreamOrder},
      {"access_over_several",
       "Does one cuMemSetAccess take several mappings, of handles that are mapped elsewhere too?",
       "yes", CheckAccessOverSeveral},
      {"alias_remap",
       "Do all addresses show the right bytes when one is mapped to another handle, as a merge "
       "does, and back?",
       "yes", CheckAliasRemap},
      {"unmap_several", "Does one cuMemUnmap take several adjacent mappings?", "yes",
       CheckUnmapSeveral},
      {"unmap_part", "Is unmapping a part of a mapping refused?", "yes: INVALID_VALUE",
       CheckUnmapPart},

      {"struct_layout", "Does the driver use the structures as laid out in this build's cuda.h?",
       "yes", CheckStructLayout},

      {"mapped_context", "Which context does a pointer to mapped memory tell?", "none (NULL)",
       CheckMappedContext},
      {"ipc_capable", "Which memory is legacy-IPC capable?",
       "cuMemAlloc memory may be; mapped memory is not", CheckIpcCapable},
      {"buffer_id", "Does a new mapping at an old address have a new BUFFER_ID?", "yes",
       CheckBufferId},

      {"capture_relaxed_scope",
       "Do Weir's slow paths leave a capture alone when the thread is in relaxed mode?",
       "yes, every call succeeds and the capture survives, from any thread", CheckCaptureRelaxed},
      {"capture_table", "Which calls does a capture forbid, in which mode, in which thread?",
       "the table of entry_points.inc: see 'expected' in the detail", CheckCaptureTable},

      {"mapping_latency", "What do create, map, access, unmap and release cost?",
       "create 29 us + 1/MiB, map 4, access 25 + 3/handle, unmap 20/handle, release 20; within 3x",
       CheckMappingLatency},
      {"classic_latency", "What do cuMemAlloc and cuMemFree cost?",
       "alloc 200 us + 1/MiB, free 100 us; within 3x", CheckClassicLatency},
      {"host_latency", "What does pinned memory cost?", "200 us + 100 us/MiB; within 3x",
       CheckHostLatency},
      {"event_latency", "What do the calls of the free path cost?",
       "at most 3 us each (the model says 1, or 0.05 for look-ups)", CheckEventLatency},
      {"stitch_latency", "What do further addresses for 1, 16 and 256 granules cost?",
       "as the cost model says, within 3x", CheckStitchLatency},
      {"merge_latency", "What does merging two granules cost?",
       "as the cost model says, without waits at most 3x", CheckMergeLatency},
      {"stitched_bandwidth", "How fast is memory stitched of granules, beside one handle?",
       "nothing: a lower ratio is a price of stitching", CheckStitchedBandwidth},

      {"weir_tight", "Does Weir keep contents while it stitches and merges (mode:tight)?", "yes",
       CheckWeirTight},
      {"weir_serving",
       "Does Weir keep contents while blocks share granules at their ends (mode:serving)?", "yes",
       CheckWeirServing},

      {"context_event_covers",
       "Does cuCtxRecordEvent cover non-blocking, blocking, per-thread and legacy streams?", "yes",
       CheckContextEventCovers},
      {"context_event_after_launch",
       "Does a context event cover work whose launch another thread has seen return?", "yes",
       CheckContextEventAfterLaunch},
      {"unmap_waits", "Does cuMemUnmap wait for a running kernel?",
       "not to be relied on: Weir proves completion first", CheckUnmapWaits},
      {"alias_map_beside_work",
       "May memory get a further address while queued work uses it, and does later work of the "
       "stream see its bytes there?",
       "yes; it may wait", CheckAliasMapBesideWork},
      {"alias_unmap_beside_work",
       "Does unmapping one alias leave work alone that uses only another?", "yes; it may wait",
       CheckAliasUnmapBesideWork},
      {"release_waits", "Does cuMemRelease of the last reference wait for a running kernel?",
       "not to be relied on: Weir proves completion first", CheckReleaseWaits},
      {"free_waits", "Does cuMemFree wait for a kernel on a non-blocking stream?",
       "yes (the simulated device does; Weir frees only what is complete)", CheckFreeWaits},
      {"alloc_waits", "Does cuMemAlloc wait for a running kernel?", "no", CheckAllocWaits},
      {"host_free_waits", "Does cuMemFreeHost wait for a running kernel?", "not to be relied on",
       CheckHostFreeWaits},
  };
  return checks;
}

}  // namespace weir::gpu_check
