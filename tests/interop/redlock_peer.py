# Redlock clients. "redlock_peer.py KIND PORTS obey": told what to do line by line: "wait NAME KEY TIMEOUT" acquires and
# says "held NAME"; "try NAME KEY TIMEOUT" does so without waiting, or says "busy NAME"; "extend NAME" prolongs it and
# says "extended NAME"; "release NAME" releases and says "released NAME". TIMEOUT is in seconds. "redlock_peer.py KIND
# PORTS count KEY FILE TIMES" adds one to the number in FILE so often, each time under the lock.
#
# KIND is "pottery", which is pottery's Redlock, or "scripts": what node-redlock and redsync have servers do. They set
# the key where it is not there, with a random value and a life in milliseconds, at all nodes; they compare the value
# before they delete the key or prolong its life; and they release everywhere what no majority gave.

import queue
import random
import secrets
import sys
import threading
import time

from redis import Redis
from redis.exceptions import RedisError

kind = sys.argv[1]
masters = [Redis(port=int(port), socket_timeout=5) for port in sys.argv[2].split(",")]
orders = {}
speech = threading.Lock()

TAKE = "if redis.call('exists', KEYS[1]) == 1 then return 0 end redis.call('set', KEYS[1], ARGV[1], 'px', ARGV[2]) return 1"
KEEP = "if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end return redis.call('pexpire', KEYS[1], ARGV[2])"
DROP = "if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end return redis.call('del', KEYS[1])"


def say(text):
    with speech:
        print(text, flush=True)


class Scripts:
    def __init__(self, key, timeout):
        self.key, self.life, self.value = key, int(timeout * 1000), secrets.token_hex(20)

    def everywhere(self, script, *words):
        done = 0
        for master in masters:
            try:
                done += master.eval(script, 1, self.key, self.value, *words)
            except RedisError:
                pass
        return done > len(masters) // 2

    def acquire(self, blocking):
        while not self.everywhere(TAKE, self.life):
            self.everywhere(DROP)
            if not blocking:
                return False
            time.sleep(random.uniform(0.01, 0.05))
        return True

    def extend(self):
        assert self.everywhere(KEEP, self.life)

    def release(self):
        assert self.everywhere(DROP)


class Pottery:
    def __init__(self, key, timeout):
        from pottery import Redlock

        self.lock = Redlock(key=key, masters=set(masters), auto_release_time=timeout)

    def acquire(self, blocking):
        # Once, or as long as it takes.
        return self.lock.acquire(blocking=blocking)

    def extend(self):
        self.lock.extend()

    def release(self):
        self.lock.release()


def lock_of(key, timeout):
    return (Pottery if kind == "pottery" else Scripts)(key, float(timeout))


def hold(how, name, key, timeout, told):
    try:
        lock = lock_of(key, timeout)
        if not lock.acquire(how == "wait"):
            say("busy " + name)
            return
        say("held " + name)
        while told.get() == "extend":
            lock.extend()
            say("extended " + name)
        lock.release()
        say("released " + name)
    except Exception as error:
        say("failed %s %r" % (name, error))


def obey():
    for line in sys.stdin:
        words = line.split()
        if words[0] in ("extend", "release"):
            orders[words[1]].put(words[0])
            continue
        told = orders[words[1]] = queue.Queue()
        threading.Thread(target=hold, args=(*words, told), daemon=True).start()


def count(key, path, times):
    for _ in range(int(times)):
        lock = lock_of(key, 30)
        lock.acquire(True)
        with open(path) as file:
            number = int(file.read())
        with open(path, "w") as file:
            file.write("%d\n" % (number + 1))
        lock.release()


if sys.argv[3] == "obey":
    obey()
else:
    count(*sys.argv[4:])
