import java.io.BufferedInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.EOFException;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.zip.CRC32;

/** A sharded filter, which docs/sharding.md specifies; a guard and a crawler on it. One for each thread. */
public class Sharded {
    // Begins the items that are added last: without its one, a shard's "no" is not believed.
    static final String COMPLETE = "filter: complete";
    static final String TOO_OLD = "the descriptor is too old";
    static final long PAUSE = 1000; // milliseconds after a failure in which a shard, or the descriptor, is not asked for

    static int shardOf(String item, int shards) {
        var crc = new CRC32();
        crc.update(item.getBytes(StandardCharsets.UTF_8));
        return (int) (crc.getValue() * shards >>> 32);
    }

    static {
        if (shardOf("a", 8) != 7 || shardOf("user:1", 1000) != 482 || shardOf("münchen", 128) != 34)
            throw new AssertionError("shardOf does not follow the rule; is this file compiled as UTF-8?");
    }

    /** For each shard the item that marks it as complete: `filter: complete K` with the smallest K of that shard. */
    static String[] markers(int shards) {
        var found = new String[shards];
        for (int number = 0, missing = shards; missing > 0; number++) {
            String item = COMPLETE + " " + number;
            int shard = shardOf(item, shards);
            if (found[shard] != null) continue;
            found[shard] = item;
            missing--;
        }
        return found;
    }

    /** An error that a server answered, or TOO_OLD. */
    static class Refused extends IOException {
        Refused(String text) { super(text); }

        /** Whether the filter is gone: lost, or an old shard after a rebuild. */
        boolean isGone() {
            return getMessage().startsWith("WRONGTYPE") || getMessage().contains("not found");
        }

        /** Whether it may come from a descriptor that is out of date. */
        boolean isStale() {
            return isGone() || getMessage().contains("belongs to shard") || getMessage().equals(TOO_OLD);
        }
    }

    /** A connection to one node that waits `timeout` milliseconds at most, to connect and for a reply. */
    static class Node {
        final Socket socket = new Socket();
        final DataInputStream in;

        Node(String address, int timeout) throws IOException {
            int colon = address.lastIndexOf(':');
            int port = Integer.parseInt(address.substring(colon + 1));
            socket.connect(new InetSocketAddress(address.substring(0, colon), port), timeout);
            socket.setSoTimeout(timeout);
            socket.setTcpNoDelay(true);
            in = new DataInputStream(new BufferedInputStream(socket.getInputStream()));
        }

        /** The reply to a command: Long, String, List, or null. */
        Object send(List<String> words) throws IOException {
            var out = new ByteArrayOutputStream();
            out.write(("*" + words.size() + "\r\n").getBytes());
            for (String word : words) {
                byte[] bytes = word.getBytes(StandardCharsets.UTF_8);
                out.write(("$" + bytes.length + "\r\n").getBytes());
                out.write(bytes);
                out.write("\r\n".getBytes());
            }
            out.writeTo(socket.getOutputStream());
            Object reply = read();
            Object last = reply instanceof List<?> list && !list.isEmpty() ? list.get(list.size() - 1) : reply;
            if (last instanceof Refused error) throw error; // also one that is inside an array
            return reply;
        }

        Object read() throws IOException {
            String line = readLine(), rest = line.substring(1);
            switch (line.charAt(0)) {
                case '+': return rest;
                case '-': return new Refused(rest);
                case ':': return Long.parseLong(rest);
                case '$':
                    if (rest.equals("-1")) return null;
                    byte[] bytes = in.readNBytes(Integer.parseInt(rest));
                    in.skipNBytes(2);
                    return new String(bytes, StandardCharsets.UTF_8);
                case '*':
                    var elements = new ArrayList<Object>();
                    for (int i = Integer.parseInt(rest); i > 0; i--) elements.add(read());
                    return elements;
                default: throw new IOException("not a reply: " + line);
            }
        }

        String readLine() throws IOException {
            var line = new StringBuilder();
            for (int c = in.read(); c != '\r'; c = in.read()) {
                if (c < 0) throw new EOFException("the server has closed the connection");
                line.append((char) c);
            }
            in.read(); // '\n'
            return line.toString();
        }
    }

    /** Connections to the nodes of a cluster. It follows MOVED and ASK. */
    static class Nodes {
        final List<String> addresses;
        final int timeout;
        final Map<String, Node> connections = new HashMap<>();
        final Map<String, String> owners = new HashMap<>(); // by key: the address of its node

