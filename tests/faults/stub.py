"""What the launcher starts as a rank; the rank itself is forked by `nursery.py`. Imports little, for it starts
often.
"""

import json
import os
import resource
import signal
import socket
import sys

said = {"environment": dict(os.environ), "folder": os.getcwd(), "arguments": sys.argv[1:]}
connection = socket.socket(socket.AF_UNIX)
connection.connect(os.environ["FAULT_NURSERY"])
descriptors = [0, 1, 2] + ([int(os.environ["PMI_FD"])] if "PMI_FD" in os.environ else [])
# Its own copy stays open: Hydra kills a process whose channel closes before it ends.
text = json.dumps(said).encode() + b"\n"
connection.sendall(text[socket.send_fds(connection, [text], descriptors) :])
status = connection.recv(4)
status = int.from_bytes(status, "little") if len(status) == 4 else 1 << 8
if os.WIFSIGNALED(status):
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(os.WTERMSIG(status), signal.SIG_DFL) if os.WTERMSIG(status) != signal.SIGKILL else None
    os.kill(os.getpid(), os.WTERMSIG(status))
os._exit(os.waitstatus_to_exitcode(status))
