# SPDX-License-Identifier: Apache-2.0
"""Reads of objects that lie in this node's own segment: by copy, without the transport.

The master is asked where the objects lie, which leases them like a get. Those in our segment are
copied from our own mapping of it; its pages come to be mapped as they are read, many at a time, so
that nobody pays for a segment of which little is read here.

A lease keeps an object where it is only for a time that we are not told; what was copied later than
LEASE_S after the question is read once more by the transport. Whatever else may happen to bytes in
that memory, the frame of the object shows it above.
"""

import ctypes
import errno
import mmap
import threading
import time

# Below the shortest lease that a master should give (docs/mooncake.md).
LEASE_S = 0.5
# Marks the length of an object that was read here; wire.h knows it too.
READ_HERE = 1 << 62
PROT_READ = 1


class Mapping:
    """The memory of a segment, here. For reading only, so that no fault of ours damages what the
    pool holds. Unmapped when nobody reads from it any more."""

    def __init__(self, libc, fd, size):
        self.libc = libc
        self.size = size
        self.address = libc.mmap(None, size, PROT_READ, mmap.MAP_SHARED, fd, 0)
        if self.address in (None, ctypes.c_void_p(-1).value):
            self.address = None
            code = ctypes.get_errno()
            raise OSError(code, f"the segment cannot be mapped: {errno.errorcode.get(code, code)}")

    def __del__(self):
        if self.address is not None:
            self.libc.munmap(self.address, self.size)


class LocalReads:
    def __init__(self):
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.libc.mmap.restype = ctypes.c_void_p
        self.libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int,
                                   ctypes.c_int, ctypes.c_long]
        self.libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        self.lock = threading.Lock()
        self.generation = -1
        # (our mapping, where the pool's addresses of it begin, and end, the pool's name of the
        # process that gives the memory); None: it is not in the pool.
        self.place = None

    def move(self, generation, fd, size, base, endpoint):
        """False if a newer word of it is known: two threads may bring them."""
        with self.lock:
            if generation <= self.generation:
                return False
            self.generation = generation
            self.place = None
            if base != 0:
                self.place = (Mapping(self.libc, fd, size), base, base + size, endpoint)
            return True

    def read(self, found, keys, addresses, lengths, until):
        """The code of each object: READ_HERE + its length, its length alone if that is another one
        than was asked for, None if it is not to be read here. `found` is the master's answer, which
        is good `until` then."""
        place = self.place
        if place is None:
            return [None] * len(keys)
        return [copy(place, found.get(key, ()), pieces, sizes, until)
                for key, pieces, sizes in zip(keys, addresses, lengths)]


def copy(place, replicas, pieces, sizes, until):
    mapping, base, end, endpoint = place
    for replica in replicas:
        if not replica.is_memory_replica() or replica.status.name != "COMPLETE":
            continue
        there = replica.get_memory_descriptor().buffer_descriptor
        first, size = there.buffer_address, there.size
        if there.transport_endpoint != endpoint or first < base or first + size > end:
            continue
        if size != sum(sizes):
            return size
        source = mapping.address + first - base
        for piece, length in zip(pieces, sizes):
            ctypes.memmove(piece, source, length)
            source += length
        return READ_HERE + size if time.monotonic() < until else None
    return None
