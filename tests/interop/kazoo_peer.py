# kazoo's recipes: "kazoo_peer.py SERVERS"; the orders are those of orders.py. "KIND NAME PATH" acquires; KIND is lock,
# read, write or curator (a lock that also respects Curator's nodes).

import sys

import orders
from kazoo.client import KazooClient

client = KazooClient(hosts=sys.argv[1], timeout=20)
client.start()


def acquire(kind, path):
    if kind == "read":
        lock = client.ReadLock(path)
    elif kind == "write":
        lock = client.WriteLock(path)
    elif kind == "curator":
        lock = client.Lock(path, extra_lock_patterns=("-lock-",))
    else:
        lock = client.Lock(path)
    lock.acquire()
    return lock


orders.obey(acquire)
client.stop()
