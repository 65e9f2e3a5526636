import java.io.BufferedInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.EOFException;
import java.io.IOException;
import java.net.Socket;
import java.net.URI;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;
import java.util.stream.LongStream;

/** Loads numbers in packed batches, without a client library: the protocol takes 40 lines. */
public class Load {
    static final int BATCH = 100_000;
    final Socket socket;
    final DataInputStream in;

    Load(URI url) throws IOException {
        socket = new Socket(url.getHost(), url.getPort() < 0 ? 6379 : url.getPort());
        in = new DataInputStream(new BufferedInputStream(socket.getInputStream()));
        String[] user = url.getUserInfo() == null ? null : url.getUserInfo().split(":", 2);
        if (user != null && send("AUTH", user[0].isEmpty() ? "default" : user[0], user[1]) instanceof IOException error)
            throw error;
    }

    /** Sends a command; returns its reply: Long, String, byte[], Object[], or an IOException for an error. */
    Object send(Object... words) throws IOException {
        var out = new ByteArrayOutputStream();
        out.write(("*" + words.length + "\r\n").getBytes());
        for (Object word : words) {
            byte[] bytes = word instanceof byte[] raw ? raw : word.toString().getBytes(StandardCharsets.UTF_8);
            out.write(("$" + bytes.length + "\r\n").getBytes());
            out.write(bytes);
            out.write("\r\n".getBytes());
        }
        out.writeTo(socket.getOutputStream());
        return read();
    }

    Object read() throws IOException {
        String line = readLine(), rest = line.substring(1);
        switch (line.charAt(0)) {
            case '+': return rest;
            case '-': return new IOException(rest);
            case ':': return Long.parseLong(rest);
            case '$':
                byte[] bytes = new byte[Integer.parseInt(rest)];
                in.readFully(bytes);
                in.skipNBytes(2);
                return bytes;
            case '*':
                Object[] elements = new Object[Integer.parseInt(rest)];
                for (int i = 0; i < elements.length; i++) elements[i] = read();
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

    /** Sends an array of numbers, 8 bytes each, little-endian: other programs must pack theirs alike. */
    BitSet bulk(String command, String key, long[] ids, String... options) throws IOException {
        ByteBuffer numbers = ByteBuffer.allocate(8 * ids.length).order(ByteOrder.LITTLE_ENDIAN);
        numbers.asLongBuffer().put(ids);
        var words = new ArrayList<Object>(List.of(command, key));
        words.addAll(List.of(options));
        words.addAll(List.of("WIDTH", 8, numbers.array()));
        Object reply = send(words.toArray());
        if (reply instanceof IOException error) throw error;
        Object[] parts = (Object[]) reply;
        if (parts.length > 2) throw (IOException) parts[2]; // full, or no memory: the first parts[0] items are in
        byte[] bits = (byte[]) parts[1];
        var answers = new BitSet();
        for (int i = 0; i < ids.length; i++) answers.set(i, (bits[i / 8] & (0x80 >> (i % 8))) != 0);
        return answers;
    }

    public static void main(String[] arguments) throws IOException {
        var environment = System.getenv();
        long items = Long.parseLong(environment.getOrDefault("ITEMS", "100000000"));
        var redis = new Load(URI.create(environment.getOrDefault("REDIS_URL", "redis://127.0.0.1:6379")));
        redis.send("UNLINK", "ids");
        if (redis.send("BF.RESERVE", "ids", 0.01, items) instanceof IOException error) throw error;
        long added = 0;
        for (long start = 0; start < items; start += BATCH) {
            long[] ids = LongStream.range(start, Math.min(start + BATCH, items)).toArray();
            added += redis.bulk("BF.BULKADD", "ids", ids, "NOCREATE").cardinality();
        }
        BitSet found = redis.bulk("BF.BULKEXISTS", "ids", new long[] {0, 1, items + 1});
        if (!found.get(0) || !found.get(1) || added < items / 100 * 98) throw new IOException("items are missing");
        System.out.printf("java: %d of %d items were new%n", added, items);
    }
}
