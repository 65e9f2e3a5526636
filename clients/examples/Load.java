import java.io.IOException;
import java.net.URI;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;
import java.util.stream.LongStream;

/** Loads numbers in packed batches. An example; needs Connection.java, and no client library. */
public class Load {
    static final int BATCH = 10_000;

    /** Sends an array of numbers, 8 bytes each, little-endian: other programs must pack theirs alike. */
    static BitSet bulk(Connection redis, String command, String key, long[] ids, String... options) throws IOException {
        ByteBuffer numbers = ByteBuffer.allocate(8 * ids.length).order(ByteOrder.LITTLE_ENDIAN);
        numbers.asLongBuffer().put(ids);
        var words = new ArrayList<Object>(List.of(command, key));
        words.addAll(List.of(options));
        words.addAll(List.of("WIDTH", 8, numbers.array()));
        Object[] parts = (Object[]) redis.send(words.toArray()); // throws if it is full: the first parts[0] items are in
        byte[] bits = (byte[]) parts[1];
        var answers = new BitSet();
        for (int i = 0; i < ids.length; i++) answers.set(i, (bits[i / 8] & (0x80 >> (i % 8))) != 0);
        return answers;
    }

    public static void main(String[] arguments) throws IOException {
        var environment = System.getenv();
        long items = Long.parseLong(environment.getOrDefault("ITEMS", "100000000"));
        URI url = URI.create(environment.getOrDefault("REDIS_URL", "redis://127.0.0.1:6379"));
        var redis = new Connection(url.getHost(), url.getPort() < 0 ? 6379 : url.getPort(), 0);
        String[] user = url.getUserInfo() == null ? null : url.getUserInfo().split(":", 2);
        if (user != null) redis.send("AUTH", user[0].isEmpty() ? "default" : user[0], user[1]);
        redis.send("UNLINK", "ids");
        redis.send("BF.RESERVE", "ids", 0.01, items);
        long added = 0;
        for (long start = 0; start < items; start += BATCH) {
            long[] ids = LongStream.range(start, Math.min(start + BATCH, items)).toArray();
            added += bulk(redis, "BF.BULKADD", "ids", ids, "NOCREATE").cardinality();
        }
        BitSet found = bulk(redis, "BF.BULKEXISTS", "ids", new long[] {0, 1, items + 1});
        if (!found.get(0) || !found.get(1) || added < items / 100 * 98) throw new IOException("items are missing");
        System.out.printf("java: %d of %d items were new%n", added, items);
    }
}
