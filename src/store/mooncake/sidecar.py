# SPDX-License-Identifier: Apache-2.0
"""The Mooncake client of one Tiercel store, in a process of its own.

Mooncake's calls may block for a minute and its client may crash; here they block and crash nobody
else. libtiercel carries this program inside, starts it (src/store/mooncake/sidecar.h) and talks to
it over a Unix socket of whole messages. Payload never passes through here: the two processes have
the memory that holds it in common, and Mooncake reads and writes it where it lies.

A message is a header (kind, count, id, extra), then count numbers or keys; the kinds stand below
and in wire.h. Any of the threads takes the next request; replies come in any order, by id. Every
code is passed on as Mooncake gave it. What this process does not survive, its parent sees as the
end of the socket; it never calls close(): a client without a segment leaves nothing behind.

In the role `segment` the program gives memory of this node to the pool and serves nothing, so that
no request can make it wait, and no deadline kills it (run_segment).
"""

import array
import contextlib
import gc
import os
import signal
import socket
import struct
import sys
import threading
import time
import traceback

import mooncake_client
import segment

HEADER = struct.Struct("=IIQQ")
MESSAGE_BYTES_MAX = 1 << 18
OBJECT_KEY_BYTES = 96

# Requests.
MAP, EXISTS, GET, PUT, REPLACE, REMOVE, CLEAR, SEGMENT = range(1, 9)
# What comes back.
STAGE, UP, FAILED, REPLY, NOTE = range(1, 6)

# How long the end of a segment may take.
UNMOUNT_S = 5