        Nodes(List<String> addresses, int timeout) {
            this.addresses = new ArrayList<>(addresses);
            this.timeout = timeout;
        }

        /** The reply of the node that has the key. */
        Object send(String key, String... words) throws IOException {
            return send(key, Arrays.asList(words));
        }

        Object send(String key, List<String> words) throws IOException {
            String address = owners.getOrDefault(key, addresses.get(0));
            boolean asking = false;
            for (int tries = 0; tries < 5; tries++) {
                try {
                    if (asking) sendTo(address, List.of("ASKING"));
                    return sendTo(address, words);
                } catch (Refused error) {
                    String[] parts = error.getMessage().split(" "); // MOVED 3999 127.0.0.1:6381
                    asking = parts[0].equals("ASK");
                    if (!asking && !parts[0].equals("MOVED")) throw error;
                    address = parts[2];
                    if (!asking && key.startsWith("{")) owners.put(key, address); // not of claims: there is no end of them
                }
            }
            throw new IOException("too many redirections");
        }

        private Object sendTo(String address, List<String> words) throws IOException {
            try {
                Node node = connections.get(address);
                if (node == null) {
                    connections.put(address, node = new Node(address, timeout));
                    if (!addresses.contains(address)) addresses.add(address);
                }
                return node.send(words);
            } catch (Refused error) {
                throw error;
            } catch (IOException error) { // the connection is not used again: a late reply must not be taken for the next one
                Node broken = connections.remove(address);
                if (broken != null) broken.socket.close();
                owners.values().removeIf(address::equals);
                if (addresses.remove(address)) addresses.add(address); // ask another one first
                throw error;
            }
        }
    }

    /** A shard: its key and the item that marks it as complete. */
    record Shard(String key, String mark) {}

    /** The shards of one generation. */
    record Generation(long number, List<Shard> shards) {
        static Generation of(Map<String, String> fields, String prefix) throws IOException {
            int count = (int) number(fields, prefix + "shards", 1024);
            long generation = number(fields, prefix + "generation", Long.MAX_VALUE);
            number(fields, prefix + "capacity", Long.MAX_VALUE); // these two have no use here, but a hash without them is damaged
            String error = fields.getOrDefault(prefix + "error", "none");
            if (!error.matches("[\\d.]+([eE][-+]?\\d+)?") || !isRate(error)) throw new IOException(prefix + "error is " + error);
            var shards = new ArrayList<Shard>();
            for (String mark : markers(count)) {
                String key = fields.get(prefix + shards.size());
                if (key == null) throw new IOException("field " + prefix + shards.size() + " is missing");
                shards.add(new Shard(key, mark));
            }
            return new Generation(generation, shards);
        }

        private static long number(Map<String, String> fields, String name, long most) throws IOException {
            String text = fields.getOrDefault(name, "none");
            if (!text.matches("0*[1-9]\\d{0,17}") || Long.parseLong(text) > most) throw new IOException(name + " is " + text);
            return Long.parseLong(text);
        }

        private static boolean isRate(String text) {
            try {
                return Double.parseDouble(text) > 0 && Double.parseDouble(text) < 1;
            } catch (NumberFormatException error) {
                return false;
            }
        }

        /** The items by shard. */
        Map<Shard, List<String>> group(List<String> items) {
            var groups = new LinkedHashMap<Shard, List<String>>();
            for (String item : items) {
                Shard shard = shards.get(shardOf(item, shards.size()));
                groups.computeIfAbsent(shard, none -> new ArrayList<>()).add(item);
            }
            return groups;
        }
    }

    /** What the descriptor says. `next`, `damage` (why nothing may be added) and `base` may be null. */
    record Descriptor(Generation current, Generation next, String damage, String base, int poll, long readAt) {
        static Descriptor of(List<?> words, long readAt) throws IOException {
            var fields = new HashMap<String, String>();
            for (int i = 0; i < words.size(); i += 2) fields.put((String) words.get(i), (String) words.get(i + 1));
            String rule = fields.get("rule"), state = fields.get("state"), poll = fields.getOrDefault("poll", "");
            if (!"crc32".equals(rule) || !"ready".equals(state))
                throw new IOException("no filter that this client can use: rule " + rule + ", state " + state);
            Generation next = null;
            String damage = null;
            if (fields.keySet().stream().anyMatch(field -> field.startsWith("next."))) {
                try {
                    String nextRule = fields.getOrDefault("next.rule", "crc32");
                    if (!nextRule.equals("crc32")) throw new IOException("next.rule is " + nextRule);
                    next = Generation.of(fields, "next.");
                } catch (IOException error) { // a rebuild might lose what is added now
                    damage = "the next generation cannot be read: " + error.getMessage();
                }
            }
            int seconds = poll.matches("0*[1-9]\\d{0,5}") ? Integer.parseInt(poll) : 10;
            return new Descriptor(Generation.of(fields, ""), next, damage, fields.get("base"), seconds, readAt);
        }

