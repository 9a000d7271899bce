"""A command under pottery's Redlock: PORT,PORT,... NAME COMMAND...; without arguments it only starts."""
import subprocess, sys
import redis
from pottery import Redlock

if len(sys.argv) > 1:
    masters = {redis.Redis(port=int(port)) for port in sys.argv[1].split(",")}
    with Redlock(key=sys.argv[2], masters=masters, auto_release_time=30):
        sys.exit(subprocess.call(sys.argv[3:]))
