"""Which tests an allocator fails, and why: all of them. A test that is listed and passes is a failure too."""

from __future__ import annotations

# (class, test, allocators): why
EXPECTED_FAILURES: dict[tuple[str, str, tuple[str, ...]], str] = {
    ("TestMemPool", "test_mempool_no_split", ("expandable",)):
        "PyTorch's expandable segments are split in pools with no_split too",
    ("TestMemPool", "test_nccl_mem_alloc_addresses_in_random_order", ("native", "expandable", "weir")):
        "torch 2.11 reuses memory by address; by the order in which it came since a later version",
    ("TestMemPool", "test_graph_capture_reclaim_shared_pool", ("native", "expandable")):
        "torch 2.11 frees what a capture freed not at its end (pytorch/pytorch#175560)",
    ("TestMemPool", "test_graph_capture_reclaim_2_streams", ("weir",)):
        "Weir reuses what a capture freed on several streams after its end, whatever that setting says",
    ("TestMemPool", "test_graph_capture_reclaim_4_streams", ("weir",)):
        "as with 2 streams",
    ("TestPinnedReports", "test_report_29_pinned_memory_costs_little_more_than_was_asked_for", ("weir",)):
        "pinned memory is PyTorch's own until Weir's pool of it is there",
}


def reason(case: str, test: str, allocator: str) -> str | None:
    """Why the test is expected to fail with the allocator; None if it is not."""
    for (listed_case, listed_test, allocators), why in EXPECTED_FAILURES.items():
        if (listed_case, listed_test) == (case, test) and allocator in allocators:
            return why
    return None