        /** Whether `next` is the generation before the current one, which old clients ask until its shards are gone. */
        boolean isRebuilt() {
            return next != null && next.number < current.number;
        }

        /** Whoever rebuilds the filter counts on every addition to be done by then. */
        void checkAge() throws Refused {
            if (now() > readAt + 2000L * poll) throw new Refused(TOO_OLD);
        }
    }

    final String name;
    final Nodes reader, writer;
    Descriptor descriptor;
    final Map<String, Long> resumeAt = new HashMap<>(); // by key: when it may be asked again
    int failures; // how often the filter gave no answer: a metric to watch

    /** The reader is `new Nodes(addresses, 100)`, the writer `new Nodes(addresses, 1000)`. */
    Sharded(String name, Nodes reader, Nodes writer) {
        this.name = name;
        this.reader = reader;
        this.writer = writer;
    }

    /** By item: TRUE, FALSE, or null if there is no answer. Never throws. */
    Map<String, Boolean> ask(List<String> items) {
        var answers = new LinkedHashMap<String, Boolean>();
        for (String item : items) answers.put(item, null);
        var stale = new ArrayList<String>();
        askOnce(new ArrayList<>(answers.keySet()), answers, -1, stale);
        if (!stale.isEmpty()) askOnce(stale, answers, 0, null); // the filter was rebuilt
        return answers;
    }

    /** Puts answers into `answers`, and into `stale` the items to ask again, with a descriptor that is read again. */
    private void askOnce(List<String> items, Map<String, Boolean> answers, long age, List<String> stale) {
        if (mayAsk(name)) {
            try {
                read(reader, age);
            } catch (IOException error) { // the one that was read last is used: its shards answer for themselves
                fail(name, error.getMessage());
            }
        }
        if (descriptor == null) return;
        descriptor.current.group(items).forEach((shard, group) -> askFilter(shard, group, answers, stale));
        var absent = items.stream().filter(item -> answers.get(item) == Boolean.FALSE).toList();
        if (descriptor.base != null && !absent.isEmpty()) askFilter(new Shard(descriptor.base, COMPLETE), absent, answers, stale);
    }

    private void askFilter(Shard shard, List<String> items, Map<String, Boolean> answers, List<String> stale) {
        for (String item : items) answers.put(item, null);
        if (!mayAsk(shard.key)) return;
        try {
            var words = new ArrayList<>(List.of("BF.MEXISTS", shard.key));
            words.addAll(items);
            words.add(shard.mark);
            var found = (List<?>) reader.send(shard.key, words);
            boolean complete = found.get(items.size()).equals(1L);
            for (int i = 0; i < items.size(); i++)
                if (complete || found.get(i).equals(1L)) answers.put(items.get(i), found.get(i).equals(1L));
            if (!complete) fail(shard.key, "it is lost, or not complete");
        } catch (IOException error) {
            if (stale != null && error instanceof Refused refused && refused.isStale()) stale.addAll(items);
            else fail(shard.key, error.getMessage());
        }
    }

    /** Adds items; returns the `poll` of the descriptor that says where. If it throws, some may be missing: try again. */
    int add(List<String> items, int replicas) throws IOException {
        try {
            return addOnce(items, replicas, -1);
        } catch (Refused error) {
            if (!error.isStale()) throw error;
            return addOnce(items, replicas, 0);
        }
    }

    private int addOnce(List<String> items, int replicas, long age) throws IOException {
        Descriptor descriptor = read(writer, age);
        if (descriptor.damage != null) throw new IOException(descriptor.damage);
        for (var group : descriptor.current.group(items).entrySet()) {
            descriptor.checkAge();
            insert(group.getKey().key, group.getValue(), replicas);
        }
        if (descriptor.next != null) {
            for (var group : descriptor.next.group(items).entrySet()) {
                descriptor.checkAge();
                try {
                    insert(group.getKey().key, group.getValue(), replicas);
                } catch (Refused error) { // an old shard may be gone: the current ones have the items
                    if (!descriptor.isRebuilt() || !error.isGone()) throw error;
                }
            }
        }
        descriptor.checkAge();
        return descriptor.poll;
    }

