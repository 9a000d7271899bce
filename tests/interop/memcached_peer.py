# Locks of pymemcache: adds the key to lock and deletes it to unlock. "memcached_peer.py PORT WHAT..."; the orders are
# those of orders.py. "wait NAME KEY" adds the key until it is stored, "try NAME KEY" does so once.

import sys
import time

import orders
from pymemcache.client.base import Client


class Lock:
    def __init__(self, key):
        # A client shared by several threads mixes up their answers.
        self.client, self.key = Client(("127.0.0.1", int(sys.argv[1]))), key

    def add(self):
        return self.client.add(self.key, b"pymemcache", expire=60, noreply=False)

    def release(self):
        self.client.delete(self.key, noreply=False)

    def __enter__(self):
        while not self.add():
            time.sleep(0.005)

    def __exit__(self, *_):
        self.release()


def acquire(how, key):
    lock = Lock(key)
    if how == "wait":
        lock.__enter__()
    elif not lock.add():
        return None
    return lock


orders.serve(acquire, Lock, *sys.argv[2:])