def give_segment(channel, client):
    """Gives the memory of the first message to the pool until the parent says nothing more, or
    SIGTERM comes; then takes it back, so that nobody looks for anything here any more."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    own = segment.Segment(client.store, client.config_of)
    try:
        message, ancillary, _, _ = channel.recvmsg(
            MESSAGE_BYTES_MAX, socket.CMSG_SPACE(struct.calcsize("i")))
        if not message:
            return
        fd = struct.unpack("i", ancillary[0][2])[0]
        _, _, request, _ = HEADER.unpack_from(message)
        size, is_populated = struct.unpack_from("=QQ", message, HEADER.size)
        say_to(channel, STAGE, f"giving {size >> 20} MiB to the pool")
        endpoint = own.mount(fd, size, client.options["protocol"], client.options["device"])
        say_to(channel, UP, f"{client.hostname}\n{endpoint}")
        channel.sendall(HEADER.pack(REPLY, 1, request, 0) + struct.pack("=q", own.base))
        if is_populated:
            threading.Thread(
                target=mooncake_client.populate, args=(own.base, size), daemon=True).start()
        while channel.recv(MESSAGE_BYTES_MAX):
            pass
    finally:
        # Whatever hangs in it, and whether or not Python gets to run.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(UNMOUNT_S)
        own.unmount()


def run_segment(channel, client):
    """Does not return."""
    try:
        give_segment(channel, client)
    except segment.MountFailed as trouble:
        say_to(channel, FAILED, str(trouble))
    except (ConnectionError, SystemExit):
        pass  # the parent has died, or wants the end
    sys.stderr.flush()
    os._exit(0)  # not by way of the client's destructor, which waits for seconds


class Server:
    def __init__(self, channel, client):
        self.channel = channel
        self.client = client

    def serve(self):
        # Memory of its own for each thread: a new piece of this size for each message would be
        # mapped and unmapped each time.
        memory = bytearray(MESSAGE_BYTES_MAX)
        buffers = [memory]
        view = memoryview(memory)
        room = socket.CMSG_SPACE(struct.calcsize("i"))
        while True:
            try:
                size, ancillary, _, _ = self.channel.recvmsg_into(buffers, room)
            except ConnectionError:
                size = 0  # the parent has died with replies unread
            if size == 0:
                os._exit(0)
            message = view[:size]
            kind, count, request, extra = HEADER.unpack_from(message)
            started = time.monotonic_ns()
            try:
                work = self.work_of(kind, count, extra, message, ancillary)
                # What is reported is the time within Mooncake, not that of unpacking.
                started = time.monotonic_ns()
                codes = self.client.note(work())
            except Exception:  # pylint: disable=broad-except
                # One bad request must not leave the parent waiting.
                print_trace()
                codes = [mooncake_client.INTERNAL] * max(count, 1)
            reply = HEADER.pack(REPLY, len(codes), request, time.monotonic_ns() - started)
            try:
                self.channel.sendall(reply + array.array("q", codes).tobytes())
            except ConnectionError:
                os._exit(0)

    def work_of(self, kind, count, extra, message, ancillary):
        """A function that does what the message asks for and returns the codes."""
        if kind == MAP:
            fd = struct.unpack("i", ancillary[0][2])[0]
            size, is_populated = struct.unpack_from("=QQ", message, HEADER.size)
            return lambda: self.map(fd, size, is_populated != 0)
        client = self.client
        if kind == SEGMENT:
            size, base = struct.unpack_from("=QQ", message, HEADER.size)
            names = str(message[HEADER.size + 16:], "utf-8")
            fd = struct.unpack("i", ancillary[0][2])[0] if ancillary else -1
            return lambda: self.place_segment(extra, fd, size, base if ancillary else 0, names)
        if kind == CLEAR:
            prefix = str(message[HEADER.size:], "ascii")
            call = lambda: client.clear(prefix)
        elif kind in (EXISTS, REMOVE):
            keys = keys_of(message, HEADER.size, count)
            method = client.exists if kind == EXISTS else client.remove
            call = lambda: method(keys)
        else:
            numbers = count * extra
            addresses = list(struct.unpack_from(f"={numbers}Q", message, HEADER.size))
            lengths = list(struct.unpack_from(f"={numbers}Q", message, HEADER.size + 8 * numbers))
            keys = keys_of(message, HEADER.size + 16 * numbers, count)
            method = {GET: client.get, PUT: client.put, REPLACE: client.replace}[kind]
            call = lambda: method(keys, addresses, lengths, extra)
        no_master = [mooncake_client.MASTER_CODES_BELOW] * max(count, 1)
        return lambda: no_master if client.is_master_away() else call()

    def map(self, fd, size, is_populated):
        try:
            return [self.client.map(fd, size, is_populated)]
        finally:
            os.close(fd)

    def place_segment(self, generation, fd, size, base, names):
        try:
            return [self.client.place_segment(generation, fd, size, base, names)]
        finally:
            if fd >= 0:
                os.close(fd)


def keys_of(message, offset, count):
    text = str(message[offset:], "ascii")
    return [text[i:i + OBJECT_KEY_BYTES] for i in range(0, count * OBJECT_KEY_BYTES,
                                                        OBJECT_KEY_BYTES)]


def print_trace():
    """To the log, if that takes it."""
    with contextlib.suppress(OSError):
        traceback.print_exc()


def say_to(channel, kind, text):
    channel.sendall(HEADER.pack(kind, 0, 0, 0) + text.encode("utf-8", "replace")[:4096])


def log_trouble():
    """Whether the log takes a line; it may be full, and the store works without."""
    try:
        os.write(2, b"the Mooncake client of a Tiercel store starts\n")
        return ""
    except OSError as error:
        return f"its log cannot be written: {mooncake_client.in_words(error)}"


def start(channel):
    options = dict(
        line.split("=", 1) for line in channel.recv(MESSAGE_BYTES_MAX).decode().splitlines())
    if trouble := log_trouble():
        say_to(channel, NOTE, trouble)
    client = mooncake_client.Client(options, lambda text: say_to(channel, STAGE, text))
    if options["role"] == "segment":
        run_segment(channel, client)
    gc.freeze()
    # A thread that comes back from a transfer must not wait 5 ms for one that unpacks a request.
    sys.setswitchinterval(0.0005)
    server = Server(channel, client)
    for _ in range(int(options["threads"]) - 1):
        threading.Thread(target=server.serve, daemon=True).start()
    say_to(channel, UP, client.hostname)
    return server


def run(channel):
    try:
        server = start(channel)
    except mooncake_client.Refusal as refusal:
        say_to(channel, FAILED, str(refusal))
        return
    except BaseException as error:  # pylint: disable=broad-except
        say_to(channel, FAILED, "the Mooncake client could not be set up: "
               + mooncake_client.in_words(error))
        print_trace()
        return
    server.serve()


if __name__ == "__main__":
    run(globals()["channel"])
    # Native threads are alive and the memory is mapped: no tear-down, just the end.
    os._exit(0)