    private void insert(String key, List<String> items, int replicas) throws IOException {
        var words = new ArrayList<>(List.of("BF.INSERT", key, "NOCREATE", "ITEMS"));
        words.addAll(items);
        writer.send(key, words);
        if (replicas == 0) return;
        // WAIT waits for what its connection has written, and BF.INSERT writes nothing if the filter has the items.
        writer.send(key, "SET", key.split("}")[0] + "}:wait", "1", "EX", "60");
        if ((Long) writer.send(key, "WAIT", "" + replicas, "500") < replicas)
            throw new IOException("too few replicas have the items");
    }

    /** The descriptor, read again if this one is older than `age` milliseconds, or if that is negative, than its `poll`. */
    private Descriptor read(Nodes nodes, long age) throws IOException {
        long now = now();
        if (descriptor != null && now - descriptor.readAt < (age < 0 ? 1000L * descriptor.poll : age)) return descriptor;
        var fields = (List<?>) nodes.send(name, "HGETALL", name);
        descriptor = null; // if the new one cannot be used, the old one must not be
        descriptor = Descriptor.of(fields, now);
        return descriptor;
    }

    private boolean mayAsk(String key) {
        return now() >= resumeAt.getOrDefault(key, 0L);
    }

    /** Notes that a key gave no answer, and leaves it alone for a while. */
    private void fail(String key, String problem) {
        failures++;
        resumeAt.put(key, now() + PAUSE);
        System.err.println(key + " gave no answer: " + problem);
    }

    private static final long START = System.nanoTime();

    /** Milliseconds since the program began. */
    static long now() {
        return (System.nanoTime() - START) / 1_000_000;
    }

    /** What the guard stands in front of. */
    interface Database {
        /** The row, or null. */
        String get(String key);

        void insert(String key, String value);
    }

    /** Asks the database only for keys that the filter has, or gives no answer for. */
    static class Guard {
        static final long LONGEST_TRANSACTION = 2000; // milliseconds for Database.insert, connecting and commit included
        static final int REPLICAS = 1; // how many replicas must have a key before its row is written
        final Sharded filter;
        final Database database;

        Guard(Sharded filter, Database database) {
            this.filter = filter;
            this.database = database;
        }

        /** The row of the key, or null. */
        String lookup(String key) {
            return filter.ask(List.of(key)).get(key) == Boolean.FALSE ? null : database.get(key);
        }

        /** Adds the key to the filter, then the row to the database. If it throws, the row may be missing: try again. */
        void insert(String key, String value) throws IOException {
            long begin = now();
            int poll = filter.add(List.of(key), REPLICAS);
            if (now() - begin > 1000L * poll - LONGEST_TRANSACTION)
                throw new IOException("the filter took so long that a rebuild may miss the row");
            database.insert(key, value);
        }
    }

    /** Claims pages that nobody has fetched, as docs/recipes/crawler.md does on a filter in one key. */
    static class Crawler {
        static final String LEASE = "600"; // seconds that a crawler has for a page
        final Sharded filter;
        final Nodes claims; // new Nodes(addresses, 1000)

        Crawler(Sharded filter, Nodes claims) {
            this.filter = filter;
            this.claims = claims;
        }

        /** The URLs that are the caller's to fetch, for LEASE seconds, and those to offer again later. */
        record Claimed(List<String> fetch, List<String> later) {}

        Claimed claim(List<String> urls) {
            var claimed = new Claimed(new ArrayList<>(), new ArrayList<>());
            var mine = new ArrayList<String>();
            for (String url : new LinkedHashSet<>(urls)) {
                try {
                    if (claims.send("claim:" + url, "SET", "claim:" + url, "mine", "NX", "EX", LEASE) != null) mine.add(url);
                } catch (IOException error) {
                    claimed.later.add(url);
                }
            }
            // After the claim: whoever ends one has marked the page before.
            filter.ask(mine).forEach((url, answer) -> {
                if (answer == Boolean.FALSE) {
                    claimed.fetch.add(url);
                    return;
                }
                if (answer == null) claimed.later.add(url);
                release(url);
            });
            return claimed;
        }

        /** Marks a page after it was fetched and its results are stored. If it throws, try again within LEASE. */
        void fetched(String url) throws IOException {
            filter.add(List.of(url), 0);
            release(url);
        }

        private void release(String url) {
            try {
                claims.send("claim:" + url, "UNLINK", "claim:" + url);
            } catch (IOException error) { // the claim ends by itself after LEASE
            }
        }
    }
}
