"""A command under redis-py's Lock: PORT NAME COMMAND...; without arguments it only starts."""
import subprocess, sys
import redis

if len(sys.argv) > 1:
    with redis.Redis(port=int(sys.argv[1])).lock(sys.argv[2], timeout=30):
        sys.exit(subprocess.call(sys.argv[3:]))
