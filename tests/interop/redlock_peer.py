# Redlock clients: "redlock_peer.py KIND PORTS WHAT..."; the orders are those of orders.py. "wait NAME KEY TIMEOUT"
# acquires, "try NAME KEY TIMEOUT" does so without waiting; TIMEOUT is in seconds.
#
# KIND is "pottery", which is pottery's Redlock, or "scripts": the commands that node-redlock and redsync send. They set
# the key if it is missing, with a random value and a life in milliseconds, at all nodes. They compare the value before
# they delete the key or extend its life. If no majority grants the lock, they release it at all nodes.

import random
import secrets
import sys
import time

import orders
from redis import Redis
from redis.exceptions import RedisError

kind = sys.argv[1]
masters = [Redis(port=int(port), socket_timeout=5) for port in sys.argv[2].split(",")]

TAKE = "if redis.call('exists', KEYS[1]) == 1 then return 0 end redis.call('set', KEYS[1], ARGV[1], 'px', ARGV[2]) return 1"
KEEP = "if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end return redis.call('pexpire', KEYS[1], ARGV[2])"
DROP = "if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end return redis.call('del', KEYS[1])"


class Lock:
    def __enter__(self):
        self.acquire(True)

    def __exit__(self, *_):
        self.release()


class Scripts(Lock):
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


class Pottery(Lock):
    def __init__(self, key, timeout):
        from pottery import Redlock

        # pottery puts its own name before the key.
        key = key.removeprefix("redlock:")
        self.lock = Redlock(key=key, masters=set(masters), auto_release_time=timeout)

    def acquire(self, blocking):
        # One attempt, or attempts until it holds.
        return self.lock.acquire(blocking=blocking)

    def extend(self):
        self.lock.extend()

    def release(self):
        self.lock.release()


def lock_of(key, timeout=30):
    return (Pottery if kind == "pottery" else Scripts)(key, float(timeout))


def acquire(how, key, timeout):
    lock = lock_of(key, timeout)
    return lock if lock.acquire(how == "wait") else None


orders.serve(acquire, lock_of, *sys.argv[3:])
