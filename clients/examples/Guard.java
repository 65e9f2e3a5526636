import java.io.IOException;
import java.util.List;
import java.util.UUID;
import java.util.stream.Stream;

/**
 * A guard in front of a database: a Bloom filter of all keys, asked before the database is. A lookup never fails
 * because of the filter, and never hides a row that exists. Needs Connection.java, and no client library. Each thread
 * needs its own. An example: docs/guide/guard.md says what it does not do.
 */
public class Guard {
    static final String FILTER = "guard:{users}", NEW = "guard:{users}:new"; // {users}: RENAME needs both names in one slot
    static final String COMPLETE = "guard: complete"; // the item that a build adds last: without it a filter is not believed
    static final String ERROR_RATE = "0.001", CAPACITY = "120000";
    static final int BATCH = 1000;
    static final long SECOND = 1_000_000_000; // in nanoseconds
    static final long PAUSE = SECOND; // how long only the database is asked after a failure
    static final long LONGEST_INSERT = 5 * SECOND; // insert() takes at most this long: build() waits that long
    static final long LONGEST_TRANSACTION = 2 * SECOND; // the part of LONGEST_INSERT for Database.insert(), connecting and commit included

    // Completes a filter and puts it in the place of the old one, in one step. Only a filter that has the items of this
    // build is completed: another build may have begun a new filter under the same name.
    static final String FINISH = """
        local own = redis.call('BF.MEXISTS', KEYS[1], unpack(ARGV, 2))
        for _, found in ipairs(own) do
          if found == 0 then
            return redis.error_reply('ERR the new filter is lost, or another build has begun')
          end
        end
        redis.call('BF.ADD', KEYS[1], ARGV[1])
        return redis.call('RENAME', KEYS[1], KEYS[2])
        """;

    /** What the guard stands in front of. */
    public interface Database {
        String get(String key);
        void insert(String key, String value);
        List<String> keys();
    }

    public long failures = 0; // how often the filter gave no answer: a metric to watch
    private final String host;
    private final int port;
    private final Database database;
    private long resumeAt = System.nanoTime();
    private Connection reader, writer; // for lookups, and for inserts, which wait longer

    public Guard(String host, int port, Database database) {
        this.host = host;
        this.port = port;
        this.database = database;
    }

    /** The row of the key, or null. Asks the database unless the filter says that there is no such row. */
    public String lookup(String key) {
        return isAbsent(key) ? null : database.get(key);
    }

    /** Whether the row certainly does not exist; false also if the filter cannot tell. */
    private boolean isAbsent(String key) {
        if (System.nanoTime() - resumeAt < 0) return false;
        Object problem = "there is no complete filter";
        try {
            if (reader == null) reader = new Connection(host, port, 100);
            Object[] found = (Object[]) reader.send("BF.MEXISTS", FILTER, key, COMPLETE);
            if (found[1].equals(1L)) return found[0].equals(0L);
        } catch (IOException | RuntimeException error) { // whatever it is, the database is asked
            problem = error;
        }
        if (reader != null) reader.close(); // a late reply must not be taken for the next one
        reader = null;
        failures++;
        resumeAt = System.nanoTime() + PAUSE;
        System.err.println("the filter gave no answer: " + problem);
        return false;
    }

    /** Adds the key to the filters, then the row to the database. If it throws, the row may be missing: try again. */
    public void insert(String key, String value) throws IOException {
        long begin = System.nanoTime(); // before the first filter is asked, because build() waits from there on
        Connection redis = writer == null ? new Connection(host, port, 1000) : writer;
        writer = null; // after a failure this connection is not used again
        for (String name : List.of(NEW, FILTER)) { // in this order, because build() renames the first to the second
            try {
                add(redis, name, List.of(key));
            } catch (IOException error) {
                if (error instanceof Connection.ServerError && error.getMessage().equals("ERR not found")) continue; // it needs no key
                redis.close();
                throw error;
            }
        }
        writer = redis;
        if (System.nanoTime() - begin > LONGEST_INSERT - LONGEST_TRANSACTION)
            throw new IOException("the filters took so long that a build may miss the row");
        database.insert(key, value);
    }

    /**
     * Fills a new filter with all keys and puts it in the place of the old one. If it throws, the old one stays.
     * `wait` is LONGEST_INSERT.
     */
    public static void build(String host, int port, Database database, long wait) throws IOException, InterruptedException {
        // All on one connection, which breaks if the server restarts in the meantime, perhaps from an older snapshot.
        try (var redis = new Connection(host, port, 10_000)) {
            redis.send("UNLINK", NEW);
            redis.send("BF.RESERVE", NEW, ERROR_RATE, CAPACITY);
            // Three items: all three are hardly ever found by chance.
            List<String> thisBuild = Stream.generate(() -> "guard: build " + UUID.randomUUID()).limit(3).toList();
            add(redis, NEW, thisBuild);
            Thread.sleep(wait / 1_000_000); // from then on, each row is in the keys or its insert() has found NEW
            List<String> keys = database.keys();
            for (int start = 0; start < keys.size(); start += BATCH)
                add(redis, NEW, keys.subList(start, Math.min(start + BATCH, keys.size())));
            redis.send(words(List.of("EVAL", FINISH, "2", NEW, FILTER, COMPLETE), thisBuild));
        }
    }

    /** Adds items to a filter that exists: NOCREATE, since one with these items only would hide all others. */
    private static void add(Connection redis, String name, List<String> items) throws IOException {
        redis.send(words(List.of("BF.INSERT", name, "NOCREATE", "ITEMS"), items));
    }

    private static Object[] words(List<String> command, List<String> items) {
        return Stream.concat(command.stream(), items.stream()).toArray();
    }
}
