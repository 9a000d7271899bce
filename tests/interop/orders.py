# The common part of the foreign clients: they obey orders line by line, or count under a lock.

import queue
import sys
import threading

speech = threading.Lock()


def say(text):
    with speech:
        print(text, flush=True)


def hold(acquire, how, name, words, told):
    try:
        lock = acquire(how, *words)
        if lock is None:
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


# "HOW NAME WORDS..." makes a thread acquire(HOW, WORDS...) a lock and print "held NAME", or "busy NAME" without one;
# "extend NAME" extends it and prints "extended NAME"; "release NAME" releases it and prints "released NAME".
def obey(acquire):
    told = {}
    for line in sys.stdin:
        how, name, *words = line.split()
        if how in ("extend", "release"):
            told[name].put(how)
            continue
        told[name] = queue.Queue()
        threading.Thread(target=hold, args=(acquire, how, name, words, told[name]), daemon=True).start()


# Adds one to the number in the file TIMES times, each time under the lock that lock() returns.
def count(lock, path, times):
    for _ in range(int(times)):
        with lock():
            with open(path) as file:
                number = int(file.read())
            with open(path, "w") as file:
                file.write("%d\n" % (number + 1))


# "obey", or "count KEY FILE TIMES".
def serve(acquire, lock, what, key=None, *rest):
    if what == "obey":
        obey(acquire)
    else:
        count(lambda: lock(key), *rest)
