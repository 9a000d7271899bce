// Curator's recipes; obeys orders line by line: "KIND NAME PATH" acquires and prints "held NAME", "release NAME"
// releases and prints "released NAME". KIND is mutex, read or write.

import java.util.Map;
import java.util.Scanner;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.retry.RetryOneTime;

public class Peer {
    static final Map<String, CountDownLatch> gates = new ConcurrentHashMap<>();

    public static void main(String[] args) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.newClient(args[0], 20000, 10000, new RetryOneTime(200));
        client.start();
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            String[] words = lines.nextLine().split(" ");
            if (words[0].equals("release")) {
                gates.get(words[1]).countDown();
                continue;
            }
            CountDownLatch gate = new CountDownLatch(1);
            gates.put(words[1], gate);
            Thread thread = new Thread(() -> hold(client, words, gate));
            thread.setDaemon(true);
            thread.start();
        }
        client.close();
    }

    static void hold(CuratorFramework client, String[] words, CountDownLatch gate) {
        String kind = words[0], name = words[1], path = words[2];
        try {
            InterProcessMutex mutex;
            InterProcessReadWriteLock both = new InterProcessReadWriteLock(client, path);
            switch (kind) {
                case "read": mutex = both.readLock(); break;
                case "write": mutex = both.writeLock(); break;
                default: mutex = new InterProcessMutex(client, path);
            }
            mutex.acquire();
            say("held " + name);
            gate.await();
            mutex.release();
            say("released " + name);
        } catch (Exception e) {
            say("failed " + name + " " + e);
        }
    }

    static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
