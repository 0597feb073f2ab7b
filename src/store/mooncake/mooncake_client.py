# SPDX-License-Identifier: Apache-2.0
"""The calls into Mooncake: a client of one master, for whole batches.

What Mooncake answers is passed on, but where its answer is known not to be the truth.
"""

import ctypes
import errno
import importlib.metadata
import itertools
import mmap
import os
import re
import socket
import sys
import threading
import time

import local_reads

PACKAGE = "mooncake-transfer-engine-non-cuda"
PACKAGES = re.compile(r"mooncake-transfer-engine(-.*)?$")
VERSION_MIN = "0.3.13.post1"
INSTALL = "install it with scripts/install-deps --for mooncake"

# Mooncake's codes that are answered to here.
INTERNAL, INVALID, NOT_MINE, TRANSFER_FAILED = -1, -600, -601, -800
NOT_READY, EXISTS_ALREADY, LEASE_EXPIRED = -703, -705, -707
MASTER_CODES_BELOW = -900  # this and below, to -999: the master did not answer

FROM_START = [0]  # where the one piece of an object begins in it

# How long a put waits for another writer of its key before it takes the key for a dead writer's.
SETTLE_S = 2.0
REPLACE_AGAIN_MAX = 3
REACH_S = 2.0
REACH_AGAIN_S = 0.25
POPULATE_BYTES = 64 << 20
MADV_POPULATE_WRITE = 23

# Without these a call waits 30 to 60 seconds for a peer that is frozen. What the operator has set
# in the environment stands.
TIME_LIMITS = {
    "MC_RPC_TIMEOUT_MS": "1000",
    "MC_RPC_CONNECT_TIMEOUT_MS": "1000",
    "MC_TCP_PROGRESS_TIMEOUT_SEC": "2",
    "MC_TCP_STATUS_TIMEOUT_SEC": "2",
    "MC_HANDSHAKE_CONNECT_TIMEOUT": "2",
}


class Refusal(Exception):
    """Why this process cannot serve, in words for the operator."""


def version_parts(text):
    match = re.match(r"(\d+)\.(\d+)\.(\d+)(?:\.post(\d+))?", text)
    return tuple(int(part or 0) for part in match.groups()) if match else (0, 0, 0, 0)


def installed_version():
    for package in importlib.metadata.distributions():
        name = package.metadata["Name"] or ""
        if PACKAGES.match(name.lower().replace("_", "-")):
            return name, package.version
    return PACKAGE, ""


def load_store():
    """The module mooncake.store; Refusal if it is missing, too old, or cannot be loaded."""
    name, version = installed_version()
    if version and version_parts(version) < version_parts(VERSION_MIN):
        raise Refusal(
            f"{name} is {version}; allowed: {VERSION_MIN} and later; {INSTALL}")
    try:
        import mooncake.store as module  # pylint: disable=import-outside-toplevel
    except ModuleNotFoundError as error:
        raise Refusal(
            f"{sys.executable} has no package {PACKAGE} ({error}); {INSTALL}") from error
    except ImportError as error:
        missing = re.search(r"(\S+\.so\S*): cannot open shared object file", str(error))
        if missing:
            raise Refusal(
                f"the system library {missing.group(1)} is missing, which {name} needs; "
                f"{INSTALL}") from error
        raise Refusal(f"{name} {version} cannot be loaded: {error}") from error
    if not hasattr(module.MooncakeDistributedStore, "batch_put_session_start"):
        raise Refusal(
            f"{name} {version} has no put sessions; allowed: {VERSION_MIN} and later; {INSTALL}")
    return module


def reach(master, limit_s):
    """Our own address on the way to the master. Mooncake's setup() waits 90 s for a silent one."""
    host, _, port = master.rpartition(":")
    with socket.create_connection((host.strip("[]"), int(port)), limit_s) as connection:
        return connection.getsockname()[0]


