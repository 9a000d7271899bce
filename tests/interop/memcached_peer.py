# Locks of pymemcache: the key is added to lock and deleted to unlock. "memcached_peer.py PORT obey": told what to do line
# by line: "wait NAME KEY" adds until it is stored and says "held NAME"; "try NAME KEY" does so once, or says "busy NAME";
# "release NAME" deletes and says "released NAME". "memcached_peer.py PORT count KEY FILE TIMES" adds one to the number in
# FILE so often, each time under the lock.

import sys
import time

from pymemcache.client.base import Client

client = Client(("127.0.0.1", int(sys.argv[1])))
held = {}


def say(text):
    print(text, flush=True)


def lock(key):
    while not client.add(key, b"pymemcache", expire=60, noreply=False):
        time.sleep(0.005)


def obey():
    for line in sys.stdin:
        words = line.split()
        if words[0] == "release":
            client.delete(held.pop(words[1]), noreply=False)
            say("released " + words[1])
        elif words[0] == "try" and not client.add(words[2], b"pymemcache", expire=60, noreply=False):
            say("busy " + words[1])
        else:
            if words[0] == "wait":
                lock(words[2])
            held[words[1]] = words[2]
            say("held " + words[1])


def count(key, path, times):
    for _ in range(int(times)):
        lock(key)
        with open(path) as file:
            number = int(file.read())
        with open(path, "w") as file:
            file.write("%d\n" % (number + 1))
        client.delete(key, noreply=False)


if sys.argv[2] == "obey":
    obey()
else:
    count(*sys.argv[3:])
