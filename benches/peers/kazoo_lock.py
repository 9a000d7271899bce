"""A command under kazoo's Lock: HOST:PORT NAME COMMAND...; without arguments it only starts."""
import subprocess, sys
from kazoo.client import KazooClient

if len(sys.argv) > 1:
    client = KazooClient(hosts=sys.argv[1])
    client.start()
    with client.Lock("/bench/" + sys.argv[2]):
        status = subprocess.call(sys.argv[3:])
    client.stop()
    sys.exit(status)