def in_words(error):
    """Of an exception, for somebody who does not know Python."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    if "Too many open files" in text:
        text += " (raise the limit, ulimit -n)"
    return text


def setup_doubts(options):
    """What may be wrong when a set-up hangs, fails or ends this process; Mooncake does not say."""
    names = [name for name in ("protocol", "metadata", "device") if options[name]]
    given = ", ".join(f"{name}={options[name]}" for name in names)
    return (f"what listens at {options['master']} may not be a Mooncake master, or one of {given} "
            "may be wrong")


class Client:
    """The calls into Mooncake, for whole batches."""

    def __init__(self, options, say):
        self.master = options["master"]
        for name, value in TIME_LIMITS.items():
            os.environ.setdefault(name, value)
        if options["connection_pool"] == "1":
            os.environ["MC_TCP_ENABLE_CONNECTION_POOL"] = "1"
        say("loading the package")
        module = load_store()
        say(f"connecting to the Mooncake master at {self.master}")
        try:
            address = reach(self.master, REACH_S)
        except (socket.gaierror, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or "no host has such a name"
            raise Refusal(
                f"the Mooncake master's address {self.master} cannot be resolved: {reason}; "
                "correct it") from error
        except OSError as error:
            raise Refusal(
                f"the Mooncake master at {self.master} cannot be reached: {in_words(error)}; start "
                "it, or correct the address") from error
        self.store = module.MooncakeDistributedStore()
        doubts = setup_doubts(options)
        say(f"setting up a client; {doubts}")
        code = self.store.setup(
            options["host"] or address, options["metadata"], 0, 0, options["protocol"],
            options["device"], self.master)
        if code != 0:
            raise Refusal(
                f"Mooncake refuses to set up a client: code {code}; {doubts}; its log has more "
                "(option log)")
        self.module = module
        self.options = options
        self.config = self.config_of([])
        self.local_reads = local_reads.LocalReads()
        self.hostname = self.store.get_hostname()
        self.is_master_in_doubt = False
        self.maps = []
        self.scratch_lock = threading.Lock()
        self.scratch = None

    def config_of(self, preferred_segments):
        config = self.module.ReplicateConfig()
        config.replica_num = int(self.options["replicas"])
        if self.options["soft_pin"] == "1":
            config.soft_pin_action = self.module.SoftPinAction.ENABLE
        if preferred_segments:
            config.preferred_segments = preferred_segments
        return config

    def place_segment(self, generation, fd, size, base, names):
        """Where this node's segment is in the pool (base 0: it is not), for puts and reads."""
        name, _, endpoint = names.partition("\n")
        if not self.local_reads.move(generation, fd, size, base, endpoint):
            return 0
        is_preferred = base != 0 and self.options["prefer_local"] == "1"
        # Another object: calls that are under way read the old one.
        self.config = self.config_of([name] if is_preferred else [])
        return 0

    def map(self, fd, size, is_populated):
        """The address at which the memory stands here; negative if Mooncake does not take it."""
        memory = mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        self.maps.append(memory)
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        code = self.store.register_buffer(address, size)
        if code != 0:
            return code
        if is_populated:
            threading.Thread(target=populate, args=(address, size), daemon=True).start()
        return address

    def is_master_away(self):
        """After a call has failed for want of a master: a call would wait seconds, a look none."""
        if not self.is_master_in_doubt:
            return False
        try:
            reach(self.master, REACH_AGAIN_S)
            return False
        except OSError:
            return True

    def note(self, codes):
        self.is_master_in_doubt = min(codes, default=0) <= MASTER_CODES_BELOW and any(
            -1000 < code <= MASTER_CODES_BELOW for code in codes)
        return codes

    def exists(self, keys):
        return self.store.batch_is_exist(keys)

    def get(self, keys, addresses, lengths, parts):
        if self.local_reads.place is None:
            return self.get_by_transport(keys, addresses, lengths, parts)
        until = time.monotonic() + local_reads.LEASE_S
        found = self.store.batch_get_replica_desc(keys)
        if not found:
            # No answer looks like no object.
            self.is_master_in_doubt = True
            if self.is_master_away():
                return [MASTER_CODES_BELOW] * len(keys)
        places, sizes = split(addresses, parts), split(lengths, parts)
        codes = self.local_reads.read(found, keys, places, sizes, until)
        rest = [i for i, code in enumerate(codes) if code is None]
        if rest:
            answers = self.get_by_transport(
                [keys[i] for i in rest], list(itertools.chain(*(places[i] for i in rest))),
                list(itertools.chain(*(sizes[i] for i in rest))), parts)
            for i, answer in zip(rest, answers):
                codes[i] = answer
        return codes

    def get_by_transport(self, keys, addresses, lengths, parts):
        codes = self.get_once(keys, addresses, lengths, parts)
        # The batch took longer than the lease that it began with; its bytes may be anybody's.
        if LEASE_EXPIRED in codes:
            late = [i for i, code in enumerate(codes) if code == LEASE_EXPIRED]
            addresses, lengths = split(addresses, parts), split(lengths, parts)
            again = self.get_once(
                [keys[i] for i in late], list(itertools.chain(*(addresses[i] for i in late))),
                list(itertools.chain(*(lengths[i] for i in late))), parts)
            for i, code in zip(late, again):
                codes[i] = code
        return codes

    def get_once(self, keys, addresses, lengths, parts):
        if parts == 1 and len(set(keys)) == len(keys):
            return self.store.batch_get_into(keys, addresses, lengths)
        return in_waves(self.get_wave, keys, split(addresses, parts), split(lengths, parts))

    def get_wave(self, keys, addresses, lengths):
        codes = self.store.batch_get_into_multi_buffers(keys, addresses, lengths)
        # For several buffers an object that is too short looks like a failed transfer.
        failed = [i for i, code in enumerate(codes) if code == TRANSFER_FAILED]
        for i in failed[:16]:
            size = self.store.get_size(keys[i])
            if size >= 0 and size != sum(lengths[i]):
                codes[i] = size
        return codes

    def put(self, keys, addresses, lengths, parts):
        return in_waves(self.put_wave, keys, split(addresses, parts), split(lengths, parts))

    def put_wave(self, keys, addresses, lengths):
        """As batch_put_from, which answers 0 for a key that somebody else has, or is writing."""
        store = self.store
        codes = store.batch_put_session_start(
            keys, [sum(pieces) for pieces in lengths], self.config)
        if not any(codes):
            # As nearly always: nothing to pick out.
            return self.transfer(keys, addresses, lengths)
        mine = [i for i, code in enumerate(codes) if code == 0]
        if mine:
            moved = self.transfer(
                [keys[i] for i in mine], [addresses[i] for i in mine], [lengths[i] for i in mine])
            for i, code in zip(mine, moved):
                codes[i] = code
        doubtful = [i for i, code in enumerate(codes) if code in (EXISTS_ALREADY, NOT_MINE)]
        if doubtful:
            self.settle(keys, addresses, lengths, doubtful, codes)
        return codes

    def transfer(self, keys, addresses, lengths):
        """Of keys whose session has been started, and which it ends."""
        store = self.store
        try:
            codes = store.batch_put_from_multi_buffer_ranges(
                keys, addresses, lengths,
                [[0, *itertools.accumulate(pieces[:-1])] if len(pieces) > 1 else FROM_START
                 for pieces in lengths])
        except BaseException:
            store.batch_put_session_revoke(keys)
            raise
        if min(codes) >= 0:
            return store.batch_put_session_end(keys)
        store.batch_put_session_revoke([key for key, code in zip(keys, codes) if code < 0])
        whole = [i for i, code in enumerate(codes) if code >= 0]
        if whole:
            for i, code in zip(whole, store.batch_put_session_end([keys[i] for i in whole])):
                codes[i] = code
        return codes

    def settle(self, keys, addresses, lengths, doubtful, codes):
        """Puts of keys that somebody else has: fine if whole; if being written, soon whole; if
        neither for long, its writer is dead, and Mooncake would keep the key blocked."""
        pause, until = 0.001, time.monotonic() + SETTLE_S
        while True:
            answers = self.store.batch_is_exist([keys[i] for i in doubtful])
            for i, answer in zip(doubtful, answers):
                codes[i] = 0 if answer == 1 else answer or NOT_READY
            doubtful = [i for i in doubtful if codes[i] == NOT_READY]
            if not doubtful:
                return
            if time.monotonic() >= until:
                break
            time.sleep(pause)
            pause = min(2 * pause, 0.05)
        for i in doubtful:
            codes[i] = self.take_over(keys[i], addresses[i], lengths[i])

    def replace(self, keys, addresses, lengths, parts):
        return in_waves(self.replace_wave, keys, split(addresses, parts), split(lengths, parts))

    def replace_wave(self, keys, addresses, lengths):
        """Not by upsert: of two at once each would write into the memory of the other, and what is
        there in the end could be of both. Of two puts one writes."""
        self.remove(keys)
        codes = self.put_wave(keys, addresses, lengths)
        for _ in range(REPLACE_AGAIN_MAX):
            # What another one removes while it is being put ends so.
            lost = [i for i, code in enumerate(codes) if code == INVALID]
            if not lost:
                break
            again = self.put_wave([keys[i] for i in lost], [addresses[i] for i in lost],
                                  [lengths[i] for i in lost])
            for i, code in zip(lost, again):
                codes[i] = code
        return codes

    def take_over(self, key, addresses, lengths):
        """An upsert, the only call that repairs a key at once whose writer has died."""
        if len(addresses) == 1:
            return self.store.upsert_from(key, addresses[0], lengths[0], self.config)
        # There is no upsert of several pieces. This is rare enough for a copy.
        with self.scratch_lock:
            size = sum(lengths)
            scratch = self.scratch_memory(size)
            offset = 0
            for piece, length in zip(addresses, lengths):
                ctypes.memmove(scratch + offset, piece, length)
                offset += length
            return self.store.upsert_from(key, scratch, size, self.config)

    def scratch_memory(self, size):
        if self.scratch is None or len(self.scratch) < size:
            if self.scratch is not None:
                self.store.unregister_buffer(
                    ctypes.addressof(ctypes.c_char.from_buffer(self.scratch)))
            self.scratch = mmap.mmap(-1, size)
            self.store.register_buffer(
                ctypes.addressof(ctypes.c_char.from_buffer(self.scratch)), size)
        return ctypes.addressof(ctypes.c_char.from_buffer(self.scratch))

    def remove(self, keys):
        return self.store.batch_remove(keys, True)

    def clear(self, prefix):
        return [min(0, self.store.remove_by_regex("^" + re.escape(prefix) + ".*", True))]


