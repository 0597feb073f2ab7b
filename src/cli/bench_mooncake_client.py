# SPDX-License-Identifier: Apache-2.0
"""The limit of `tiercel bench mooncake`: Mooncake's own Python client, called directly.

arguments: master host metadata protocol device connection_pool bytes prefix
Says `ready`, then answers `put|get|remove SIZE COUNT` with the seconds that the one call took, or
with `failed: …`. Everything that the call is given is made before the time is taken. Ends with its
input, without any tear-down.
"""

import ctypes
import gc
import mmap
import os
import socket
import sys
import time

# As the sidecar sets them.
TIME_LIMITS = {
    "MC_RPC_TIMEOUT_MS": "1000",
    "MC_RPC_CONNECT_TIMEOUT_MS": "1000",
    "MC_TCP_PROGRESS_TIMEOUT_SEC": "2",
    "MC_TCP_STATUS_TIMEOUT_SEC": "2",
    "MC_HANDSHAKE_CONNECT_TIMEOUT": "2",
}


def start(master, host, metadata, protocol, device, connection_pool, size):
    for name, value in TIME_LIMITS.items():
        os.environ.setdefault(name, value)
    if connection_pool == "1":
        os.environ["MC_TCP_ENABLE_CONNECTION_POOL"] = "1"
    import mooncake.store as module  # pylint: disable=import-outside-toplevel
    if not host:
        address, _, port = master.rpartition(":")
        with socket.create_connection((address.strip("[]"), int(port)), 10) as connection:
            host = connection.getsockname()[0]
    store = module.MooncakeDistributedStore()
    code = store.setup(host, metadata, 0, 0, protocol, device, master)
    if code != 0:
        raise RuntimeError(f"setup answers {code}")
    memory = mmap.mmap(-1, size)
    ctypes.memset(ctypes.addressof(ctypes.c_char.from_buffer(memory)), 1, size)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    code = store.register_buffer(address, size)
    if code != 0:
        raise RuntimeError(f"register_buffer answers {code}")
    return store, module.ReplicateConfig(), memory, address


def timed(call, *arguments):
    begun = time.perf_counter()
    codes = call(*arguments)
    return time.perf_counter() - begun, codes


def answer(store, config, base, prefix, line):
    verb, size, count = line.split()
    size, count = int(size), int(count)
    keys = [f"{prefix}{size:032x}{i:032x}" for i in range(count)]
    addresses = [base + i * size for i in range(count)]
    sizes = [size] * count
    if verb == "put":
        seconds, codes = timed(store.batch_put_from, keys, addresses, sizes, config)
        good = all(code == 0 for code in codes)
    elif verb == "get":
        seconds, codes = timed(store.batch_get_into, keys, addresses, sizes)
        good = codes == sizes
    else:
        seconds, codes = timed(store.batch_remove, keys, True)
        good = all(code in (0, -704) for code in codes)
    return repr(seconds) if good else f"failed: {verb} answers {sorted(set(codes))[:4]}"


def main():
    # Standard output is for answers only, whatever the package has to say.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    *options, size, prefix = sys.argv[1:]
    try:
        store, config, memory, base = start(*options, int(size))
    except Exception as error:  # pylint: disable=broad-except
        print(f"failed: {error!r}", file=answers, flush=True)
        return
    gc.freeze()
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        print(answer(store, config, base, prefix, line), file=answers, flush=True)
    del memory


main()
os._exit(0)
