import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;

/** Runs guard and crawler for tests/clients/python/test_sharded.py; sharded_worker.py there says what it reads and prints. */
public class ShardedWorker implements Sharded.Database {
    final Map<String, String> rows = new HashMap<>();
    final List<String> keys = new ArrayList<>();
    final Sharded.Guard guard;
    final Sharded.Crawler crawler;
    final boolean idle;
    int asked, rounds;

    ShardedWorker(String node, String name, boolean idle) {
        var nodes = List.of(node);
        var filter = new Sharded(name, new Sharded.Nodes(nodes, 500), new Sharded.Nodes(nodes, 1000));
        guard = new Sharded.Guard(filter, this);
        crawler = new Sharded.Crawler(filter, new Sharded.Nodes(nodes, 1000));
        this.idle = idle;
        for (int i = 0; i < 2000; i++) insert("user:" + i, "name " + i);
    }

    public String get(String key) {
        asked++;
        return rows.get(key);
    }

    public void insert(String key, String value) {
        if (rows.put(key, value) == null) keys.add(key);
    }

    String run(String command, List<String> words) throws Exception {
        switch (command) {
            case "lookup": return words.stream().map(this::lookup).collect(Collectors.joining(" "));
            case "insert": guard.insert(words.get(0), "inserted"); return "ok";
            case "claim":
                var claimed = crawler.claim(words);
                return "new " + String.join(",", claimed.fetch()) + " later " + String.join(",", claimed.later());
            case "fetched": crawler.fetched(words.get(0)); return "ok";
            case "keys": return String.join(" ", keys);
            default: return round();
        }
    }

    String lookup(String key) {
        int before = asked;
        String row = guard.lookup(key);
        return (row == null ? "none" : "row") + "?".repeat(asked - before);
    }

    String round() {
        rounds++;
        try {
            guard.insert("java:" + rounds, "inserted");
        } catch (Exception error) {
            System.err.println("not inserted: " + error.getMessage());
        }
        var present = new ArrayList<>(List.of(keys.get(keys.size() - 1)));
        for (int i = 0; i < 4; i++) present.add(keys.get((rounds * 4 + i) % keys.size()));
        for (String key : present) if (guard.lookup(key) == null) return "hidden " + key;
        int before = asked;
        for (int i = 0; i < 5; i++) guard.lookup("absent:" + rounds + ":" + i);
        return (asked - before) + " " + guard.filter.failures;
    }

    public static void main(String[] arguments) throws Exception {
        String node = arguments[0].replace("redis://", "");
        ShardedWorker worker = null;
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            var words = Arrays.asList(line.split(" "));
            String command = words.get(0);
            try {
                String answer = "ok";
                if (command.equals("use")) {
                    worker = new ShardedWorker(node, words.get(1), words.size() > 2);
                } else if (command.equals("shard")) {
                    int shards = Integer.parseInt(words.get(1));
                    var all = words.stream().skip(2).map(item -> "" + Sharded.shardOf(item, shards));
                    answer = all.collect(Collectors.joining(" "));
                } else if (command.equals("markers")) answer = String.join(",", Sharded.markers(Integer.parseInt(words.get(1))));
                else if (worker == null || worker.idle && command.equals("round")) answer = "0 0";
                else answer = worker.run(command, words.subList(1, words.size()));
                System.out.println(answer);
            } catch (Exception error) {
                System.out.println("raised " + error);
            }
        }
    }
}
