# SPDX-License-Identifier: Apache-2.0
"""Memory of this node in a Mooncake pool.

The memory is a memfd of our parent's, so it is there whatever happens to the process that gives it
to the pool, and other processes of ours can map it. What lies in it is gone for the pool when that
process ends: the next one gives it as empty space.
"""

import ctypes
import os
import time

# Mooncake places an object by its own rules; we only say where we would like it.
PROBES_MAX = 20
PROBE_PAUSE_S = 0.1
PROBE_BYTES = 64
NO_SPACE = -200


class MountFailed(Exception):
    """Why the memory is not in the pool, in words for the operator."""


class Segment:
    """Ownership: `fd` is borrowed for as long as the segment is mounted."""

    def __init__(self, store, config_of):
        self.store = store
        # From the names of preferred segments to a ReplicateConfig.
        self.config_of = config_of
        self.ids = []
        self.base = 0

    def mount(self, fd, size, protocol, device):
        """Gives the first `size` bytes of the memfd to the pool. Returns what the pool calls the
        process in the addresses of objects; self.base is where the memory stands in them."""
        mounted = self.store.mount_segment(f"/proc/self/fd/{fd}", size, 0, protocol, device)
        if mounted["ret"] != 0:
            raise MountFailed(
                f"Mooncake does not take {size >> 20} MiB of memory as a segment by {protocol}: "
                f"code {mounted['ret']}; for RDMA raise the limit of locked memory (ulimit -l), "
                "the log has more (option log)")
        self.ids = mounted["segment_ids"]
        self.base = mapping_of(fd)
        return self.find_endpoint(fd, size)

    def find_endpoint(self, fd, size):
        """No call tells how addresses in our memory look to others. An object that lies there
        does; its bytes show that we understand the address."""
        config = self.config_of([self.store.get_hostname()])
        buffer = ctypes.create_string_buffer(PROBE_BYTES)
        buffer.raw = os.urandom(PROBE_BYTES)
        address = ctypes.addressof(buffer)
        if self.store.register_buffer(address, PROBE_BYTES) != 0:
            raise MountFailed("Mooncake does not register a buffer of 64 bytes")
        code = 0
        try:
            for _ in range(PROBES_MAX):
                key = "tiercel-segment-" + os.urandom(16).hex()
                code = self.store.put_from(key, address, PROBE_BYTES, config)
                if code == 0:
                    for replica in self.store.get_replica_desc(key):
                        endpoint = self.endpoint_if_ours(replica, fd, size, buffer.raw)
                        if endpoint:
                            self.store.remove(key, True)
                            return endpoint
                    self.store.remove(key, True)
                time.sleep(PROBE_PAUSE_S)
        finally:
            self.store.unregister_buffer(address)
        raise MountFailed(
            f"none of {PROBES_MAX} objects that were put to be in the segment was found there "
            f"(last code {code}{', no space' if code == NO_SPACE else ''})")

    def endpoint_if_ours(self, replica, fd, size, content):
        if not replica.is_memory_replica():
            return ""
        place = replica.get_memory_descriptor().buffer_descriptor
        offset = place.buffer_address - self.base
        if not 0 <= offset <= size - PROBE_BYTES:
            return ""
        return place.transport_endpoint if os.pread(fd, PROBE_BYTES, offset) == content else ""

    def unmount(self):
        """The pool forgets what lies here at once; otherwise it would for seconds name what nobody
        can read."""
        if self.ids:
            self.store.unmount_segment(self.ids)
            self.ids = []


def mapping_of(fd):
    """Where this process has mapped the beginning of the file."""
    inode = str(os.fstat(fd).st_ino)
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        for line in maps:
            span, _, offset, _, number, *_ = line.split()
            if number == inode and int(offset, 16) == 0 and "memfd:" in line:
                return int(span.split("-")[0], 16)
    raise MountFailed("Mooncake has taken the memory and not mapped it")
