# SPDX-License-Identifier: Apache-2.0
"""A TCP line that can be slow or dead: forwards connections, obeys lines on standard input.

usage: tcp_proxy.py HOST PORT    prints the port on 127.0.0.1 at which it listens

`delay MS` holds back what it forwards for so long, `stall` forwards nothing more and keeps every
connection open, `go` ends both. Each line is answered by `ok`; the end of the input ends it.
"""

import os
import socket
import sys
import threading
import time

PIECE_BYTES = 1 << 16


class Line:
    def __init__(self):
        self.delay_s = 0.0
        self.runs = threading.Event()
        self.runs.set()

    def forward(self, source, sink):
        try:
            while piece := source.recv(PIECE_BYTES):
                time.sleep(self.delay_s)
                self.runs.wait()
                sink.sendall(piece)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            for end in (source, sink):
                end.close()

    def serve(self, listener, address):
        while True:
            near, _ = listener.accept()
            try:
                far = socket.create_connection(address, 5)
            except OSError:
                near.close()
                continue
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self.forward, args=(source, sink), daemon=True).start()

    def obey(self, words):
        if words[0] == "delay":
            self.delay_s = float(words[1]) / 1000
        elif words[0] == "stall":
            self.runs.clear()
        elif words[0] == "go":
            self.delay_s = 0.0
            self.runs.set()
        else:
            return f"there is no '{words[0]}'"
        return "ok"


def main():
    line = Line()
    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=line.serve, args=(listener, (sys.argv[1], int(sys.argv[2]))),
                     daemon=True).start()
    print(listener.getsockname()[1], flush=True)
    for order in sys.stdin:
        print(line.obey(order.split()), flush=True)
    os._exit(0)  # threads may wait for ever


if __name__ == "__main__":
    main()
