# redis-py's locks: "redis_peer.py PORT WHAT..."; the orders are those of orders.py. "wait NAME KEY TIMEOUT" acquires,
# "try NAME KEY TIMEOUT" does so without waiting; TIMEOUT is in seconds or "none".

import sys

import orders
from redis import Redis

client = Redis(port=int(sys.argv[1]))


def acquire(how, key, timeout):
    lock = client.lock(key, timeout=None if timeout == "none" else float(timeout))
    return lock if lock.acquire(blocking=how == "wait") else None


orders.serve(acquire, lambda key: client.lock(key, timeout=30, sleep=0.005), *sys.argv[2:])
