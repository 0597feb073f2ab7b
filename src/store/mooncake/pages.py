# SPDX-License-Identifier: Apache-2.0
"""Pages of memory that is mapped: provided now, because a transfer that meets them one by one is
slow."""

import ctypes
import errno

STEP_BYTES = 64 << 20
# Of madvise.
TO_READ, TO_WRITE = 22, 23


def populate(address, size, advice=TO_WRITE):
    libc = ctypes.CDLL(None, use_errno=True)
    for offset in range(0, size, STEP_BYTES):
        length = min(STEP_BYTES, size - offset)
        if libc.madvise(ctypes.c_void_p(address + offset), ctypes.c_size_t(length),
                        advice) != 0 and ctypes.get_errno() != errno.EINTR:
            return  # an older kernel, or memory is short: then on first use
