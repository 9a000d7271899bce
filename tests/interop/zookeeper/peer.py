# kazoo's recipes, told what to do line by line: "KIND NAME PATH" acquires and says "held NAME", "release NAME"
# releases and says "released NAME". KIND is lock, read, write or curator (a lock that minds Curator's nodes too).

import sys
import threading

from kazoo.client import KazooClient

client = KazooClient(hosts=sys.argv[1], timeout=20)
client.start()
gates = {}
speech = threading.Lock()


def say(text):
    with speech:
        print(text, flush=True)


def hold(kind, name, path, gate):
    try:
        if kind == "read":
            lock = client.ReadLock(path)
        elif kind == "write":
            lock = client.WriteLock(path)
        elif kind == "curator":
            lock = client.Lock(path, extra_lock_patterns=("-lock-",))
        else:
            lock = client.Lock(path)
        lock.acquire()
        say("held " + name)
        gate.wait()
        lock.release()
        say("released " + name)
    except Exception as error:
        say("failed %s %r" % (name, error))


for line in sys.stdin:
    words = line.split()
    if words[0] == "release":
        gates[words[1]].set()
        continue
    gate = gates[words[1]] = threading.Event()
    threading.Thread(target=hold, args=(*words, gate), daemon=True).start()
client.stop()
