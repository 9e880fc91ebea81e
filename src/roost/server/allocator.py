"""Gives the memory of large bodies back to the system.

glibc raises the size from which it does that by itself to the size of the largest block that was freed, up to 32 MB.
After the first large body all others would be kept: a host that had to do with many would never shrink again.
"""

from __future__ import annotations

import ctypes

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
THRESHOLD = 2 * 1024 * 1024
"""Bytes from which a block is returned as soon as it is freed. Getting such a block costs a page fault per 4 KiB."""
KEPT = 16 * 1024 * 1024
"""Bytes that are kept for smaller blocks, so that ordinary requests cause no page faults."""


def return_large_blocks() -> None:
    """Fix the thresholds, where the C library is glibc."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, THRESHOLD)
        mallopt(M_TRIM_THRESHOLD, KEPT)
