# redis-py's locks. "redis_peer.py PORT obey": told what to do line by line: "wait NAME KEY TIMEOUT" acquires and says
# "held NAME"; "try NAME KEY TIMEOUT" does so without waiting, or says "busy NAME"; "release NAME" releases and says
# "released NAME". TIMEOUT is in seconds or "none". "redis_peer.py PORT count KEY FILE TIMES" adds one to the number in
# FILE so often, each time under the lock.

import sys
import threading

from redis import Redis

client = Redis(port=int(sys.argv[1]))
gates = {}
speech = threading.Lock()


def say(text):
    with speech:
        print(text, flush=True)


def hold(how, name, key, timeout, gate):
    try:
        lock = client.lock(key, timeout=None if timeout == "none" else float(timeout))
        if not lock.acquire(blocking=how == "wait"):
            say("busy " + name)
            return
        say("held " + name)
        gate.wait()
        lock.release()
        say("released " + name)
    except Exception as error:
        say("failed %s %r" % (name, error))


def obey():
    for line in sys.stdin:
        words = line.split()
        if words[0] == "release":
            gates[words[1]].set()
            continue
        gate = gates[words[1]] = threading.Event()
        threading.Thread(target=hold, args=(*words, gate), daemon=True).start()


def count(key, path, times):
    for _ in range(int(times)):
        with client.lock(key, timeout=30, sleep=0.005):
            with open(path) as file:
                number = int(file.read())
            with open(path, "w") as file:
                file.write("%d\n" % (number + 1))


if sys.argv[2] == "obey":
    obey()
else:
    count(*sys.argv[3:])