def split(numbers, parts):
    return [numbers[i:i + parts] for i in range(0, len(numbers), parts)]


def in_waves(call, keys, addresses, lengths):
    """Calls with each key once at a time: of two equal ones in a batch Mooncake puts the second and
    answers 0 for both, or gets one and answers for both."""
    if len(set(keys)) == len(keys):
        return call(keys, addresses, lengths)
    codes = [INTERNAL] * len(keys)
    rest = list(range(len(keys)))
    while rest:
        wave, later, seen = [], [], set()
        for i in rest:
            (later if keys[i] in seen else wave).append(i)
            seen.add(keys[i])
        answers = call([keys[i] for i in wave], [addresses[i] for i in wave],
                       [lengths[i] for i in wave])
        for i, answer in zip(wave, answers):
            codes[i] = answer
        rest = later
    return codes


def populate(address, size):
    """Has the kernel provide the pages now: while a transfer meets them one by one it is slow."""
    libc = ctypes.CDLL(None, use_errno=True)
    for offset in range(0, size, POPULATE_BYTES):
        length = min(POPULATE_BYTES, size - offset)
        if libc.madvise(ctypes.c_void_p(address + offset), ctypes.c_size_t(length),
                        MADV_POPULATE_WRITE) != 0 and ctypes.get_errno() != errno.EINTR:
            return  # an older kernel, or memory is short: then on first use
